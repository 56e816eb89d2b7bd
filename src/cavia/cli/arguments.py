"""What the commands share: a parser whose errors are one line, and kinds of arguments."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from cavia.errors import CaviaError, closest

RUNS, DATA = Path("runs"), Path("data")


class Parser(argparse.ArgumentParser):
    """Argparse with errors of one line, and the closest known flag or command in it."""

    def error(self, message: str) -> NoReturn:
        raise CaviaError(f"{message}; see {self.prog} --help")

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [flag for action in self._flags(options) for flag in action.option_strings]
            raise CaviaError(f"unknown argument {unknown[0]!r}; {closest(unknown[0], known)}")
        return options

    def _flags(self, options: argparse.Namespace) -> list[argparse.Action]:
        commands = next(a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return commands.choices[options.command]._actions if options.command else self._actions

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            raise CaviaError(f"unknown {action.dest} {value!r}; {closest(str(value), action.choices)}")


def at_least(least: int) -> Callable[[str], int]:
    """Whole numbers that are not below `least`."""

    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        return int(text)

    return parse


def hours(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def listed(text: str) -> list[str]:
    """Names with commas between them: a,b,c."""
    return [part.strip() for part in text.split(",") if part.strip()]


def widths(text: str) -> tuple[int, ...]:
    """Sizes of layers with commas between them: 64,64."""
    return tuple(at_least(1)(part) for part in listed(text))


def keep_apart(out: Path, *inputs: Path) -> None:
    """Raise if the output would overwrite an input."""
    for path in inputs:
        if out.resolve() == path.resolve():
            raise CaviaError(f"--out {out} is also read; choose another name")

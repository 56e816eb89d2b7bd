"""What the commands share: a parser whose errors are one line, and kinds of arguments."""

import argparse
import ast
import csv
import os
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
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


def at_least(least: int, most: int = 10**18) -> Callable[[str], int]:
    """Whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= (number := int(text[:40])) or len(text) > 40:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {_shown(text)}")
        if number > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {_shown(text)}")
        return number

    return parse


def positive(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {_shown(text)}")
    return number


hours = positive


def listed(text: str) -> list[str]:
    """Names with commas between them: a,b,c. A name that has one itself stands in quotes: "a,b",c."""
    parts = next(csv.reader([text], skipinitialspace=True), [])
    return [part.strip() for part in parts if part.strip()]


def widths(text: str) -> tuple[int, ...]:
    """Sizes of layers with commas between them: 64,64."""
    return tuple(at_least(1)(part) for part in listed(text))


def require_writable(out: Path, *inputs: Path) -> None:
    """Raise if the output cannot be written, or would overwrite an input; before any work is done."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            out.stat()
        if out.is_dir():
            raise CaviaError(f"--out {out} is a folder; give the name of a file")
        for path in inputs:
            if out == path or (out.exists() and path.exists() and out.samefile(path)):
                raise CaviaError(f"--out {out} is also read; choose another name")
        there = next(folder for folder in (out.absolute().parents) if folder.exists())
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long
        raise CaviaError(f"cannot write --out {_shown(str(out))}: {getattr(error, 'strerror', error)}") from error
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise CaviaError(f"cannot write --out {out}: {there} is no folder that can be written to")


def in_flags(action: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """The action, with errors that speak of flags (--too-small drop) where the library's speak of arguments
    (too_small='drop')."""

    @wraps(action)
    def run(options: argparse.Namespace) -> None:
        try:
            action(options)
        except CaviaError as error:
            known = {*vars(options), "out"}
            said = ARGUMENT.sub(lambda found: _as_flag(found, known), str(error))
            raise type(error)(said) from error

    return run


ARGUMENT = re.compile(r"""\b([a-z_]+)=('[^']*'|"[^"]*"|\[[^\]]*\]|\d+)""")  # too_small='drop', category=['kind']


def _as_flag(found: re.Match[str], known: set[str]) -> str:
    name, text = found.groups()
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return found.group()
    shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"--{name.replace('_', '-')} {shlex.quote(shown)}" if name in known else found.group()


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:30]}…")

"""Shared by all commands: a parser with one-line errors, and types of arguments."""

import argparse
import ast
import csv
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from cavia.errors import MOST_SHOWN, CaviaError, closest

FORMATS = (".cavia", ".csv", ".parquet", ".pq", ".png", ".tsv")  # suffixes that say what is in a file
MOST_DIGITS = 4000  # of a number: just below Python's limit
LARGEST = 2**63 - 1  # PyTorch's largest integer
LONG = re.compile(r"'([^']{100,})'")
RUNS, DATA = Path("runs"), Path("data")


class Parser(argparse.ArgumentParser):
    """Argparse with one-line errors that name the closest known flag or command."""

    words: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        if "arguments are required" in message:
            known = self._option_string_actions
            taken = [word for word in self.words if word.startswith("-") and word.split("=")[0] not in known]
            message += f" ({shown_text(taken[0])} was taken for a flag)" if taken else ""
        raise CaviaError(f"{LONG.sub(lambda match: shown_text(match.group(1)), message)}; see {self.prog} --help")

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        self.words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self.words, namespace)

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [flag for action in self._flags(options) for flag in action.option_strings]
            raise CaviaError(f"unknown argument {shown_text(unknown[0])}; {closest(unknown[0], known)}")
        return options

    def _flags(self, options: argparse.Namespace) -> list[argparse.Action]:
        commands = next(a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return commands.choices[options.command]._actions if options.command else self._actions

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.nargs is None and action.option_strings and arg_strings == ["--"]:  # argparse would drop it
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            raise CaviaError(f"unknown {action.dest} {shown_text(str(value))}; {closest(str(value), action.choices)}")


def a_path(text: str) -> Path:
    """The name of a file or folder; an empty name would mean this folder."""
    if not text:
        raise argparse.ArgumentTypeError(f"must be the name of a file or folder, got {text!r}")
    return Path(text)


def on_ray(text: str) -> str:
    """A Ray cluster: ray, or ray://host:port."""
    from cavia.cluster.connection import checked_on

    try:
        return checked_on(text)
    except CaviaError as error:  # argparse would hide the message of a ValueError
        raise argparse.ArgumentTypeError(str(error)) from None


def a_store(text: str) -> Path | str:
    """The name of a store's file, or its URL unchanged: a Path would drop one of its slashes."""
    return text if "://" in text else a_path(text)


def at_least(least: int, most: int = LARGEST) -> Callable[[str], int]:
    """Whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
        if not is_number or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {shown_text(text)}")
        if int(text) > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {shown_text(text)}")
        return int(text)

    return parse


def positive(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {shown_text(text)}")
    return number


hours = positive


def listed(text: str) -> list[str]:
    """Names separated by commas: a,b,c. Quote a name that contains one: "a,b",c."""
    parts = [part.strip() for part in next(csv.reader([text], skipinitialspace=True), [])]
    if not parts or not all(parts):
        raise argparse.ArgumentTypeError(f"must be names separated by commas, got {shown_text(text)}")
    return parts


def widths(text: str) -> tuple[int, ...]:
    """Sizes of layers separated by commas: 64,64."""
    return tuple(at_least(1)(part) for part in listed(text)) if text else ()


def require_writable(out: Path, *inputs: Path, suffix: str = "") -> None:
    """Raise if the output cannot be written, or would overwrite an input; before any work is done.

    suffix: what files of its format end with; another format's suffix is refused.
    """
    try:
        if out.is_dir():
            raise CaviaError(f"--out {out} is a folder; give the name of a file")
        for path in inputs:
            if out == path or (out.exists() and path.exists() and out.samefile(path)):
                raise CaviaError(f"--out {out} is also an input; choose another name")
        there = next(folder for folder in (out.absolute().parents) if folder.exists())
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long
        raise CaviaError(f"cannot write --out {shown_text(str(out))}: {getattr(error, 'strerror', error)}") from error
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise CaviaError(f"cannot write --out {out}: {there} is not a writable folder")
    if out.suffix.lower() in FORMATS and out.suffix.lower() != suffix:
        fix = f"call it {suffix}" if suffix else "call it otherwise"
        raise CaviaError(f"--out {out} would hold another format than {out.suffix}; {fix}")


def in_flags(action: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """The action, with errors that name flags (--too-small drop) instead of the library's arguments
    (too_small='drop')."""

    @wraps(action)
    def run(options: argparse.Namespace) -> None:
        try:
            action(options)
        except CaviaError as error:
            known = {*vars(options), "out"}
            said = ARGUMENT.sub(lambda match: _as_flag(match, known), str(error))
            raise type(error)(said) from error

    return run


ARGUMENT = re.compile(r"""\b([a-z_]+)=('[^']*'|"[^"]*"|\[[^\]]*\]|\d+)""")  # too_small='drop', category=['kind']


def _as_flag(match: re.Match[str], known: set[str]) -> str:
    name, text = match.groups()
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return match.group()
    shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"--{name.replace('_', '-')} {shlex.quote(shown)}" if name in known else match.group()


def shown_text(text: str) -> str:
    """A text as shown in messages: quoted, and shortened if it is long."""
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")

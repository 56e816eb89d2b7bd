"""JSON that others wrote: read strictly, so that errors surface here and not later."""

import json
import re
from typing import Any

from cavia.errors import CaviaError, shown

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(text: str, where: object, constants: bool = False, finite: bool = True) -> Any:
    """The JSON value of the text; where: what it was read from, for messages.

    It refuses duplicate names in one object, numbers beyond those that a float holds, half characters, and
    nesting that no file of ours has. constants: whether NaN and Infinity, which JSON does not have, are numbers.
    finite: False leaves it to the caller to find infinite numbers, which is several times as fast.
    """
    try:
        value = json.loads(
            text,
            parse_float=_finite if finite else None,
            parse_constant=float if constants else _no_constant,
            object_pairs_hook=_without_doubles,
        )
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise CaviaError(f"{where} is not valid JSON (half of a character, {error.object[error.start]!a})") from error
    except ValueError as error:
        raise CaviaError(f"{where} is not valid JSON ({error})") from error
    except RecursionError as error:
        raise CaviaError(f"{where} is not valid JSON (too many brackets inside each other)") from error
    return value


def parse_object(text: str, where: object, constants: bool = False, finite: bool = True) -> dict[str, Any]:
    """The same, if it is a JSON object."""
    value = parse(text, where, constants, finite)
    if not isinstance(value, dict):
        raise CaviaError(f"{where} must hold a JSON object, {{…}}, got {shown(value)}")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{shown(text)[1:-1]} is beyond the largest number, 1.8e308")
    return number


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shown(twice)} appears twice")
    return members

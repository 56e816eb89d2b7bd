"""Reads result files, and checks key by key that a JSON value is a complete result."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from cavia.json_text import parse
from cavia.paper.schema import Result
from cavia.tensor_file import read_text

DEEPEST = 20  # nesting of lists and objects
LARGEST = 10**100  # absolute value: larger numbers cannot be drawn
PLAIN = {str: "text", bool: "true or false", int: "a whole number", float: "a finite number"}
AS_LONG_AS_X = ("y", "interval", "colour", "truth", "before", "after")


def read_value(path: Path) -> Any:
    """The JSON value of a result file; `first_problem` reports numbers that are not finite."""
    return parse(read_text(path), path, constants=True)


def first_problem(value: Any, form: Any = Result) -> str | None:
    """Why a JSON value is not of the form, in one line that begins with the key; None if it is."""
    level = [value]
    for _ in range(DEEPEST):
        parts = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [inner for part in parts for inner in part]
    if level:
        return f"lists and objects must be nested at most {DEEPEST} deep"
    return next(iter(_problems(value, form, "")), None)


def _problems(value: Any, form: Any, key: str) -> list[str]:
    """Why the value is not of the form: an object, a list of forms, a choice of forms or a plain type."""
    origin, arguments = get_origin(form), get_args(form)
    if origin is NotRequired:
        return _problems(value, arguments[0], key)
    if origin is Annotated:
        return _problems(value, arguments[0], key) or list(_beyond(value, arguments[1], key))
    if is_typeddict(form) or is_dataclass(form):
        return _problems_of_object(value, form, key)
    if origin in (Union, UnionType):
        return _problems_of_choice(value, arguments, key)
    if origin is Literal:
        known = " or ".join(map(repr, arguments))
        return [] if value in arguments else [f"{key} must be {known}, got {_short(value)}"]
    if origin in (list, Sequence):
        if not isinstance(value, list):
            return [f"{key} must be a list, got {_short(value)}"]
        return [problem for i, one in enumerate(value) for problem in _problems(one, arguments[0], f"{key}[{i}]")]
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            return [f"{key} must be an object, got {_short(value)}"]
        return [problem for name, one in value.items() for problem in _problems(one, arguments[1], f"{key}.{name}")]
    return [] if form is Any else list(_problems_of_plain(value, form, key))


def _problems_of_object(value: Any, form: Any, key: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{key or 'the file'} must be an object, got {_short(value)}"]
    key = f"{key}." if key else ""
    problems = []
    for name, part in get_type_hints(form, include_extras=True).items():
        if name in value:
            problems += _problems(value[name], part, key + name)
        elif name in getattr(form, "__required_keys__", ()):
            problems.append(f"{key}{name} is missing")
    return problems or list(_mismatches(value, key))


def _problems_of_choice(value: Any, forms: Sequence[Any], key: str) -> list[str]:
    """The problems with the form closest to the value: of the same kind, then with the fewest problems."""
    if value is None and NoneType in forms:
        return []

    def distance(problems: list[str]) -> tuple[bool, int]:
        return any(problem.startswith(f"{key}.kind ") for problem in problems), len(problems)

    return min((_problems(value, form, key) for form in forms if form is not NoneType), key=distance)


def _problems_of_plain(value: Any, form: Any, key: str) -> Iterator[str]:
    is_right = isinstance(value, int | float if form is float else form) and isinstance(value, bool) == (form is bool)
    is_number = isinstance(value, int | float)
    if not is_right or (is_number and not -math.inf < value < math.inf):
        yield f"{key} must be {PLAIN[form]}, got {_short(value)}"
    elif is_number and abs(value) > LARGEST:
        yield f"{key} must be between -1e100 and 1e100, got {_short(value)}"


def _beyond(value: Any, limit: Any, key: str) -> Iterator[str]:
    """What is wrong with a value of the right type: a number or length out of range, a name with invalid characters."""
    if isinstance(value, str):
        if not limit.fullmatch(value):
            yield f"{key} must be letters, digits, '.', '_' and '-', at most 100, got {_short(value)}"
    elif isinstance(value, list):
        if len(value) not in limit:
            wanted = f"have {limit[0]} to {limit[-1]} entries" if value else "not be empty"
            yield f"{key} must {wanted}, got {len(value)}"
    elif value not in limit:
        yield f"{key} must be at least {limit[0]} and at most {limit[-1]}, got {_short(value)}"


def _mismatches(value: dict[str, Any], key: str) -> Iterator[str]:
    """Lists in an object whose lengths should be equal but are not."""
    parts: dict[str, Any] = {}
    if "x" in value:
        parts = {name: value[name] for name in AS_LONG_AS_X if value.get(name) is not None}
    elif "columns" in value and "panels" in value:
        rows = [(i, j, row) for i, panel in enumerate(value["panels"]) for j, row in enumerate(panel["rows"])]
        parts = {f"panels[{i}].rows[{j}].pictures": row["pictures"] for i, j, row in rows}
    elif "columns" in value:
        inner = "panels" if value.get("kind") == "paths" else "cells"
        parts = {f"rows[{i}].{inner}": row[inner] for i, row in enumerate(value["rows"])}
    like = "x" if "x" in value else "columns"
    for name, part in parts.items():
        if len(part) != len(value[like]):
            yield f"{key}{name} must have as many entries as {like} ({len(value[like])}), got {len(part)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"

"""A check that a JSON value is a whole result, key by key."""

import math
import re
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from cavia.paper.schema import Pictures, Result

# Experiments and figures name files and anchors of the page.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_PLAIN: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    dict: "an object",
}


def first_problem(value: Any) -> str | None:
    """What keeps a JSON value from being a result, in one line that begins with the key; None if nothing does."""
    problem = next(_problems(value, Result, ""), None)
    return problem or next(_mismatches(value), None)


def _problems(value: Any, form: Any, key: str) -> Iterator[str]:
    """What keeps the value from being of the form: a TypedDict, a list of forms, a choice of forms or a plain type."""
    origin = get_origin(form)
    plain = origin or form
    if is_typeddict(form):
        yield from _problems_of_object(value, form, key)
    elif origin in (Union, UnionType):
        yield from _problems_of_choice(value, get_args(form), key)
    elif origin is Literal:
        if value not in get_args(form):
            yield f"{key} must be {' or '.join(map(repr, get_args(form)))}, got {_short(value)}"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{key} must be a list, got {_short(value)}"
            return
        for index, item in enumerate(value):
            yield from _problems(item, get_args(form)[0], f"{key}[{index}]")
    elif not _is_plain(value, plain):
        yield f"{key} must be {_PLAIN[plain]}, got {_short(value)}"


def _problems_of_object(value: Any, form: Any, key: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{key or 'the file'} must be an object, got {_short(value)}"
        return
    for name, part in get_type_hints(form).items():
        path = f"{key}.{name}" if key else name
        if name in value:
            yield from _problems(value[name], part, path)
        elif name in form.__required_keys__:
            yield f"{path} is missing"


def _problems_of_choice(value: Any, forms: Sequence[Any], key: str) -> Iterator[str]:
    """The problems with the form that the value comes closest to: its own kind, and then the fewest problems."""
    if value is None and NoneType in forms:
        return

    def distance(problems: list[str]) -> tuple[bool, int]:
        return any(problem.startswith(f"{key}.kind ") for problem in problems), len(problems)

    yield from min((list(_problems(value, form, key)) for form in forms if form is not NoneType), key=distance)


def _is_plain(value: Any, form: Any) -> bool:
    if isinstance(value, bool) or form is bool:
        return isinstance(value, bool) and form is bool
    if form is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, form)


def _mismatches(result: Result) -> Iterator[str]:
    """Names that cannot be files, and lists that should be of the same length and are not."""
    if not _NAME.fullmatch(result["experiment"]):
        yield f"experiment must be letters, digits, '.', '_' and '-', got {_short(result['experiment'])}"
    for index, table in enumerate(result.get("tables", [])):
        if table["digits"] < 0:
            yield f"tables[{index}].digits must be at least 0, got {table['digits']}"
        for number, row in enumerate(table["rows"]):
            yield from _length(row["cells"], table["columns"], f"tables[{index}].rows[{number}].cells", "columns")
    for index, figure in enumerate(result.get("figures", [])):
        key = f"figures[{index}]"
        if not _NAME.fullmatch(figure["name"]):
            yield f"{key}.name must be letters, digits, '.', '_' and '-', got {_short(figure['name'])}"
        if figure["kind"] == "pictures":
            yield from _picture_mismatches(figure, key)
            continue
        parts: Any = figure["series"] if figure["kind"] == "lines" else figure["panels"]
        part_key = "series" if figure["kind"] == "lines" else "panels"
        for number, part in enumerate(parts):
            for name in ("y", "interval", "colour", "truth", "before", "after"):
                if part.get(name) is not None:
                    yield from _length(part[name], part["x"], f"{key}.{part_key}[{number}].{name}", "x")


def _picture_mismatches(figure: Pictures, key: str) -> Iterator[str]:
    if not figure["panels"]:
        yield f"{key}.panels must not be empty"
    for i, panel in enumerate(figure["panels"]):
        for j, row in enumerate(panel["rows"]):
            yield from _length(row["pictures"], figure["columns"], f"{key}.panels[{i}].rows[{j}].pictures", "columns")


def _length(values: Sequence[Any], like: Sequence[Any], key: str, like_key: str) -> Iterator[str]:
    if len(values) != len(like):
        yield f"{key} must have as many entries as {like_key} ({len(like)}), got {len(values)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"

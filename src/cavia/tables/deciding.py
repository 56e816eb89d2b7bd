"""The type of a column: number, category or date, decided by all of its cells, or by the user.

Numbers are numbers, dates are dates, text is a category, and so are digits with a leading zero (01234). A column that
mixes them is an error that names the first cell that does not fit: a typo must not change what is learned.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from cavia.errors import CaviaError, require_one_of
from cavia.tables.cells import as_number, kind_of
from cavia.tables.reading import Table

NUMBER, CATEGORY, DATE = "number", "category", "date"
PROBLEMS = ("classification", "regression")
WRITTEN = {"number": "a number", "date": "a date", "text": "text", "code": "a code"}
PROPERLY = {"like a number": "like 1234.5", "like a date": "year first, like 2024-03-31"}


def listed_columns(what: str, columns: Any) -> list[str]:
    """Names of columns, one or a list; none may appear twice.

    >>> listed_columns("inputs", "age")
    ['age']
    """
    if isinstance(columns, str):
        columns = [columns]
    if not isinstance(columns, Iterable):
        raise CaviaError(f"{what} must be a column, or a list of columns, got {columns!r}")
    names = [str(name) for name in columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise CaviaError(f"{what} names the column {twice[0]!r} twice")
    return names


def settled_types(
    table: Table, number: Any = (), category: Any = (), date: Any = (), problem: str | None = None, target: Any = ()
) -> dict[str, str]:
    """Column → type, for those whose type is not left to their cells.

    number, category, date: columns of that type.
    problem:                "classification": the target is a category; "regression": it is a number.
    """
    if problem is not None:
        require_one_of("problem", problem, PROBLEMS)
    types: dict[str, str] = {}
    for kind, columns in ((NUMBER, number), (CATEGORY, category), (DATE, date)):
        for name in listed_columns(kind, columns):
            table.column(name, kind)
            if types.setdefault(name, kind) != kind:
                raise CaviaError(f"column {name!r} cannot be a {types[name]} and a {kind}")
    wanted = {"classification": CATEGORY, "regression": NUMBER}
    for name in listed_columns("target", target) if problem else ():
        if types.setdefault(name, wanted[str(problem)]) != wanted[str(problem)]:
            raise CaviaError(f"column {name!r} cannot be a {types[name]} and the target of a {problem}")
    return types


def decide(table: Table, name: str) -> str:
    """The type of a column by all of its cells; an error that names the first that does not fit."""
    values = table.column(name)
    if name in table.declared:
        return CATEGORY
    if values.dtype.kind in "iuf":
        return NUMBER
    kinds = [kind_of(value) for value in values.tolist()]
    counts = Counter(kind for kind in kinds if kind != "missing")
    for odd in ("other", "like a number", "like a date"):
        if counts[odd]:
            raise CaviaError(_odd(table, name, kinds.index(odd), odd))
    if len(counts) < 2:
        return {"date": DATE, "text": CATEGORY, "code": CATEGORY}.get(next(iter(counts), ""), NUMBER)
    if counts["code"] and not counts["date"] and _all_whole(values, kinds):
        return CATEGORY
    raise CaviaError(_mixed(table, name, kinds, counts))


def is_two_valued(table: Table, name: str) -> bool:
    """Whether a column of numbers holds 0 and 1 and nothing else: as a target, these are two classes."""
    numbers = {as_number(value) for value in table.column(name).tolist() if kind_of(value) == "number"}
    return numbers == {0.0, 1.0}


def _all_whole(values: Any, kinds: Sequence[str]) -> bool:
    """Whether every number is written without a point, as codes are."""
    numbers = (value for value, kind in zip(values.tolist(), kinds, strict=True) if kind == "number")
    return all(str(number).strip().lstrip("+-").isdigit() for number in numbers)


def _odd(table: Table, name: str, row: int, kind: str) -> str:
    value = table[name][row]
    if kind == "other":
        return (
            f"{table.cell(row, name)} ({type(value).__name__}) is neither a number nor text nor a date; leave the "
            "column out"
        )
    return (
        f"{table.cell(row, name)} looks {kind}, but is not written as one; write it "
        f"{PROPERLY[kind]}, or make the column a category with category=[{name!r}]"
    )


def _mixed(table: Table, name: str, kinds: Sequence[str], counts: Counter[str]) -> str:
    usual, often = counts.most_common(1)[0]
    row = next(row for row, kind in enumerate(kinds) if kind not in (usual, "missing"))
    known = f"{often} of {sum(counts.values())} values are {WRITTEN[usual].removeprefix('a ')}{'s' * (usual != 'text')}"
    fix = f"fix it, or make the column a category with category=[{name!r}]"
    if counts.keys() <= {"number", "code"}:
        fix += f", or a number with number=[{name!r}]"
    return f"{table.cell(row, name)} is not {WRITTEN[usual]}, but {known}; {fix}"

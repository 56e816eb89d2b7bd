"""X and y of an estimator as one table: data frames of pandas, Polars and pyarrow, arrays and lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cavia.errors import CaviaError, shown
from cavia.tables.cells import is_missing
from cavia.tables.reading import Table, read_table

EVERYTHING = "(all rows)"  # the task column of an estimator without groups
UNNAMED = "target"  # the column of a y that has no name


def is_frame(X: Any) -> bool:
    """Whether X has columns with names: a data frame, and no array."""
    return hasattr(X, "columns") or hasattr(X, "column_names")


def array_table(X: np.ndarray) -> Table:
    """An array [rows, columns] as a table whose columns are x0, x1, …"""
    return Table({f"x{i}": _cells(X[:, i]) for i in range(X.shape[1])})


def task_column(table: Table, group: str | int | None, is_array: bool) -> tuple[Table, str]:
    """The table with a task column, and its name.

    group: the name of a column, its number if X was an array; None: all rows are one task.
    """
    if group is None:
        everyone = np.full(table.rows, EVERYTHING, dtype=object)
        return Table({**table, EVERYTHING: everyone}, table.where, table.lines, table.declared), EVERYTHING
    if isinstance(group, bool) or not isinstance(group, str | int):
        raise CaviaError(f"group must be the name of a column, its number in an array, or None, got {shown(group)}")
    if not is_array:
        table.column(str(group), "group")
        return table, str(group)
    if isinstance(group, str) or not 0 <= group < len(table):
        what = f"X is an array of {len(table)} columns"
        raise CaviaError(f"{what}, it has no column {shown(group)} for group; give a number from 0 on, or a data frame")
    return table, f"x{group}"


def target_columns(y: Any) -> tuple[dict[str, np.ndarray], bool]:
    """Name → column, and whether y had two axes. Names are y's own if it has any."""
    if is_frame(y):
        return dict(read_table(y)), True
    name = getattr(y, "name", None)
    if hasattr(y, "iloc") or hasattr(y, "null_count"):  # a series of pandas or Polars, an array of pyarrow
        cells = y.to_numpy(dtype=object, na_value=None) if hasattr(y, "iloc") else None
        listed = cells.tolist() if cells is not None else y.to_list() if hasattr(y, "to_list") else y.to_pylist()
        column = np.empty(len(listed), dtype=object)
        column[:] = listed
        return {str(name) if name not in (None, "") else UNNAMED: _cells(column)}, False
    try:
        values = np.asarray(y)
    except Exception as error:  # a tensor on another device, a list of lists of several lengths
        raise CaviaError(f"y must be an array, a series or a data frame: {error}") from None
    if values.ndim == 1:
        return {UNNAMED: _cells(values)}, False
    if values.ndim != 2:
        raise CaviaError(
            f"y should be a 1d array, or one of shape [rows, targets], got an array of shape {values.shape}"
        )
    if values.shape[1] == 1:
        return {UNNAMED: _cells(values[:, 0])}, True
    return {f"{UNNAMED}{i}": _cells(values[:, i]) for i in range(values.shape[1])}, True


def with_targets(table: Table, columns: dict[str, np.ndarray], names: Sequence[str]) -> Table:
    """The table with targets under these names, one for each of `columns`."""
    if len(columns) != len(names):
        raise CaviaError(f"y must have {len(names)} targets as in fit, got {len(columns)}")
    for name, values in columns.items():
        if len(values) != table.rows:
            raise CaviaError(
                f"X and y must have the same number of rows, got {table.rows} and {len(values)} ({name!r})"
            )
        if values.dtype.kind == "f" and np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0])
            raise CaviaError(f"Input y contains infinity or a value too large, {values[row]} in row {row}; fix it")
    renamed = dict(zip(names, columns.values(), strict=True))
    return Table({**table, **renamed}, table.where, table.lines, table.declared)


def has_targets(table: Table, names: Sequence[str]) -> np.ndarray:
    """Which rows have all of these targets, [rows] bool."""
    known = np.ones(table.rows, dtype=bool)
    for name in names:
        known &= [not is_missing(value) for value in table[name].tolist()]
    return known


def row_weights(weights: Any, rows: int) -> np.ndarray:
    """Weights of rows as numbers, [rows]."""
    try:
        checked_weights = np.asarray(weights, dtype=np.float64)
    except Exception as error:
        raise CaviaError(f"sample_weight must be numbers, one for each row, got {shown(weights)}") from error
    if (
        checked_weights.shape != (rows,)
        or not np.isfinite(checked_weights).all()
        or (checked_weights < 0).any()
        or not checked_weights.any()
    ):
        what = f"{rows} numbers, one for each row, none below 0 and not all 0"
        raise CaviaError(f"sample_weight must be {what}, got {shown(weights)}")
    return checked_weights


def free_names(table: Table, columns: dict[str, np.ndarray]) -> list[str]:
    """What to call the targets: as they are, unless X has a column of that name."""
    for name in columns:
        if name in table and not name.startswith(UNNAMED):
            raise CaviaError(f"X holds the target's column {name!r} itself; leave it out of X")
    names = list(columns)
    while any(name in table for name in names):
        names = [f"{name}_" for name in names]
    return names


def _cells(values: np.ndarray) -> np.ndarray:
    """Numbers as they are; text, truth values and dates as objects."""
    if values.dtype.kind == "c":
        raise CaviaError("Complex data not supported: give real numbers")
    if values.dtype.kind in "iuf":
        return values.astype(np.float64) if values.dtype == np.float16 else values
    cells = values.astype("M8[us]").tolist() if values.dtype.kind == "M" else values.tolist()
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array

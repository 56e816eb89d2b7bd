"""Tables as columns: read from CSV and Parquet files, data frames and plain dictionaries."""

import csv
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from cavia.errors import CaviaError, nearest

Table: TypeAlias = dict[str, np.ndarray]  # name → column; text of a CSV file stays text until it is used
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none"))  # in any case; what a missing value looks like in text


def read_table(source: Any) -> Table:
    """The columns of a table, all of one length.

    source: a .csv (or .tsv) or .parquet file, a pandas data frame, a pyarrow table, or a mapping name → values.
    Parquet needs the extra `cavia[tables]`; CSV needs nothing.
    """
    if isinstance(source, str | PathLike):
        return _read_file(Path(source))
    if hasattr(source, "column_names") and hasattr(source, "column"):  # pyarrow
        columns = {str(name): source.column(name).to_pylist() for name in source.column_names}
    elif hasattr(source, "columns") and hasattr(source, "iloc"):  # pandas
        columns = {str(name): source[name].to_numpy(dtype=object, na_value=None) for name in source.columns}
    elif isinstance(source, Mapping):
        columns = {str(name): values for name, values in source.items()}
    else:
        raise CaviaError(f"a table is a file, a data frame or a mapping of columns, got {type(source).__name__}")
    table = {name: _array(values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        raise CaviaError(f"the columns of a table must be of one length, got {lengths}")
    return table


def column(table: Table, name: str, where: str = "the table") -> np.ndarray:
    """The column of that name, or an error with the nearest ones."""
    if name not in table:
        raise CaviaError(f"{where} has no column {name!r}; {nearest(name, table)}")
    return table[name]


def names(values: np.ndarray, what: str) -> list[str]:
    """A column of names as text; whole numbers without a point. A missing name is an error with its row."""
    as_text = labels(values)
    missing = [row for row, name in enumerate(as_text) if name is None]
    if missing:
        raise CaviaError(f"column {what!r} has no value in {_rows(missing)}; every row must name its task")
    return [str(name) for name in as_text]


def labels(values: np.ndarray) -> list[str | None]:
    """A column as text, None where a value is missing."""
    return [None if _is_missing(value) else _text(value) for value in values.tolist()]


def numbers(values: np.ndarray) -> np.ndarray | None:
    """A column as float64 with NaN where a value is missing; None if it holds anything but numbers."""
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    as_numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values.tolist()):
        if _is_missing(value):
            continue
        if isinstance(value, bool):
            return None
        try:
            as_numbers[row] = float(value)
        except (TypeError, ValueError):
            return None
    return as_numbers


def _read_file(path: Path) -> Table:
    if not path.is_file():
        raise CaviaError(f"there is no file {path}")
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        return _read_csv(path, "\t" if kind == ".tsv" else ",")
    if kind in (".parquet", ".pq"):
        return _read_parquet(path)
    raise CaviaError(f"cannot tell what {path} is; tables are .csv, .tsv or .parquet")


def _read_csv(path: Path, delimiter: str) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CaviaError(f"cannot read {path} as CSV: {error}") from error
    if not rows:
        raise CaviaError(f"{path} is empty; its first line must name the columns")
    header = [name.strip() for name in rows[0]]
    if len(set(header)) < len(header) or not all(header):
        raise CaviaError(f"{path}: every column needs a name of its own, got {', '.join(header)}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise CaviaError(f"{path}: row {number} has {len(row)} values, the header names {len(header)} columns")
    columns = zip(*rows[1:], strict=True) if len(rows) > 1 else [[] for _ in header]
    return {name: np.array(values, dtype=object) for name, values in zip(header, columns, strict=True)}


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise CaviaError("Parquet files need pyarrow: pip install 'cavia[tables]'") from error
    try:
        return read_table(parquet.read_table(path))
    except (OSError, pyarrow.ArrowException) as error:
        raise CaviaError(f"{path} is not a Parquet file ({str(error).splitlines()[0]})") from error


def _array(values: Any) -> np.ndarray:
    """One axis of numbers, or of anything as objects."""
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise CaviaError(f"a column must have one axis, got one of shape {list(array.shape)}")
    return array


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and value != value)


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _rows(rows: list[int]) -> str:
    """Row numbers as a spreadsheet counts them, with the header as row 1."""
    shown = ", ".join(str(row + 2) for row in rows[:5])
    return f"{'rows' if len(rows) > 1 else 'row'} {shown}" + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")

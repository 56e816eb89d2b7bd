"""Tables as columns: read from CSV and Parquet files, data frames and plain dictionaries."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cavia.errors import CaviaError, missing_package, named, nearest
from cavia.tables.cells import as_text, is_nameless, shown_cell
from cavia.tensor_file import checked_path

ESCAPED = re.compile(r"'+[=+\-@\t\r]")  # what `writing` puts an apostrophe before, so that no spreadsheet computes it


class Table(dict[str, np.ndarray]):
    """Name → column, all of one length; text of a CSV file stays text until it is used.

    where:    what messages call it.
    lines:    the line of the file that each row begins at; None: there are none.
    declared: columns that say of themselves that they are categories (pandas, pyarrow).
    """

    def __init__(
        self,
        columns: Mapping[str, np.ndarray],
        where: str = "the table",
        lines: Sequence[int] | None = None,
        declared: Iterable[str] = (),
    ):
        super().__init__(columns)
        self.where, self.lines, self.declared = where, lines, frozenset(declared)
        self.parsed: dict[tuple[str, str], Any] = {}  # results of `values`, which is slow

    @property
    def rows(self) -> int:
        return len(next(iter(self.values()), ()))

    def place(self, row: int, name: str | None = None) -> str:
        """A row, or a cell of it, as messages call it."""
        line = f"row {row} (counting from 0)" if self.lines is None else f"line {self.lines[row]}"
        within = "" if self.where == "the table" else f"{self.where}, "
        return within + line + ("" if name is None else f", column {name!r}")

    def cell(self, row: int, name: str) -> str:
        """A cell with what it holds, as messages begin."""
        return f"{self.place(row, name)}: {shown_cell(self[name][row])}"

    def column(self, name: str, use: str = "") -> np.ndarray:
        """The column of that name, [rows], or an error with the nearest ones. use: which argument asks for it."""
        if name not in self:
            raise CaviaError(
                f"{self.where} has no column {shown_cell(name)}{use and f' for {use}'}; {nearest(name, self)}"
            )
        return self[name]

    def take(self, rows: np.ndarray) -> "Table":
        """Some of the rows, by number [n]."""
        lines = None if self.lines is None else [self.lines[row] for row in rows]
        return Table({name: values[rows] for name, values in self.items()}, self.where, lines, self.declared)

    def names(self, name: str) -> list[str]:
        """A column of names as text; whole numbers without a point. A missing name is an error with its row."""
        values = self.column(name).tolist()
        missing = [row for row, value in enumerate(values) if is_nameless(value)]
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise CaviaError(f"{self.place(missing[0], name)}{more}: no value; every row must name its task")
        return [as_text(value) for value in values]


def read_table(source: Any) -> Table:
    """The columns of a table, all of one length.

    source: a .csv (or .tsv) or .parquet file, a pandas, Polars or pyarrow table, a mapping name → values, or a list of
            rows, each a mapping name → value; a row without one of the names has no value there.
    Parquet needs the extra `tables`; CSV needs nothing.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | PathLike):
        return _read_file(checked_path(source))
    declared: list[Any] = []
    if isinstance(source, list) and source and all(isinstance(row, Mapping) for row in source):
        names = dict.fromkeys(name for row in source for name in row)
        source = {name: _listed([row.get(name) for row in source]) for name in names}
    if hasattr(source, "column_names") and hasattr(source, "column"):  # pyarrow
        pairs = [(name, _of_arrow(name, source.column(i))) for i, name in enumerate(source.column_names)]
        declared = [name for i, name in enumerate(source.column_names) if _is_dictionary(source.column(i).type)]
    elif hasattr(source, "get_columns") and hasattr(source, "lazy"):  # Polars
        pairs = [(column.name, _of_polars(column)) for column in source.get_columns()]
        declared = [column.name for column in source.get_columns() if _is_enumerated(column.dtype)]
    elif hasattr(source, "columns") and hasattr(source, "iloc"):  # pandas
        series = [(name, source.iloc[:, i]) for i, name in enumerate(source.columns)]
        pairs = [(name, _of_series(values)) for name, values in series]
        declared = [name for name, values in series if _is_category(values)]
    elif isinstance(source, Mapping):
        pairs = list(source.items())
        declared = [name for name, values in pairs if _is_category(values)]
    else:
        what = "a file, a data frame, a mapping of columns or a list of rows"
        raise CaviaError(f"a table is {what}, got {type(source).__name__}")
    _check_header([str(name) for name, _ in pairs], "the table")
    table = Table({str(name): _array(str(name), values) for name, values in pairs}, declared=map(str, declared))
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        raise CaviaError(f"the columns of a table must be of one length, got {lengths}")
    return table


def _read_file(path: Path) -> Table:
    try:
        is_there = path.is_file()
    except OSError as error:  # a name that is too long
        raise CaviaError(f"cannot read {shown_cell(str(path))}: {error.strerror}") from error
    if not is_there:
        raise CaviaError(f"there is no file {named(path)}")
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        return _read_csv(path, "\t" if kind == ".tsv" else ",")
    if kind in (".parquet", ".pq"):
        return _read_parquet(path)
    raise CaviaError(f"cannot tell what {path} is; tables are .csv, .tsv or .parquet")


def _read_csv(path: Path, delimiter: str) -> Table:
    rows, lines, before = [], [], 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter)
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(before + 1)
                before = reader.line_num
    except UnicodeDecodeError as error:
        raise CaviaError(f"cannot read {path} as CSV: {error}; save it as UTF-8") from error
    except csv.Error as error:
        why = "; is a quotation mark never closed?" if "limit" in str(error) else ""
        raise CaviaError(f"cannot read {path} as CSV, line {before + 1}: {error}{why}") from error
    except OSError as error:
        raise CaviaError(f"cannot read {path} as CSV: {error}") from error
    if not rows:
        raise CaviaError(f"{path} is empty; its first line must name the columns")
    header = [_unescaped(name).strip() for name in rows[0]]
    if other := next((sign for sign in ";\t|" if len(header) == 1 and sign in rows[0][0]), ""):
        ours = f"a {path.suffix.lower()} does so by {delimiter!r}"
        raise CaviaError(f"{path} separates its columns by {other!r}, but {ours}; save it so")
    _check_header(header, str(path))
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(header):
            raise CaviaError(f"{path}, line {line}: {len(row)} values, but the header names {len(header)} columns")
    columns = zip(*rows[1:], strict=True) if len(rows) > 1 else [[] for _ in header]
    cells = [np.array([*map(_unescaped, values)], dtype=object) for values in columns]
    return Table(dict(zip(header, cells, strict=True)), str(path), lines[1:])


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_package("reading Parquet", "pyarrow", "tables") from error
    try:
        table = read_table(parquet.read_table(path))
    except (OSError, pyarrow.ArrowException) as error:
        reason = (str(error).splitlines() or ["it cannot be read"])[0]
        raise CaviaError(f"{path} is not a Parquet file ({reason})") from error
    return Table(table, str(path), declared=table.declared)


def _check_header(header: Sequence[str], where: str) -> None:
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice or not all(header):
        what = f"{shown_cell(twice[0])} appears twice" if twice else "one has none"
        raise CaviaError(f"{where}: every column needs a name of its own; {what}")
    for name in header:
        _check_text(name, "the name of a column")


def _check_text(text: str, where: str) -> None:
    """Raise if the text cannot be written to a file."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CaviaError(f"{where}: {shown_cell(text)} holds half a character (a surrogate); fix the text") from None


def _array(name: str, values: Any) -> np.ndarray:
    """One axis of numbers, or of anything as objects."""
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu().numpy()
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise CaviaError(f"the table's column {name!r} must have one axis, got one of shape {list(array.shape)}")
    if array.dtype.kind in "iuf":
        return array
    cells = array.astype("M8[us]").tolist() if array.dtype.kind == "M" else array.tolist()
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    if any(not cell.isascii() for cell in cells if isinstance(cell, str)):
        for row, cell in enumerate(cells):
            if isinstance(cell, str):
                _check_text(cell, f"row {row} (counting from 0), column {name!r}")
    return column


def _listed(values: list[Any]) -> np.ndarray:
    """Cells as they are, whatever they hold."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _of_arrow(name: str, values: Any) -> list[Any]:
    try:
        return values.to_pylist()
    except ValueError as error:  # nanoseconds
        raise CaviaError(f"column {name!r} cannot be read: {' '.join(str(error).split())}") from error


def _of_series(values: Any) -> Any:
    """A pandas column as an array, None where a value is missing."""
    is_plain = isinstance(values.dtype, np.dtype) and values.dtype.kind in "iuf"
    return values.to_numpy() if is_plain else values.to_numpy(dtype=object, na_value=None)


def _of_polars(values: Any) -> Any:
    """A Polars column as an array, or a list with None where a value is missing."""
    is_plain = (values.dtype.is_integer() or values.dtype.is_float()) and not values.null_count()
    return values.to_numpy() if is_plain else values.to_list()


def _is_enumerated(kind: Any) -> bool:
    return str(kind).startswith(("Categorical", "Enum"))


def _is_category(values: Any) -> bool:
    return str(getattr(values, "dtype", "")) == "category"


def _is_dictionary(kind: Any) -> bool:
    return str(kind).startswith("dictionary<")


def _unescaped(cell: str) -> str:
    return cell[1:] if ESCAPED.match(cell) else cell

"""CSV files that any program opens, and that `reading` reads back as they were."""

import csv
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError
from cavia.tables.cells import NUMBER
from cavia.tables.intervals import Band
from cavia.tables.reading import Table
from cavia.tensor_file import write_atomically

PREDICTION = "prediction"
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # a spreadsheet would compute it


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """A CSV file. Text that a spreadsheet would take for a formula gets an apostrophe in front; `read_table` takes it
    off again."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\r\n")
    for row in (header, *rows):
        writer.writerow([*map(_escaped, row)])
    return "".join(lines).encode()


def write_predictions(path: Path, table: Table, predictions: Mapping[str, list[Any] | Band]) -> None:
    """The table's columns and further ones, row by row, atomically.

    predictions: target → its predictions, or a band with the columns "low" and "high". Of one target the column is
                 "prediction", of more "prediction_<target>".
    """
    added = prediction_columns(predictions, table, table.where)
    columns = [[_kept(value) for value in values.tolist()] for values in table.values()]
    columns += [[_shown(value) for value in values] for values in added.values()]
    write_atomically(path, csv_bytes([*table, *added], zip(*columns, strict=True)))


def prediction_columns(
    predictions: Mapping[str, list[Any] | Band], taken: Container[str], where: str
) -> dict[str, list[Any]]:
    """The columns that predictions become, by name; an error if `where` has one of that name already."""
    added: dict[str, list[Any]] = {}
    for target, predicted in predictions.items():
        ending = "" if len(predictions) == 1 else f"_{target}"
        parts = predicted._asdict() if isinstance(predicted, Band) else {PREDICTION: predicted}
        added |= {f"{name}{ending}": values for name, values in parts.items()}
    for name in added:
        if name in taken:
            raise CaviaError(f"{where} has a column {name!r} already; rename it")
    return added


class _Lines(list[str]):
    """Rows that end with a line feed alone, though a carriage return in a cell is quoted, which csv does not for it."""

    def write(self, row: str) -> None:
        self.append(row.removesuffix("\r\n") + "\n")


def _escaped(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    is_formula = FORMULA.match(value) and not NUMBER.fullmatch(value.strip(" "))
    return f"'{value}" if is_formula else value


def _kept(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and value != value) else value


def _shown(prediction: Any) -> str:
    return f"{prediction:.7g}" if isinstance(prediction, float) else str(prediction)

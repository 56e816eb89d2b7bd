"""Predictions as a CSV file."""

import csv
import io
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError
from cavia.tables.reading import Table
from cavia.tensor_file import write_atomically

PREDICTION = "prediction"


def write_predictions(path: Path, table: Table, predictions: list[Any]) -> None:
    """The table's columns and a further one, `prediction`, row by row, atomically."""
    if PREDICTION in table:
        raise CaviaError(f"the table has a column {PREDICTION!r} already; rename it")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*table, PREDICTION])
    columns = [["" if value is None else value for value in values.tolist()] for values in table.values()]
    writer.writerows(zip(*columns, map(_shown, predictions), strict=True))
    write_atomically(path, file.getvalue().encode())


def _shown(prediction: Any) -> str:
    return f"{prediction:.7g}" if isinstance(prediction, float) else str(prediction)

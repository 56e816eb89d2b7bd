"""The values of a whole column: numbers, dates or labels; a cell that is none is an error that names it."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np

from cavia.errors import CaviaError
from cavia.tables.cells import as_date, as_number, as_text, canonical, has_zone, is_missing
from cavia.tables.reading import Table

MOST = 1e100  # of a number: its square is still one
EXACT = 2**53  # up to here, float64 holds every whole number
MOST_DEVIATIONS = 1e9  # from the training mean: a network in float32 computes with it


def numbers(table: Table, name: str) -> np.ndarray:
    """A column as float64 [rows], NaN where a value is missing; an error names a cell that is not a number."""
    if ("numbers", name) not in table.parsed:
        table.parsed["numbers", name] = _numbers(table, name)
    return table.parsed["numbers", name]


def _numbers(table: Table, name: str) -> np.ndarray:
    values = table.column(name)
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
    else:
        numbers = np.full(len(values), np.nan)
        for row, value in enumerate(values.tolist()):
            if not is_missing(value):
                number = as_number(value)
                if number is None:
                    raise CaviaError(
                        f"{table.cell(row, name)} is not a number; fix it, or leave it empty if it is missing"
                    )
                numbers[row] = number
    large = np.flatnonzero(np.abs(numbers) > MOST)
    if len(large):
        raise CaviaError(
            f"{table.cell(large[0], name)} is too large a number, at most {MOST:g} can be "
            "computed with; fix it, or leave it empty if it is missing"
        )
    return numbers


def dates(table: Table, name: str) -> list[datetime | None]:
    """A column as dates, None where one is missing; an error that names a cell that is none."""
    if ("dates", name) not in table.parsed:
        table.parsed["dates", name] = _dates(table, name)
    return table.parsed["dates", name]


def _dates(table: Table, name: str) -> list[datetime | None]:
    dates: list[datetime | None] = []
    zones: dict[bool, int] = {}  # whether a time has a zone → the first row of such a time
    for row, value in enumerate(table.column(name).tolist()):
        date = None if is_missing(value) else as_date(value, compact=True)
        if date is None and not is_missing(value):
            example = "2024-03-31 or 2024-03-31 17:45"
            raise CaviaError(f"{table.cell(row, name)} is not a date like {example}")
        dates.append(date)
        if not is_missing(value) and (zone := has_zone(value)) is not None:
            zones.setdefault(zone, row)
    if len(zones) > 1:
        raise CaviaError(
            f"{table.cell(zones[True], name)} has a time zone, but {table.cell(zones[False], name)} has none; write "
            "all times of a column in one way"
        )
    return dates


def labels(values: np.ndarray) -> list[str | None]:
    """A column as text, None where a value is missing; 1, 1.0 and "1.0" are the same."""
    return [None if is_missing(value) else canonical(as_text(value)) for value in values.tolist()]


def spread(present: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of numbers [n]; 1 if they are all equal."""
    low, high = float(present.min()), float(present.max())
    if low == high:
        return low, 1.0
    scale = float(present.std())
    if scale < 1e-100:  # the squares of such numbers are zero
        size = max(abs(low), abs(high))
        scale = float((present / size).std() * size)
    return float(present.mean()), scale or high - low


def check_resolution(
    table: Table, name: str, values: np.ndarray, present: np.ndarray, mean: float, scale: float
) -> None:
    """Raise if float64 cannot hold the digits that tell the numbers apart, or a few numbers are so large that float32
    cannot tell most of the others apart."""
    for row in map(int, np.flatnonzero(present & (np.abs(values) > EXACT))):
        if _rounding(table[name][row], values[row]) > 1e-6 * scale:
            raise CaviaError(
                f"{table.cell(row, name)} has more digits than a number is computed with (16), and column {name!r} "
                f"differs in the last of them; subtract a constant, or make it a category with category=[{name!r}]"
            )
    unique = np.unique(values[present])
    _, counts = np.unique(((unique - mean) / scale).astype(np.float32), return_counts=True)
    if len(unique) > 2 and 2 * counts.max() >= len(unique):
        far = np.where(present, np.abs(values - np.median(values[present])), -1.0)
        row = int(far.argmax())
        raise CaviaError(
            f"{table.cell(row, name)} is so large that a network could not tell the other "
            f"numbers apart (at most 1e7 times their spread can be); fix it, or leave it empty if it is missing"
        )


def _rounding(cell: Any, number: float) -> float:
    """How far a whole number is from the float64 that it was read as."""
    return float(abs(Decimal(as_text(cell)) - Decimal(number)))


def check_near(table: Table, name: str, standardised: np.ndarray, mean: float, scale: float) -> None:
    """Raise if a number is too far from those of training for a network to compute with."""
    far = np.flatnonzero(np.abs(standardised) > MOST_DEVIATIONS)
    if len(far):
        raise CaviaError(
            f"{table.cell(far[0], name)} is too far from the training numbers (mean "
            f"{mean:.4g}, deviation {scale:.4g}), at most {MOST_DEVIATIONS:g} deviations; fix it, or leave it out"
        )

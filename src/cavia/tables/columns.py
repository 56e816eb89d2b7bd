"""How a column becomes inputs of a network, by its type, as it was in the training tasks."""

import math
from calendar import isleap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

import numpy as np

from cavia.errors import CaviaError, shown
from cavia.tables.cells import canonical
from cavia.tables.deciding import CATEGORY, DATE, NUMBER
from cavia.tables.reading import Table
from cavia.tables.values import MOST, check_near, check_resolution, dates, labels, numbers, spread

MOST_LEVELS = 100
NO_VALUE = "(missing)"  # the level of a missing category


@dataclass(frozen=True)
class Number:
    """A number, standardised.

    mean, scale: of the numbers in training; scale is their standard deviation, or 1 if they were all equal.
    has_missing: numbers were missing in training: a second input says where.
    """

    kind: ClassVar[str] = NUMBER
    name: str
    mean: float = 0.0
    scale: float = 1.0
    has_missing: bool = False
    levels: ClassVar[tuple[str, ...]] = ()

    @property
    def width(self) -> int:
        """How many inputs the column becomes."""
        return 1 + self.has_missing

    @classmethod
    def fit(cls, table: Table, name: str, rows: np.ndarray, is_target: bool = False) -> "Number":
        """rows: [rows] bool, those of training tasks."""
        values = numbers(table, name)
        present = rows & ~np.isnan(values)
        if not present.any():
            raise CaviaError(f"column {name!r} has no values in the training tasks; leave it out")
        mean, scale = spread(values[present])
        check_resolution(table, name, values, present, mean, scale)
        return cls(name, mean, scale, bool(present.sum() < rows.sum()))

    def without_value(self, table: Table) -> int:
        """In how many rows a value is missing that never was in training."""
        return 0 if self.has_missing else int(np.isnan(numbers(table, self.name)).sum())

    def standardise(self, table: Table) -> np.ndarray:
        """[rows], NaN where a value is missing."""
        values = numbers(table, self.name)
        standardised = (values - self.mean) / self.scale
        check_near(table, self.name, standardised, self.mean, self.scale)
        return standardised

    def encode(self, table: Table) -> np.ndarray:
        """[rows, width]"""
        return _with_missing(self.standardise(table)[:, None], self.has_missing)


@dataclass(frozen=True)
class Category:
    """One of some texts, one-hot. levels: those of training, `NO_VALUE` among them if one was missing."""

    kind: ClassVar[str] = CATEGORY
    name: str
    levels: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return len(self.levels)

    @classmethod
    def fit(cls, table: Table, name: str, rows: np.ndarray, is_target: bool = False) -> "Category":
        rows = np.ones(table.rows, dtype=bool) if is_target else rows  # which classes there are is no secret of a split
        present = {label for label, counts in zip(labels(table[name]), rows, strict=True) if counts}
        levels = sorted(
            {NO_VALUE if label is None else label for label in present if not (is_target and label is None)}
        )
        if len(levels) > MOST_LEVELS:
            raise CaviaError(
                f"column {name!r} has {len(levels)} categories, more than {MOST_LEVELS}; leave it out, or group them"
            )
        if not levels or (is_target and len(levels) < 2):
            held = f"only the class {shown(levels[0])}" if levels else "no classes"
            raise CaviaError(f"column {name!r} holds {held}; at least 2 are needed")
        return cls(name, tuple(levels))

    def numbers(self, table: Table) -> np.ndarray:
        """Which level each row has, [rows]; -1: it is missing, -2: training never saw it."""
        number = {canonical(level): i for i, level in enumerate(self.levels)}
        number |= {level: i for i, level in enumerate(self.levels)}
        numbers = (-1 if label is None else number.get(label, -2) for label in labels(table.column(self.name)))
        return np.fromiter(numbers, dtype=np.int64, count=table.rows)

    def encode(self, table: Table) -> np.ndarray:
        """[rows, width]"""
        numbers = self.numbers(table)
        if NO_VALUE in self.levels:
            numbers[numbers == -1] = self.levels.index(NO_VALUE)
        return (numbers[:, None] == np.arange(self.width)).astype(np.float64)

    def without_value(self, table: Table) -> int:
        """In how many rows a value is missing that never was in training."""
        return 0 if NO_VALUE in self.levels else int((self.numbers(table) == -1).sum())


@dataclass(frozen=True)
class Date:
    """A date as what a calendar says of it: year, day of the year, month, weekday, and the hour if there is one.

    mean, scale: of the years, which have a fraction.
    has_time:    some date in training had a time of day.
    """

    kind: ClassVar[str] = DATE
    levels: ClassVar[tuple[str, ...]] = ()
    name: str
    mean: float = 0.0
    scale: float = 1.0
    has_missing: bool = False
    has_time: bool = False

    @property
    def width(self) -> int:
        return 1 + 2 + 12 + 7 + 2 * self.has_time + self.has_missing

    @classmethod
    def fit(cls, table: Table, name: str, rows: np.ndarray, is_target: bool = False) -> "Date":
        if is_target:
            raise CaviaError(f"column {name!r} holds dates; a target is a number or a category")
        seen = [date for date, counts in zip(dates(table, name), rows, strict=True) if counts]
        present = [date for date in seen if date is not None]
        if not present:
            raise CaviaError(f"column {name!r} has no values in the training tasks; leave it out")
        mean, scale = spread(np.array([_year(date) for date in present]))
        has_time = any((date.hour, date.minute, date.second) != (0, 0, 0) for date in present)
        return cls(name, mean, scale, len(present) < len(seen), has_time)

    def encode(self, table: Table) -> np.ndarray:
        """[rows, width]"""
        width = self.width - self.has_missing
        features = [[math.nan] * width if date is None else self._features(date) for date in dates(table, self.name)]
        return _with_missing(np.array(features, dtype=np.float64).reshape(-1, width), self.has_missing)

    def without_value(self, table: Table) -> int:
        """In how many rows a value is missing that never was in training."""
        return 0 if self.has_missing else sum(date is None for date in dates(table, self.name))

    def _features(self, date: datetime) -> list[float]:
        months, weekdays = [0.0] * 12, [0.0] * 7
        months[date.month - 1] = weekdays[date.weekday()] = 1.0
        year, hour = _year(date), (date.hour + date.minute / 60 + date.second / 3600) / 24
        clock = _around(hour) if self.has_time else []
        return [(year - self.mean) / self.scale, *_around(year % 1), *months, *weekdays, *clock]


Column: TypeAlias = Number | Category | Date
TYPES: dict[str, type[Number] | type[Category] | type[Date]] = {NUMBER: Number, CATEGORY: Category, DATE: Date}


def column_as_json(column: Column) -> dict[str, Any]:
    """JSON values, for `column_from_json`."""
    return {"kind": column.kind, **asdict(column), **({"levels": list(column.levels)} if column.levels else {})}


def column_from_json(value: Any) -> Column:
    """What `column_as_json` was given; anything else is an error. A file of cavia 0.1 names no kind."""
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise CaviaError(f"a column has no name: {shown(value)}")
    name = value["name"]
    entries = {key: entry for key, entry in value.items() if key != "kind"}
    kind = value.get("kind", CATEGORY if value.get("levels") else NUMBER)
    if "kind" not in value:
        kept = ("name", "levels") if kind == CATEGORY else ("name", "mean", "scale", "has_missing")
        entries = {key: entries[key] for key in kept if key in entries}
    if not isinstance(kind, str) or kind not in TYPES:
        raise CaviaError(f"column {name!r} has the unknown type {shown(kind)}")
    wanted = {field.name: _CHECKS[field.name] for field in fields(TYPES[kind])}
    wrong = [field for field in wanted if field not in entries or not wanted[field](entries[field])]
    if wrong or entries.keys() != wanted.keys():
        what = wrong[0] if wrong else min(entries.keys() - wanted.keys())
        raise CaviaError(f"column {name!r}, a {kind}, has a wrong {what!r}: {shown(entries.get(what))}")
    made: Any = TYPES[kind]
    return made(**{key: tuple(entry) if key == "levels" else entry for key, entry in entries.items()})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST


_CHECKS: dict[str, Any] = {
    "name": lambda value: isinstance(value, str),
    "levels": lambda value: (
        isinstance(value, list)
        and 0 < len(value) <= MOST_LEVELS
        and all(isinstance(level, str) for level in value)
        and len(set(value)) == len(value)
    ),
    "mean": _is_number,
    "scale": lambda value: _is_number(value) and value > 0,
    "has_missing": lambda value: isinstance(value, bool),
    "has_time": lambda value: isinstance(value, bool),
}


def _with_missing(features: np.ndarray, has_missing: bool) -> np.ndarray:
    """NaN as zero, and a further input that says where they were: [rows, W] → [rows, W or W + 1]."""
    missing = np.isnan(features[:, :1])
    features = np.where(missing, 0.0, features)
    return np.concatenate([features, missing], 1) if has_missing else features


def _year(date: datetime) -> float:
    """2024-07-02 is about 2024.5."""
    day = date.timetuple().tm_yday - 1 + (date.hour + date.minute / 60 + date.second / 3600) / 24
    return date.year + day / (366 if isleap(date.year) else 365)


def _around(share: float) -> list[float]:
    """A share of a circle as sine and cosine: its end is its beginning."""
    return [math.sin(2 * math.pi * share), math.cos(2 * math.pi * share)]

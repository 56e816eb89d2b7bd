"""Columns of a table as numbers for a network, and back: standardised, one-hot, saved with the model.

The policy for missing values: a missing number is the training mean, and a further input says that it was missing if
any was in training; a missing category is a category of its own; a category that training never saw is none of them.
A row without a target is left out where a target is needed, and counted. A row without a task is an error.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.tables.reading import Table, column, labels, numbers

MOST_LEVELS = 100
NO_VALUE = "(missing)"  # the level of a missing category


@dataclass(frozen=True)
class Column:
    """How one column becomes inputs, as it was in the training tasks.

    levels:      the categories of a categorical column; empty for numbers.
    mean, scale: of the numbers; scale is their standard deviation, or 1 if they were all equal.
    has_missing: numbers were missing in training: a second input says where.
    """

    name: str
    levels: tuple[str, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    has_missing: bool = False

    @property
    def width(self) -> int:
        """How many inputs the column becomes."""
        return len(self.levels) or 1 + self.has_missing

    def encode(self, values: np.ndarray) -> np.ndarray:
        """[rows] → [rows, width]"""
        if self.levels:
            named = np.array([NO_VALUE if label is None else label for label in labels(values)], dtype=object)
            return np.stack([named == level for level in self.levels], 1).astype(np.float64)
        standardised = self.standardise(values)
        missing = np.isnan(standardised)
        standardised = np.where(missing, 0.0, standardised)
        return np.stack([standardised, missing], 1) if self.has_missing else standardised[:, None]

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """[rows] → [rows], NaN where a value is missing."""
        as_numbers = numbers(values)
        if as_numbers is None:
            wrong = next(v for v in values.tolist() if numbers(np.array([v], dtype=object)) is None)
            raise CaviaError(f"column {self.name!r} held numbers in training; {wrong!r} is none")
        if np.isinf(as_numbers).any():
            raise CaviaError(f"column {self.name!r} holds an infinite number; a missing one is an empty field")
        return (as_numbers - self.mean) / self.scale


@dataclass(frozen=True)
class Encoding:
    """What the columns of a table mean: which names the task, which is the target, and how each becomes numbers."""

    task: str
    target: Column
    inputs: tuple[Column, ...]

    @property
    def width(self) -> int:
        """How many inputs a network has."""
        return sum(column.width for column in self.inputs)

    @property
    def outputs(self) -> int:
        """How many outputs: one, or one for each class of a categorical target."""
        return len(self.target.levels) or 1

    @property
    def loss(self) -> str:
        return "cross_entropy" if self.target.levels else "mse"

    def encode_inputs(self, table: Table, where: str = "the table") -> Tensor:
        """[rows, width] float32"""
        if not len(next(iter(table.values()), ())):
            return torch.zeros(0, self.width)
        parts = [one.encode(column(table, one.name, where)) for one in self.inputs]
        return torch.from_numpy(np.concatenate(parts, 1)).float()

    def encode_targets(self, table: Table, where: str = "the table") -> tuple[Tensor, Tensor]:
        """Targets, [rows, 1] standardised or [rows] class numbers, and [rows] bool: True where there is one."""
        values = column(table, self.target.name, where)
        if not self.target.levels:
            targets = torch.from_numpy(self.target.standardise(values)).float()
            return targets.nan_to_num(0.0)[:, None], ~targets.isnan()
        number = {level: i for i, level in enumerate(self.target.levels)}
        found_labels = labels(values)
        unknown = sorted({label for label in found_labels if label is not None and label not in number})
        if unknown:
            raise CaviaError(
                f"column {self.target.name!r} holds the class {unknown[0]!r}, which training did not have; it had "
                f"{', '.join(self.target.levels)}"
            )
        known = torch.tensor([label is not None for label in found_labels], dtype=torch.bool)
        return torch.tensor([number.get(str(label), 0) for label in found_labels]), known

    def empty_targets(self, points: int) -> Tensor:
        """Targets [1, points, ...] of a task that stand for none."""
        return torch.zeros(1, points, dtype=torch.long) if self.target.levels else torch.zeros(1, points, 1)

    def decode(self, predictions: Tensor) -> list[Any]:
        """Predictions [rows, outputs] in the target's own units, or its classes."""
        if self.target.levels:
            return [self.target.levels[i] for i in predictions.argmax(1).tolist()]
        return (predictions[:, 0].double() * self.target.scale + self.target.mean).tolist()

    def as_json(self) -> dict[str, Any]:
        """JSON values, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Encoding":
        def one(entry: dict[str, Any]) -> Column:
            return Column(**entry | {"levels": tuple(entry["levels"])})

        return cls(value["task"], one(value["target"]), tuple(one(entry) for entry in value["inputs"]))


def fit_encoding(
    table: Table,
    task: str,
    target: str,
    inputs: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    rows: np.ndarray | None = None,
) -> Encoding:
    """The encoding that the training rows call for.

    inputs:      the columns that the network sees, by default all but task and target.
    categorical: columns of numbers that are categories (a postcode, a class).
    rows:        [rows] bool, the rows of training tasks; by default all.
    """
    for name in (task, target, *categorical, *(inputs or ())):
        column(table, name)
    chosen = [name for name in table if name not in (task, target)] if inputs is None else list(inputs)
    if not chosen:
        raise CaviaError(
            f"the table has no columns besides {task!r} and {target!r}: a network needs at least one input"
        )
    for name in chosen:
        if name in (task, target):
            raise CaviaError(f"column {name!r} cannot be an input: it is the {'task' if name == task else 'target'}")
    rows = np.ones(len(table[task]), dtype=bool) if rows is None else rows
    encoded = tuple(_fit_column(name, table[name][rows], name in categorical) for name in chosen)
    answer = _fit_column(target, table[target][rows], target in categorical, is_target=True)
    return Encoding(task, answer, encoded)


def _fit_column(name: str, values: np.ndarray, categorical: bool, is_target: bool = False) -> Column:
    as_numbers = None if categorical else numbers(values)
    if as_numbers is None:
        seen = {label if label is not None else (None if is_target else NO_VALUE) for label in labels(values)}
        levels = tuple(sorted(level for level in seen if level is not None))
        if len(levels) > MOST_LEVELS:
            raise CaviaError(
                f"column {name!r} has {len(levels)} categories, more than {MOST_LEVELS}; leave it out, or group them"
            )
        if not levels or (is_target and len(levels) < 2):
            raise CaviaError(
                f"column {name!r} holds {len(levels)} classes in the training tasks; at least 2 are needed"
            )
        return Column(name, levels)
    present = as_numbers[~np.isnan(as_numbers)]
    if not len(present):
        raise CaviaError(f"column {name!r} has no values in the training tasks; leave it out")
    if np.isinf(present).any():
        raise CaviaError(f"column {name!r} holds an infinite number; a missing one is an empty field")
    return Column(name, (), float(present.mean()), float(present.std()) or 1.0, len(present) < len(as_numbers))

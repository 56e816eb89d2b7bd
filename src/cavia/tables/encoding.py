"""Columns of a table as numbers for a network, and back: saved with the model.

The policy for missing values: a missing number or date is the training mean, and a further input says that it was
missing if any was in training; a missing category is a category of its own; a category that training never saw is none
of them. A row without a target is left out where a target is needed, and counted. A row without a task is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, shown
from cavia.tables.cells import shown_cell
from cavia.tables.columns import TYPES, Category, Column, Number, column_as_json, column_from_json
from cavia.tables.deciding import CATEGORY, NUMBER, decide, is_two_valued, listed_columns
from cavia.tables.reading import Table


@dataclass(frozen=True)
class Encoding:
    """What the columns of a table mean: which names the task, which are to be predicted, and how each becomes numbers.

    targets: one category, or one or more numbers.
    """

    task: str
    targets: tuple[Category] | tuple[Number, ...]
    inputs: tuple[Column, ...]

    @property
    def target(self) -> Category | Number:
        """The first target, usually the only one."""
        return self.targets[0]

    @property
    def target_names(self) -> list[str]:
        return [one.name for one in self.targets]

    @property
    def is_classification(self) -> bool:
        return isinstance(self.target, Category)

    @property
    def width(self) -> int:
        """How many inputs a network has."""
        return sum(column.width for column in self.inputs)

    @property
    def outputs(self) -> int:
        """How many outputs: one for each target, or for each class of a category."""
        return len(self.target.levels) or len(self.targets)

    @property
    def loss(self) -> str:
        return "cross_entropy" if self.is_classification else "mse"

    def encode_inputs(self, table: Table) -> Tensor:
        """[rows, width] float32"""
        parts = [one.encode(table) for one in self.inputs]
        return torch.from_numpy(np.concatenate(parts, 1)).float()

    def encode_targets(self, table: Table) -> tuple[Tensor, Tensor]:
        """Targets, [rows, targets] standardised or [rows] class numbers, and [rows] bool: True where all are there."""
        if isinstance(self.target, Category):
            classes = self.target.numbers(table)
            _check_classes(table, self.target, classes)
            labels = torch.from_numpy(classes)
            return labels.clamp(min=0), labels >= 0
        values = np.stack([one.standardise(table) for one in self.targets if isinstance(one, Number)], 1)
        targets = torch.from_numpy(values).float()
        known = ~targets.isnan().any(1)
        return targets.where(known[:, None], 0.0), known

    def unknown(self, table: Table) -> dict[str, int]:
        """Input → in how many rows it has a category that training never saw, where there are any."""
        categories = [one for one in self.inputs if isinstance(one, Category)]
        counts = {one.name: int((one.numbers(table) == -2).sum()) for one in categories}
        return {name: count for name, count in counts.items() if count}

    def filled(self, table: Table) -> dict[str, int]:
        """Input → in how many rows it has no value, though it always had one in training, where there are any."""
        counts = {one.name: one.without_value(table) for one in self.inputs}
        return {name: count for name, count in counts.items() if count}

    def empty_targets(self, points: int) -> Tensor:
        """Targets [1, points, ...] of a task, as placeholders for missing ones."""
        return (
            torch.zeros(1, points, dtype=torch.long) if self.is_classification else torch.zeros(1, points, self.outputs)
        )

    def decode(self, predictions: Tensor) -> dict[str, list[Any]]:
        """Target → predictions [rows, outputs] in its own unit, or its classes."""
        if isinstance(self.target, Category):
            return {self.target.name: [self.target.levels[i] for i in predictions.argmax(1).tolist()]}
        numbers = (one for one in self.targets if isinstance(one, Number))
        own = [(one, predictions[:, i].double() * one.scale + one.mean) for i, one in enumerate(numbers)]
        return {one.name: values.tolist() for one, values in own}

    def as_json(self) -> dict[str, Any]:
        """JSON values, for `from_json`."""
        return {
            "task": self.task,
            "targets": [column_as_json(one) for one in self.targets],
            "inputs": [column_as_json(one) for one in self.inputs],
        }

    @classmethod
    def from_json(cls, value: Any) -> "Encoding":
        """What `as_json` returned, here or in cavia 0.1; anything else is an error."""
        if not isinstance(value, Mapping) or not isinstance(value.get("task"), str):
            raise CaviaError(f"it names no task column: {shown(value)}")
        lists = {"targets": value.get("targets", [value.get("target")]), "inputs": value.get("inputs")}
        for name, entries in lists.items():
            if not isinstance(entries, list) or not entries:
                raise CaviaError(f"it has no list of {name}: {shown(entries)}")
        targets, inputs = (tuple(column_from_json(entry) for entry in entries) for entries in lists.values())
        names = [value["task"], *(one.name for one in (*targets, *inputs))]
        if len(set(names)) < len(names):
            raise CaviaError(f"it names a column twice: {shown(names)}")
        return cls(value["task"], _checked_targets(targets), inputs)


def fit_encoding(
    table: Table, task: str, target: Any, inputs: Any = None, settled: Mapping[str, str] | None = None, rows: Any = None
) -> Encoding:
    """The encoding fitted to the training rows; all rows decide the types.

    target:  the column to predict, or a list of columns.
    inputs:  the columns that the network sees, by default all but task and targets.
    settled: column → type, for columns whose type is given.
    rows:    [rows] bool, the rows of training tasks; by default all.
    """
    targets = listed_columns("target", target)
    chosen = [name for name in table if name not in (task, *targets)]
    chosen = chosen if inputs is None else listed_columns("inputs", inputs)
    for use, names in (("", [task]), ("target", targets), ("inputs", chosen)):
        for name in names:
            table.column(name, use)
    if not targets or task in targets:
        raise CaviaError(f"target must be one or more columns besides the task {task!r}, got {target!r}")
    if inputs is not None and not chosen:
        raise CaviaError(f"inputs must name at least one column, got {shown(inputs)}")
    if not chosen:
        known = ", ".join(map(repr, (task, *targets)))
        raise CaviaError(f"the table has no columns besides {known}: a network needs at least one input")
    for name in chosen:
        if name in (task, *targets):
            raise CaviaError(f"column {name!r} cannot be an input: it is the {'task' if name == task else 'target'}")
    settled = settled or {}
    unused = [name for name in settled if name not in (*targets, *chosen)]
    if unused:
        raise CaviaError(f"column {unused[0]!r} has no type to settle: it is neither an input nor a target")
    rows = np.ones(table.rows, dtype=bool) if rows is None else rows
    seen = tuple(TYPES[settled.get(name) or decide(table, name)].fit(table, name, rows) for name in chosen)
    kinds = {name: settled.get(name) or _decide_target(table, name) for name in targets}
    asked = tuple(TYPES[kind].fit(table, name, rows, is_target=True) for name, kind in kinds.items())
    return Encoding(task, _checked_targets(asked), seen)


def _decide_target(table: Table, name: str) -> str:
    """As for an input, except that 0 and 1 are two classes."""
    kind = decide(table, name)
    return CATEGORY if kind == NUMBER and is_two_valued(table, name) else kind


def _checked_targets(targets: tuple[Column, ...]) -> tuple[Category] | tuple[Number, ...]:
    first = targets[0]
    if len(targets) == 1 and isinstance(first, Category):
        return (first,)
    numbers = tuple(one for one in targets if isinstance(one, Number))
    if len(numbers) < len(targets):
        other = next(one for one in targets if not isinstance(one, Number))
        number = f", or as a number with number=[{other.name!r}]" if set(other.levels) == {"0", "1"} else ""
        raise CaviaError(f"several targets must all be numbers, {other.name!r} holds classes; fit it alone{number}")
    return numbers


def _check_classes(table: Table, target: Category, classes: np.ndarray) -> None:
    unknown = np.flatnonzero(classes == -2)
    if len(unknown):
        row = int(unknown[0])
        raise CaviaError(
            f"{table.cell(row, target.name)} is not a class of the training tasks: "
            f"{', '.join(map(shown_cell, target.levels[:10]))}"
        )

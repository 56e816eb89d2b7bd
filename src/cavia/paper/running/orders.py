"""Orders: what to run and where, and which of their cells are finished."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError, shown
from cavia.machine import cores
from cavia.paper.catalogue import find
from cavia.paper.checking import first_problem, read_value
from cavia.paper.experiment import Cell, Data
from cavia.paper.schema import CellResult

MOST_CELLS = 10_000  # of an experiment


@dataclass(frozen=True)
class Order:
    """What to run, and where.

    set:       name of the experiment's set of settings.
    remeasure: measure finished cells again; nothing is trained again.
    ranks:     processes per cell.
    """

    experiment: str
    set: str
    out: Path
    changes: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1
    device: str = "cpu"
    data: Data = field(default_factory=Data)
    jobs: int = field(default_factory=cores)
    remeasure: bool = False
    ranks: int = 1

    @property
    def settings(self) -> Any:
        """The experiment's settings, with the changes applied."""
        return find(self.experiment).settings(self.set, self.changes)

    @property
    def command(self) -> str:
        """The command line that gives this order."""
        parts = ["cavia run", self.experiment, f"--{self.set}"]
        parts += [f"--seeds {self.seeds}"] if self.seeds != 1 else []
        parts += [f"--ranks {self.ranks}"] if self.ranks != 1 else []
        parts += [f"--device {self.device}"] if self.device != "cpu" else []
        parts += ["--data synthetic"] if self.data.synthetic else []
        for name, value in self.changes.items():
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            parts.append(f"--set {shlex.quote(f'{name}={text}')}")
        return " ".join(parts)

    @property
    def cells(self) -> list[Cell]:
        """All cells of the experiment, without duplicates; raises if there are implausibly many."""
        experiment, settings = find(self.experiment), self.settings
        count = self.seeds * math.prod(map(len, experiment.lists(settings).values()))
        if count > MOST_CELLS:
            hours = min(count, 10**30) * settings.iterations * experiment.seconds(self.set) / 3600
            raise CaviaError(
                f"{self.experiment} must have at most {MOST_CELLS:,} cells, has {shown(count)} with {self.seeds} "
                f"seeds, which would take some {hours:.1g} core-hours; choose fewer seeds or values"
            )
        return list({cell.name: cell for cell in experiment.cells(settings, self.seeds)}.values())

    def folder(self, cell: Cell) -> Path:
        """The folder of a cell."""
        return self.out / "cells" / cell.name


def read_result(order: Order, cell: Cell) -> CellResult | None:
    """The cell's result, if it was trained and measured as the order says."""
    path = order.folder(cell) / "result.json"
    values = read_value(path) if path.exists() else None
    result = CellResult.of(values)
    if result is None:
        return None
    problem = first_problem(values, CellResult)
    if not problem and result.choices != cell.choices:
        problem = f"choices must be {dict(cell.choices)}, got {shown(result.choices)}"
    if problem:
        raise CaviaError(f"{path} is not the result of this cell: {problem}; delete it to have the cell measured again")
    return result if result.settings == find(order.experiment).of_a_cell(order.settings) else None

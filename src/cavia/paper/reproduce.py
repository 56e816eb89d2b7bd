"""The whole paper by one command: works through a plan, says what is left, publishes what is finished."""

import json
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError, closest
from cavia.machine import cores
from cavia.paper.catalogue import find
from cavia.paper.experiment import Cell, Data
from cavia.paper.plan import Entry, merged
from cavia.paper.report.page import write_report
from cavia.paper.running.cells import Order, read_result, run_cells
from cavia.paper.running.display import Display
from cavia.paper.running.runner import sum_up
from cavia.paper.schema import CellResult, Result
from cavia.tensor_file import read_json, write_json

PUBLISHED = ("config.json", "metrics.jsonl", "model.cavia", "result.json")  # of each cell


@dataclass(frozen=True)
class Reproduction:
    """A plan at work.

    runs: the folder that everything is trained under.
    """

    entries: Sequence[Entry]
    runs: Path
    data: Data
    device: str = "cpu"
    jobs: int = 0
    remeasure: bool = False

    def only(self, names: Sequence[str]) -> "Reproduction":
        """The part of the plan that is of these experiments."""
        known = {entry.experiment for entry in self.entries}
        for name in names:
            if name not in known:
                raise CaviaError(f"the plan has no experiment {name!r}; {closest(name, known)}")
        return replace(self, entries=[entry for entry in self.entries if entry.experiment in names])

    def orders(self) -> list[Order]:
        return [entry.order(self.runs, self.data, self.device, self.remeasure) for entry in self.entries]

    def work(self) -> Iterator[tuple[Order, Cell]]:
        """The cells that are not finished, in the order of the plan, each once."""
        seen = set()
        for order in self.orders():
            for cell in order.cells:
                place = order.folder(cell)
                if place not in seen and (self.remeasure or read_result(order, cell) is None):
                    seen.add(place)
                    yield order, cell

    def run(self, hours: float = math.inf) -> bool:
        """Train and measure what is not finished, for so many hours at most; returns whether all is finished.

        Results of experiments are written as soon as all their cells are there.
        """
        until = time.monotonic() + 3600 * hours
        for order in self.orders():  # raises before anything runs if data are missing
            find(order.experiment).tasks(order.settings, order.cells[0], self.data)
        work, total = list(self.work()), len({order.folder(cell) for order in self.orders() for cell in order.cells})
        with Display("reproduce", total=total, finished=total - len(work)) as display:
            run_cells(work, self.jobs or cores(), display, until)
        for result, out in self.results():
            write_json(out / "result.json", result)
        return not list(replace(self, remeasure=False).work())

    def results(self) -> Iterator[tuple[Result, Path]]:
        """What every experiment and set shows of which all planned cells are finished, and its folder."""
        groups: dict[Path, list[tuple[Entry, Order]]] = {}
        for entry, order in zip(self.entries, self.orders(), strict=True):
            groups.setdefault(order.out, []).append((entry, order))
        for out, group in groups.items():
            of_cells: dict[str, CellResult | None] = {
                cell.name: read_result(order, cell) for _, order in group for cell in order.cells
            }
            results = [one for one in of_cells.values() if one]
            if len(results) == len(of_cells):
                first = replace(group[0][1], changes={})
                seeds = max(entry.seeds for entry, _ in group)
                settings = merged([entry for entry, _ in group])
                result = sum_up(replace(first, seeds=seeds), find(first.experiment), settings, results)
                result["command"] = f"cavia reproduce --only {first.experiment}"
                yield result, out

    def status(self) -> list["Status"]:
        """How far every entry of the plan is."""
        return [_status(entry, order) for entry, order in zip(self.entries, self.orders(), strict=True)]

    def publish(self, results: Path) -> list[str]:
        """Copy the finished experiments with their cells into `results`, one folder each, and draw its page.

        Of several sets of one experiment, the first of the plan is its result; the others stand beside it.
        Returns the names of the experiments.
        """
        published: dict[str, Result] = {}
        for result, out in self.results():
            first = published.setdefault(result["experiment"], result)
            if first is not result:
                first.setdefault("others", []).append(result)
            target = results / result["experiment"]
            if first is result:
                shutil.rmtree(target, ignore_errors=True)
            _copy_cells(out, target / result["budget"])
        for name, result in published.items():
            write_json(results / name / "result.json", result)
        if published:
            write_report([results], results)
        return list(published)


@dataclass(frozen=True)
class Status:
    """How far an entry is: cells that are finished, hours of computing spent, and left by what is known so far."""

    entry: Entry
    finished: int
    cells: int
    hours: float
    left: float


def _status(entry: Entry, order: Order) -> Status:
    cells = order.cells
    experiment = find(entry.experiment)
    guess = 60 * experiment.minutes[entry.set] * cores() / max(len(experiment.cells(experiment.sets[entry.set], 1)), 1)
    spent, left, finished = 0.0, 0.0, 0
    for cell in cells:
        if result := read_result(order, cell):
            finished += 1
            spent += result.seconds
            continue
        seconds, iteration = _progress(order.folder(cell))
        spent += seconds
        each = seconds / iteration if iteration else guess / experiment.sets[entry.set].iterations
        left += each * max(order.settings.iterations - iteration, 0)
    return Status(entry, finished, len(cells), spent / 3600, left / 3600)


def _progress(folder: Path) -> tuple[float, int]:
    """Seconds and iterations that a cell was trained for so far."""
    try:
        last: Any = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
        return float(last["seconds"]), int(last["iteration"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return 0.0, 0


def _copy_cells(out: Path, target: Path) -> None:
    """Config, metrics, model and result of every finished cell."""
    for cell in sorted((out / "cells").iterdir()):
        if CellResult.of(read_json(cell / "result.json") if (cell / "result.json").exists() else None):
            (target / "cells" / cell.name).mkdir(parents=True, exist_ok=True)
            for name in PUBLISHED:
                if (cell / name).exists():
                    shutil.copy(cell / name, target / "cells" / cell.name / name)

"""The whole paper in one command: works through a plan, reports what is left, publishes what is finished."""

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError, closest
from cavia.json_text import parse
from cavia.paper.catalogue import find
from cavia.paper.experiment import NotTrained
from cavia.paper.plan import merged
from cavia.paper.report.page import write_report
from cavia.paper.running.cells import run_cells
from cavia.paper.running.display import Display
from cavia.paper.running.local import LocalWorkers
from cavia.paper.running.orders import Order, read_result
from cavia.paper.running.runner import sum_up
from cavia.paper.running.workers import Workers
from cavia.paper.schema import CellResult, Result
from cavia.temporaries import temporary
from cavia.tensor_file import read_json, read_text, write_json

MOST = 10**12  # seconds or iterations of a cell: larger values are damaged files
PUBLISHED = ("config.json", "metrics.jsonl", "model.cavia", "before-cooldown.safetensors")  # besides a cell's result
BEGUN = ("config.json", "metrics.jsonl", "checkpoint.safetensors", "before-cooldown.safetensors")  # of unfinished cells
UNFINISHED = "unfinished"  # the folder of these, in that of the published results
DIGITS = 7  # of a published score: what a float32 holds


@dataclass(frozen=True)
class Reproduction:
    """The execution of a plan."""

    orders: Sequence[Order]
    jobs: int

    def only(self, names: Sequence[str]) -> "Reproduction":
        """The part of the plan with these experiments."""
        known = {order.experiment for order in self.orders}
        for name in names:
            if name not in known:
                raise CaviaError(f"--only: the plan has no experiment {name!r}; {closest(name, known)}")
        return replace(self, orders=[order for order in self.orders if order.experiment in names])

    def begin_from(self, results: Path) -> int:
        """Copy the published cells of the plan that are not here yet, finished and unfinished; returns their number.

        Finished cells are not trained again; unfinished ones, and those whose budget grew, go on.
        """
        copied = 0
        for order in self.orders:
            for cell in order.cells:
                begun = _unfinished(results, order) / cell.name  # further than a published one, if there are both
                source = begun if begun.exists() else results / order.experiment / order.set / "cells" / cell.name
                mine = order.folder(cell)
                if source.exists() and not mine.exists():
                    mine.parent.mkdir(parents=True, exist_ok=True)
                    with temporary(mine, folder=True) as copy:
                        shutil.copytree(source, copy, dirs_exist_ok=True)
                        copy.rename(mine)
                    copied += 1
        return copied

    def run(self, hours: float = math.inf, where: Workers | None = None) -> bool:
        """Train and measure what is not finished, for at most `hours`; returns whether everything is finished.

        where: the workers, by default `jobs` processes on this machine.

        An experiment's result is written as soon as all of its cells are finished.
        """
        until = time.monotonic() + 3600 * hours
        for order in self.orders:  # raises before anything runs if data are missing
            with suppress(NotTrained):  # the plan may train it first
                find(order.experiment).tasks(order.settings, order.cells[0], order.data)
        cells = {order.folder(cell): (order, cell) for order in self.orders for cell in order.cells}.values()
        work = [(order, cell) for order, cell in cells if order.remeasure or read_result(order, cell) is None]
        with Display("reproduce", total=len(cells), finished=len(cells) - len(work)) as display:
            run_cells(work, where or LocalWorkers(self.jobs), display, until)
        for result, out in self.results():
            write_json(out / "result.json", result)
        return all(read_result(order, cell) for order, cell in cells)

    def results(self) -> Iterator[tuple[Result, Path]]:
        """The result and folder of every experiment and set, from those of its orders whose cells are all finished."""
        for out in dict.fromkeys(order.out for order in self.orders):
            of_orders = [(order, _finished(order)) for order in self.orders if order.out == out]
            orders = [order for order, cells in of_orders if cells]
            if orders:
                of_cells = {name: one for _, cells in of_orders for name, one in (cells or {}).items()}
                whole = replace(orders[0], changes={}, seeds=max(order.seeds for order in orders))
                result = sum_up(whole, merged(orders), list(of_cells.values()))
                result["command"] = f"cavia reproduce --only {whole.experiment}"
                yield result, out

    def publish(self, results: Path) -> list[str]:
        """Copy the finished experiments with their cells into `results`, one folder each, and write the report there.

        If an experiment has several sets, the plan's first is its result; the others are shown beside it.
        The other cells are copied to a place of their own, so that `begin_from` can go on elsewhere: checkpoints of
        unfinished cells, and finished cells of experiments that are not finished.
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
        for order in self.orders:
            for cell in order.cells:
                here, target = order.folder(cell), _unfinished(results, order) / cell.name
                if here.exists():
                    shutil.rmtree(target, ignore_errors=True)
                if read_result(order, cell) is None:
                    _copy_begun(here, target)
                elif not (results / order.experiment / order.set / "cells" / cell.name).exists():
                    _copy_finished(here, target)
        for name, result in published.items():
            write_json(results / name / "result.json", result)
        if published:
            write_report([results], results)
        return list(published)


@dataclass(frozen=True)
class Status:
    """The progress of an order: finished cells, hours of training spent, and an estimate of those left."""

    order: Order
    finished: int
    cells: int
    hours: float
    left: float


def status(order: Order) -> Status:
    cells = order.cells
    spent, left, finished = 0.0, 0.0, 0
    for cell in cells:
        if result := read_result(order, cell):
            finished += 1
            spent += result.seconds
            continue
        seconds, iteration = _progress(order.folder(cell))
        spent += seconds
        each = seconds / iteration if iteration else find(order.experiment).seconds(order.set)
        limit = 60 * order.settings.minutes - seconds if order.settings.minutes else math.inf
        left += max(min(each * (order.settings.iterations - iteration), limit), 0)
    return Status(order, finished, len(cells), spent / 3600, left / 3600)


def _finished(order: Order) -> dict[str, CellResult] | None:
    """The results of the order's cells by name; None if a cell is not finished."""
    results = {cell.name: read_result(order, cell) for cell in order.cells}
    finished = {name: one for name, one in results.items() if one}
    return finished if len(finished) == len(results) else None


def _unfinished(results: Path, order: Order) -> Path:
    """Where an order's unfinished cells are published."""
    return results / UNFINISHED / order.experiment / order.set / "cells"


def _progress(folder: Path) -> tuple[float, int]:
    """How long a cell has been trained so far, in seconds and iterations."""
    try:
        last: Any = parse(read_text(folder / "metrics.jsonl").splitlines()[-1], folder)
        seconds, iteration = float(last["seconds"]), int(last["iteration"])
        return (seconds, iteration) if 0 <= seconds < MOST and 0 <= iteration < MOST else (0.0, 0)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError):
        return 0.0, 0


def _copy_cells(out: Path, target: Path) -> None:
    """Copy every finished cell."""
    for cell in sorted((out / "cells").iterdir()):
        _copy_finished(cell, target / "cells" / cell.name)


def _copy_finished(cell: Path, target: Path) -> None:
    """Copy configuration, metrics, model and result of a cell that has a result."""
    values = read_json(cell / "result.json") if (cell / "result.json").exists() else None
    if result := CellResult.of(values):
        rounded = {name: [_rounded(step) for step in steps] for name, steps in result.scores.items()}
        target.mkdir(parents=True, exist_ok=True)
        write_json(target / "result.json", replace(result, scores=rounded).as_json())
        _copy(PUBLISHED, cell, target)


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.{DIGITS}g}") for value in values]


def _copy_begun(cell: Path, target: Path) -> None:
    """Copy the checkpoints of an unfinished cell, of its earlier stages, too, which its last one begins from."""
    for part in (cell, *cell.glob("stage-*")):
        if (part / "checkpoint.safetensors").exists():
            place = target / part.relative_to(cell)
            place.mkdir(parents=True)
            _copy(BEGUN, part, place)


def _copy(names: Sequence[str], source: Path, target: Path) -> None:
    for name in names:
        if (source / name).exists():
            shutil.copy(source / name, target / name)

"""The cells of an experiment, spread over the cores, one process each.

A cell that dies takes nothing with it, and its memory is returned.
"""

import math
import os
import shlex
import signal
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch

from cavia.errors import Busy, CaviaError, Diverged, Interrupted, shown
from cavia.machine import cores, require_memory
from cavia.paper.catalogue import find
from cavia.paper.checking import first_problem, read_value
from cavia.paper.experiment import Cell, Data, Place
from cavia.paper.running.display import Display
from cavia.paper.running.processes import start_process
from cavia.paper.schema import CellResult
from cavia.paper.training import run_cell
from cavia.tensor_file import write_json
from cavia.training.interrupt import stop_requests
from cavia.training.progress import Progress

INTERRUPTED = 130  # exit code of a worker that was asked to stop
MOST_CELLS = 10_000  # of an experiment
MEMORY = 2**28  # bytes that a process takes, about, before it trains
PATIENCE = 5.0  # seconds between looks at a cell that another process works on


@dataclass(frozen=True)
class Order:
    """What to run, and where.

    set:       of the experiment's settings.
    remeasure: measure again what is measured already; nothing is trained again.
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

    @property
    def settings(self) -> Any:
        """The experiment's settings, with the changes."""
        return find(self.experiment).settings(self.set, self.changes)

    @property
    def command(self) -> str:
        """The command line that gives this order."""
        parts = ["cavia run", self.experiment, f"--{self.set}"]
        parts += [f"--seeds {self.seeds}"] if self.seeds != 1 else []
        parts += [f"--device {self.device}"] if self.device != "cpu" else []
        parts += ["--data synthetic"] if self.data.synthetic else []
        for name, value in self.changes.items():
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            parts.append(f"--set {shlex.quote(f'{name}={text}')}")
        return " ".join(parts)

    @property
    def cells(self) -> list[Cell]:
        """All cells of the experiment, none twice; raises if they are too many to be meant."""
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
        """Where a cell trains."""
        return self.out / "cells" / cell.name


def read_result(order: Order, cell: Cell) -> CellResult | None:
    """The cell's result, if it is trained and measured as the order says."""
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


@dataclass
class _Worker:
    order: Order
    cell: Cell
    process: Any
    messages: Any
    failure: CaviaError | None = None  # what it says before it gives up

    @property
    def name(self) -> str:
        return f"{self.order.experiment}/{self.cell.name}"


def run_cells(cells: Sequence[tuple[Order, Cell]], jobs: int, display: Display, until: float = math.inf) -> None:
    """Keep `jobs` workers busy until all cells are finished; a cell of another process is waited for.

    until: the moment, by time.monotonic(), at which all are asked to write their checkpoints and stop.
    """
    require_memory(jobs * MEMORY, f"{shown(jobs)} cells at a time (--jobs)")
    waiting = [(0.0, order, cell) for order, cell in cells]  # when to look at each
    workers: list[_Worker] = []
    with stop_requests() as stop:
        try:
            while waiting or workers:
                for entry in [one for one in waiting if one[0] <= time.monotonic()][: jobs - len(workers)]:
                    waiting.remove(entry)
                    workers.append(_start(*entry[1:], max(1, cores() // jobs)))
                _listen(workers, display)
                if stop.made:
                    display.say("stopping; every cell writes a checkpoint first (Ctrl-C again: at once)")
                    raise Interrupted(_GO_ON)
                if time.monotonic() >= until:
                    return
                for worker in [worker for worker in workers if not worker.process.is_alive()]:
                    workers.remove(worker)
                    _drain(worker, display)
                    worker.process.join()
                    if isinstance(worker.failure, Busy):
                        waiting.append((time.monotonic() + PATIENCE, worker.order, worker.cell))
                    else:
                        display.finished(worker.name, _result(worker))
        finally:
            _stop(workers)


_GO_ON = "stopped; finished cells are kept, run the same command again to go on"


def _start(order: Order, cell: Cell, threads: int) -> _Worker:
    process, receive = start_process(_work, order, cell, threads)
    return _Worker(order, cell, process, receive)


def _listen(workers: list[_Worker], display: Display) -> None:
    """Wait for news of any worker, and show it."""
    if not workers:
        time.sleep(0.1)
    connection.wait([worker.messages for worker in workers] + [w.process.sentinel for w in workers], timeout=0.5)
    for worker in workers:
        _drain(worker, display)


def _drain(worker: _Worker, display: Display) -> None:
    try:
        while worker.messages.poll():
            message = worker.messages.recv()
            if isinstance(message, Progress):
                display.progress(worker.name, message)
            elif isinstance(message, CaviaError):
                worker.failure = message
            else:
                display.say(f"{worker.name}: {message}")
    except EOFError:
        return


def _result(worker: _Worker) -> CellResult:
    """What the worker found; raises if it ended without a result."""
    if worker.process.exitcode == INTERRUPTED:
        raise Interrupted(_GO_ON)
    if worker.failure:
        raise CaviaError(f"{worker.name}: {worker.failure}")
    result = read_result(worker.order, worker.cell)
    if result is None:
        raise CaviaError(
            f"{worker.name}: its process ended with code {worker.process.exitcode} before it was finished "
            "(killed, or out of memory?); run the same command again to go on"
        )
    return result


def _stop(workers: list[_Worker]) -> None:
    """Ask every worker to write its checkpoint and end, and wait for it; a second Ctrl-C ends them at once."""
    for worker in workers:
        worker.process.terminate()
    try:
        for worker in workers:
            worker.process.join()
    finally:
        for worker in workers:
            worker.process.kill()


def _work(order: Order, cell: Cell, threads: int, messages: Any) -> None:
    """Train one cell, in a process of its own."""

    def send(message: Progress | CaviaError | str) -> None:
        try:
            messages.send(message)
        except OSError:  # the runner is gone: stop as if asked to
            os.kill(os.getpid(), signal.SIGTERM)

    torch.set_num_threads(threads)
    experiment, settings, folder = find(order.experiment), order.settings, order.folder(cell)
    try:
        result = read_result(order, cell)
        if result and (result.diverged or not order.remeasure):
            return  # another process was faster, or there is nothing to measure
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message="the meta-step could not be compiled")
            warnings.showwarning = lambda message, *_, **__: send(str(message))
            result = run_cell(experiment, settings, cell, Place(folder, order.device, send, order.data))
        write_json(folder / "result.json", result.as_json())
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except (CaviaError, Diverged, OSError, RuntimeError, MemoryError, OverflowError) as error:
        what = (str(error).strip() or type(error).__name__).splitlines()[0]
        send(Busy(what) if isinstance(error, Busy) else CaviaError(what))
        raise SystemExit(2) from None

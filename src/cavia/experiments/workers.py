"""The cells of an experiment, spread over the cores, one process each.

A cell that dies takes nothing with it, and its memory is returned.
"""

import os
import shlex
import signal
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch

from cavia.envs.simulator import cores
from cavia.errors import CaviaError, Diverged, Interrupted
from cavia.experiments.base import Cell, Data, Place
from cavia.experiments.catalogue import find
from cavia.experiments.display import Display
from cavia.experiments.processes import start_process
from cavia.tensor_file import read_json, write_json
from cavia.training.interrupt import stop_requests
from cavia.training.progress import Progress

INTERRUPTED = 130  # exit code of a worker that was asked to stop


@dataclass(frozen=True)
class Order:
    """What to run, and where."""

    experiment: str
    budget: str
    out: Path
    changes: Sequence[str] = ()
    seeds: int = 1
    device: str = "cpu"
    data: Data = field(default_factory=Data)
    jobs: int = field(default_factory=cores)

    @property
    def command(self) -> str:
        """The command line that gives this order."""
        parts = ["cavia run", self.experiment, f"--{self.budget}"]
        parts += [f"--seeds {self.seeds}"] if self.seeds != 1 else []
        parts += [f"--device {self.device}"] if self.device != "cpu" else []
        parts += ["--data synthetic"] if self.data.synthetic else []
        parts += [f"--set {shlex.quote(change)}" for change in self.changes]
        return " ".join(parts)


def finished(out: Path, cell: Cell) -> bool:
    """Whether the cell has a result."""
    return result_path(out, cell).exists()


def cell_folder(out: Path, cell: Cell) -> Path:
    """Where a cell of the experiment in `out` trains."""
    return out / "cells" / cell.name


def result_path(out: Path, cell: Cell) -> Path:
    """The file with a cell's result."""
    return cell_folder(out, cell) / "result.json"


@dataclass(frozen=True)
class _Failure:
    """What a worker says before it gives up."""

    message: str


@dataclass
class _Worker:
    cell: Cell
    process: Any
    messages: Any
    failure: _Failure | None = None


def run_cells(order: Order, cells: list[Cell], display: Display) -> None:
    """Keep `jobs` workers busy until all cells are finished."""
    waiting = list(cells)
    workers: list[_Worker] = []
    with stop_requests() as stop:
        try:
            while waiting or workers:
                while waiting and len(workers) < order.jobs:
                    workers.append(_start(order, waiting.pop(0)))
                _listen(workers, display)
                if stop.made:
                    display.say("stopping; every cell writes a checkpoint first (Ctrl-C again: at once)")
                    raise Interrupted(_GO_ON)
                for worker in [worker for worker in workers if not worker.process.is_alive()]:
                    workers.remove(worker)
                    _drain(worker, display)
                    _check(order, worker)
                    display.finished(worker.cell.name, read_json(result_path(order.out, worker.cell)))
        finally:
            _stop(workers)


_GO_ON = "stopped; finished cells are kept, run the same command again to go on"


def _start(order: Order, cell: Cell) -> _Worker:
    threads = max(1, cores() // order.jobs)
    process, receive = start_process(_work, order, cell, threads)
    return _Worker(cell, process, receive)


def _listen(workers: list[_Worker], display: Display) -> None:
    """Wait for news of any worker, and show it."""
    connection.wait([worker.messages for worker in workers] + [w.process.sentinel for w in workers], timeout=0.5)
    for worker in workers:
        _drain(worker, display)


def _drain(worker: _Worker, display: Display) -> None:
    try:
        while worker.messages.poll():
            message = worker.messages.recv()
            if isinstance(message, Progress):
                display.progress(worker.cell.name, message)
            elif isinstance(message, _Failure):
                worker.failure = message
            else:
                display.say(f"{worker.cell.name}: {message}")
    except EOFError:
        return


def _check(order: Order, worker: _Worker) -> None:
    """Raise if the worker ended without a result."""
    worker.process.join()
    if worker.process.exitcode == INTERRUPTED:
        raise Interrupted(_GO_ON)
    if worker.failure:
        raise CaviaError(f"{worker.cell.name}: {worker.failure.message}")
    if not finished(order.out, worker.cell):
        raise CaviaError(
            f"{worker.cell.name}: its process ended with code {worker.process.exitcode} before it was finished "
            "(killed, or out of memory?); run the same command again to go on"
        )


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

    def send(message: Progress | _Failure | str) -> None:
        try:
            messages.send(message)
        except OSError:  # the runner is gone: stop as if asked to
            os.kill(os.getpid(), signal.SIGTERM)

    torch.set_num_threads(threads)
    experiment = find(order.experiment)
    settings = experiment.settings(order.budget, order.changes)
    folder = cell_folder(order.out, cell)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message="the meta-step could not be compiled")
            warnings.showwarning = lambda message, *_, **__: send(str(message))
            result = experiment.train(cell, settings, Place(folder, order.device, send, order.data))
        write_json(folder / "result.json", {**cell.choices, **result})
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except (CaviaError, Diverged, OSError, RuntimeError) as error:
        send(_Failure((str(error).strip() or type(error).__name__).splitlines()[0]))
        raise SystemExit(2) from None

"""Runs an experiment: its cells spread over the cores, each in a folder of its own, finished ones skipped."""

import json
import os
import platform
import shutil
import signal
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import torch

from cavia.errors import CaviaError, Diverged, Interrupted
from cavia.experiments.base import Cell, Data, Experiment, Place, Result, Settings, as_json
from cavia.experiments.catalogue import find
from cavia.experiments.display import Display
from cavia.tensor_file import read_json, write_json
from cavia.training.checkpoint import RunFolder
from cavia.training.interrupt import stop_requests
from cavia.training.progress import Progress

FORMAT = 1
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
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    @property
    def command(self) -> str:
        """The command line that gives this order."""
        parts = ["cavia run", self.experiment, f"--{self.budget}"]
        parts += [f"--seeds {self.seeds}"] if self.seeds != 1 else []
        parts += [f"--device {self.device}"] if self.device != "cpu" else []
        parts += ["--data synthetic"] if self.data.synthetic else []
        parts += [f"--set {change}" for change in self.changes]
        return " ".join(parts)


def run(order: Order) -> Result:
    """Train and measure what is not finished yet; write and return the experiment's result."""
    experiment = find(order.experiment)
    settings = experiment.settings(order.budget, order.changes)
    cells = experiment.cells(settings, order.seeds)
    if experiment.find_data:
        experiment.find_data(order.data)
    config = {"experiment": order.experiment, "budget": order.budget, "settings": as_json(settings)}
    config |= {"data": "synthetic"} if order.data.synthetic else {}
    folder = RunFolder(order.out)
    with folder.lock():
        folder.claim(config)
        open_cells = [cell for cell in cells if not finished(order.out, cell)]
        for cell in open_cells:
            _adopt(order.out, config, cell)
        with Display(experiment.id, total=len(cells), finished=len(cells) - len(open_cells)) as display:
            _run_cells(order, open_cells, display)
        results = [read_json(_result_path(order.out, cell)) for cell in cells]
        result = _summary(order, experiment, settings, results)
        write_json(order.out / "result.json", result)
    return result


def finished(out: Path, cell: Cell) -> bool:
    """Whether the cell has a result."""
    return _result_path(out, cell).exists()


def cell_folder(out: Path, cell: Cell) -> Path:
    """Where a cell of the experiment in `out` trains."""
    return out / "cells" / cell.name


def _result_path(out: Path, cell: Cell) -> Path:
    return cell_folder(out, cell) / "result.json"


def _adopt(out: Path, config: dict[str, Any], cell: Cell) -> None:
    """Take over the training of a cell of the same name from an experiment beside this one, if it trained the same.

    It did if all settings that both experiments have are equal. What the cell is measured for may differ, so only
    the training is taken, and `fit` finds it finished.
    """
    mine = cell_folder(out, cell)
    for theirs in sorted(out.parent.glob(f"*/cells/{cell.name}")):
        other = theirs.parents[1]
        if mine.exists() or other == out or not (theirs / "model.cavia").exists():
            continue
        known = read_json(other / "config.json")
        settings, known_settings = json.loads(json.dumps(config["settings"])), known["settings"]
        common = settings.keys() & known_settings.keys()
        if config.get("data") == known.get("data") and all(settings[key] == known_settings[key] for key in common):
            mine.mkdir(parents=True)
            for name in ("config.json", "metrics.jsonl", "checkpoint.safetensors"):
                shutil.copy(theirs / name, mine / name)


def _summary(order: Order, experiment: Experiment, settings: Settings, results: list[Result]) -> Result:
    from cavia import __version__

    # Long values (contexts of all tasks, pictures) stay in the cells' own files; the summary has what is shown of them.
    small = [{key: value for key, value in result.items() if len(json.dumps(value)) < 400} for result in results]
    return {
        "format": FORMAT,
        "experiment": experiment.id,
        "title": experiment.title + (" (synthetic data)" if order.data.synthetic else ""),
        "reproduces": experiment.reproduces,
        "budget": order.budget,
        "command": order.command,
        "settings": as_json(settings),
        "seeds": order.seeds,
        "version": __version__,
        "machine": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cpus": len(os.sched_getaffinity(0)),
            "device": order.device,
        },
        "seconds": round(sum(result.get("seconds", 0.0) for result in results), 1),
        "finished": time.strftime("%Y-%m-%d"),
        **experiment.summarise(settings, results),
        "cells": small,
    }


# One process per cell: a cell that dies takes nothing with it, and memory is returned.


@dataclass
class _Worker:
    cell: Cell
    process: Any
    messages: Any


def _run_cells(order: Order, cells: list[Cell], display: Display) -> None:
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
                    display.say("stopping; every cell writes a checkpoint first")
                    raise Interrupted("stopped; finished cells are kept, run the same command again to go on")
                for worker in [worker for worker in workers if not worker.process.is_alive()]:
                    workers.remove(worker)
                    _drain(worker, display)
                    _check(order, worker)
                    display.finished(worker.cell.name, read_json(_result_path(order.out, worker.cell)))
        finally:
            _stop(workers)


def _start(order: Order, cell: Cell) -> _Worker:
    context = get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    threads = max(1, len(os.sched_getaffinity(0)) // order.jobs)
    process = context.Process(target=_work, args=(order, cell, threads, send), daemon=True)
    process.start()
    send.close()
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
            else:
                display.say(f"{worker.cell.name}: {message}")
    except EOFError:
        return


def _check(order: Order, worker: _Worker) -> None:
    """Raise if the worker ended without a result."""
    worker.process.join()
    failure = cell_folder(order.out, worker.cell) / "failure.json"
    if worker.process.exitcode == INTERRUPTED:
        raise Interrupted("stopped; finished cells are kept, run the same command again to go on")
    if failure.exists():
        raise CaviaError(f"{worker.cell.name}: {read_json(failure)['error']}")
    if not finished(order.out, worker.cell):
        raise CaviaError(
            f"{worker.cell.name}: its process ended with code {worker.process.exitcode} before it was finished "
            "(killed, or out of memory?); run the same command again to go on"
        )


def _stop(workers: list[_Worker]) -> None:
    """Ask every worker to write its checkpoint and end."""
    for worker in workers:
        if worker.process.is_alive():
            os.kill(worker.process.pid, signal.SIGTERM)
    for worker in workers:
        worker.process.join(timeout=30)
        worker.process.kill()


def _work(order: Order, cell: Cell, threads: int, messages: Any) -> None:
    """Train one cell, in a process of its own."""

    def send(message: Progress | str) -> None:
        try:
            messages.send(message)
        except OSError:  # the runner is gone: stop as if asked to
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the runner, which then asks every worker once
    torch.set_num_threads(threads)
    experiment = find(order.experiment)
    settings = experiment.settings(order.budget, order.changes)
    folder = cell_folder(order.out, cell)
    failure = folder / "failure.json"
    failure.unlink(missing_ok=True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message="the meta-step could not be compiled")
            result = experiment.train(cell, settings, Place(folder, order.device, send, order.data))
        for warning in caught:
            send(str(warning.message))
        write_json(folder / "result.json", {**cell.choices, **result})
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except (CaviaError, Diverged) as error:
        write_json(failure, {"error": str(error)})
        raise SystemExit(2) from None

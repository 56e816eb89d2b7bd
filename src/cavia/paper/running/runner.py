"""Runs an experiment: trains and measures the unfinished cells, and summarises the results."""

import json
import platform
import time
from dataclasses import asdict
from typing import Any

import torch

from cavia.errors import CaviaError, shown
from cavia.machine import cores
from cavia.paper.catalogue import find
from cavia.paper.experiment import Settings
from cavia.paper.running.cells import run_cells
from cavia.paper.running.display import Display
from cavia.paper.running.local import LocalWorkers
from cavia.paper.running.orders import Order, read_result
from cavia.paper.running.workers import Workers
from cavia.paper.schema import CellResult, Result
from cavia.tensor_file import write_json

SHORT = 400  # characters: longer values (contexts of all tasks, pictures) stay in the cells' own files
NOT_RUN = "not run"


def run(order: Order, where: Workers | None = None) -> Result:
    """Train and measure what is not finished yet; write and return the experiment's result.

    where: the workers, by default `order.jobs` processes on this machine.
    """
    experiment = find(order.experiment)
    settings, cells = order.settings, order.cells
    experiment.tasks(settings, cells[0], order.data)  # raises if data are missing; decodes pictures once for all cells
    open_cells = [cell for cell in cells if order.remeasure or read_result(order, cell) is None]
    with Display(experiment.id, total=len(cells), finished=len(cells) - len(open_cells)) as display:
        run_cells([(order, cell) for cell in open_cells], where or LocalWorkers(order.jobs), display)
    results = [one for cell in cells if (one := read_result(order, cell))]
    result = sum_up(order, settings, results)
    write_json(order.out / "result.json", result)
    return result


def sum_up(order: Order, settings: Settings, results: list[CellResult]) -> Result:
    """The experiment's result: a summary of its cells, and how they were made."""
    from cavia import __version__

    experiment = find(order.experiment)
    result: Result = {
        "format": 1,
        "experiment": experiment.id,
        "title": experiment.title + (" (synthetic data)" if order.data.synthetic else ""),
        "reproduces": experiment.reproduces,
        "budget": "own" if order.changes else order.set,  # type: ignore[typeddict-item]  # the names of sets
        "command": order.command,
        "settings": json.loads(json.dumps(asdict(settings))),
        "seeds": order.seeds,
        "commits": sorted({commit for one in results for commit in one.commits}),
        "version": __version__,
        "machine": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cpus": cores(),
            "device": order.device,
        },
        "seconds": round(sum(one.seconds for one in results), 1),
        "finished": time.strftime("%Y-%m-%d"),
        "cells": [_short(one) for one in results],
    }
    if order.set == "tuned":
        result["differs"] = experiment.differs
    try:
        result.update(experiment.summarise(settings, results))  # type: ignore[typeddict-item]  # a part of a Result
    except (IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {shown(str(error))}"
        raise CaviaError(f"{order.out / 'cells'} cannot be summed up ({what}); --remeasure measures again") from error
    return result


def _short(result: CellResult) -> dict[str, Any]:
    """A cell as stored in the experiment's result: its choices and all short values."""
    values = {name: value for name, value in result.as_json().items() if name not in ("choices", "format", "probes")}
    values = {**result.choices, **result.probes, **values, **result.choices}
    return {name: value for name, value in values.items() if value not in ({}, "") and len(json.dumps(value)) < SHORT}


def state(order: Order) -> str:
    """The progress of an experiment: "finished", "3 of 13 cells", "not run"."""
    if (order.out / "result.json").exists():
        return "finished"
    cells = order.cells
    done = sum(read_result(order, cell) is not None for cell in cells)
    return f"{done} of {len(cells)} cells" if done else NOT_RUN

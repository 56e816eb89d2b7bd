"""Runs an experiment: takes over what is trained already, has the rest trained, and sums up."""

import json
import platform
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cavia.envs.simulator import cores
from cavia.errors import CaviaError
from cavia.experiments.base import Cell, Experiment, Result, Settings, as_json
from cavia.experiments.catalogue import find
from cavia.experiments.display import Display
from cavia.experiments.workers import Order, cell_folder, finished, result_path, run_cells
from cavia.tensor_file import read_json, write_json
from cavia.training.checkpoint import RunFolder

FORMAT = 1
LATER = {"precision": "float32"}  # settings that earlier versions did not have, and what they did


def run(order: Order) -> Result:
    """Train and measure what is not finished yet; write and return the experiment's result."""
    experiment = find(order.experiment)
    settings = experiment.settings(order.budget, order.changes)
    cells = list({cell.name: cell for cell in experiment.cells(settings, order.seeds)}.values())
    if experiment.find_data:
        experiment.find_data(order.data)
    config = {"experiment": order.experiment, "budget": order.budget, "settings": _recorded(as_json(settings))}
    config |= {"data": "synthetic"} if order.data.synthetic else {}
    folder = RunFolder(order.out)
    with folder.lock():
        folder.claim(config)
        open_cells = [cell for cell in cells if not finished(order.out, cell)]
        for cell in open_cells:
            _adopt(order.out, config, cell, experiment.chooses_cells)
        with Display(experiment.id, total=len(cells), finished=len(cells) - len(open_cells)) as display:
            run_cells(order, open_cells, display)
        results = [read_json(result_path(order.out, cell)) for cell in cells]
        result = _summary(order, experiment, settings, results)
        write_json(order.out / "result.json", result)
    return result


def _adopt(out: Path, config: dict[str, Any], cell: Cell, chooses_cells: Sequence[str]) -> None:
    """Take over the training of a cell of the same name from an experiment beside this one, if it trained the same.

    It did if all settings that both experiments have are equal, apart from those that choose the cells. What the cell
    is measured for may differ, so only the training is taken, and `fit` finds it finished.
    """
    mine = cell_folder(out, cell)
    if mine.exists():
        return
    for theirs in sorted(out.parent.glob(f"*/cells/{cell.name}")):
        if (
            theirs.parents[1] != out
            and (theirs / "model.cavia").exists()
            and _trained_the_same(theirs, config, chooses_cells)
        ):
            mine.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=mine.parent, prefix=".adopted."))
            for name in ("config.json", "metrics.jsonl", "checkpoint.safetensors"):
                shutil.copy(theirs / name, temporary)
            temporary.rename(mine)
            return


def _trained_the_same(theirs: Path, config: dict[str, Any], chooses_cells: Sequence[str]) -> bool:
    try:
        known = read_json(theirs.parents[1] / "config.json")
        settings, known_settings = json.loads(json.dumps(config["settings"])), known["settings"]
        common = ((settings.keys() & known_settings.keys()) | LATER.keys()) - set(chooses_cells)
        same_data = config.get("data") == known.get("data") and _data(config) == _data(known)
        return same_data and all(settings.get(k, LATER.get(k)) == known_settings.get(k, LATER.get(k)) for k in common)
    except (CaviaError, KeyError, TypeError, AttributeError):  # a neighbour that is none of our business
        return False


def _recorded(settings: dict[str, Any]) -> dict[str, Any]:
    """Without those that do what earlier versions did, which did not have them: their folders go on."""
    return {name: value for name, value in settings.items() if name not in LATER or value != LATER[name]}


def _data(config: dict[str, Any]) -> str:
    return find(config["experiment"]).data


def _summary(order: Order, experiment: Experiment, settings: Settings, results: list[Result]) -> Result:
    from cavia import __version__

    # Long values (contexts of all tasks, pictures) stay in the cells' own files; the summary has what is shown of them.
    small = [{key: value for key, value in result.items() if len(json.dumps(value)) < 400} for result in results]
    return {
        "format": FORMAT,
        "experiment": experiment.id,
        "title": experiment.title + (" (synthetic data)" if order.data.synthetic else ""),
        "reproduces": experiment.reproduces,
        "budget": "own" if order.changes else order.budget,
        **({"differs": experiment.tuned[1]} if order.budget == "tuned" and experiment.tuned else {}),
        "commits": sorted({commit for result in results for commit in result.get("commits", [])}),
        "command": order.command,
        "settings": as_json(settings),
        "seeds": order.seeds,
        "version": __version__,
        "machine": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cpus": cores(),
            "device": order.device,
        },
        "seconds": round(sum(result.get("seconds", 0.0) for result in results), 1),
        "finished": time.strftime("%Y-%m-%d"),
        **experiment.summarise(settings, results),
        "cells": small,
    }

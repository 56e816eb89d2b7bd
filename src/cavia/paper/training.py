"""Trains and measures one cell, whatever its experiment."""

import inspect
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from cavia.envs.base import TaskEnv
from cavia.errors import CaviaError, Diverged
from cavia.learners.saving import describe
from cavia.paper.experiment import Cell, Experiment, Place, S
from cavia.paper.schema import CellResult
from cavia.tensor_file import read_json
from cavia.training.checkpoint import RunFolder
from cavia.training.fit import fit
from cavia.training.fit_policy import fit_policy
from cavia.training.run import describe_tasks
from cavia.training.settings import LATER
from cavia.training.trpo import TrustRegion

KEPT = (
    "config.json",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "before-cooldown.safetensors",
)  # of a training that is taken over


def run_cell(experiment: Experiment[S], settings: S, cell: Cell, place: Place) -> CellResult:
    """Train the cell in its folder, keep the model that validated best as model.cavia, and measure it.

    A run that diverges is a result, too. What is trained already, here or in the folder of a neighbouring experiment,
    is not trained again.
    """
    tasks = experiment.tasks(settings, cell, place.data)
    with torch.random.fork_rng():
        torch.manual_seed(cell["seed"])
        learner = experiment.learner(settings, cell, tasks).to(place.device)
    own = experiment.of_a_cell(settings)
    train, arguments = fit_arguments(experiment, settings, cell)
    adopt(place.folder, {"learner": describe(learner), **_of_tasks(tasks), **arguments})
    try:
        ended = train(learner, tasks, run_dir=place.folder, tensorboard=False, progress=place.show, **arguments)
        learner.save(place.folder / "model.cavia")
        found = experiment.measure(learner, tasks, settings, cell)
    except Diverged as error:
        return CellResult(cell.choices, own, diverged=str(error))
    folder = RunFolder(place.folder)
    return CellResult(
        cell.choices,
        own,
        commits=folder.commits(),
        validation=ended.best_score,
        best_iteration=ended.best_iteration,
        iterations=ended.iterations,
        seconds=ended.seconds,
        curve=[
            [at["iteration"], at["validation"], at["seconds"]] for at in folder.read_metrics() if "validation" in at
        ],
        **found,
    )


def fit_arguments(experiment: Experiment[S], settings: S, cell: Cell) -> tuple[Callable[..., Any], dict[str, Any]]:
    """`fit` or `fit_policy`, and its arguments: the settings of the same names, and what the experiment adds."""
    values = asdict(settings) | {"seed": cell["seed"], "minutes": settings.minutes or None}
    train: Callable[..., Any] = fit
    if "rollouts" in values:
        train = fit_policy
        region = {name: values[name] for name in inspect.signature(TrustRegion).parameters}
        values["region"] = TrustRegion(**region)
    names = inspect.signature(train).parameters
    return train, {name: value for name, value in values.items() if name in names} | experiment.fit(settings, cell)


def adopt(mine: Path, trains: dict[str, Any]) -> None:
    """Take over the training of a cell of this name from an experiment beside this one, if it trained the same.

    trains: what this cell is about to train, under the names of config.json. What the cell was measured for may
    differ, so only the training is taken, and `fit` finds it finished.
    """
    mine = mine.absolute()
    if mine.exists():
        return
    if "region" in trains:
        trains["trust_region"] = asdict(trains["region"])
    trains = json.loads(json.dumps({k: v for k, v in trains.items() if v is not None}, default=repr))
    for theirs in sorted(mine.parents[2].glob(f"*/cells/{mine.name}")):
        try:
            config = LATER | read_json(theirs / "config.json")
            same = all(trains[name] == value for name, value in config.items() if name in trains)
        except (CaviaError, AttributeError, TypeError):  # a neighbour that is none of our business
            continue
        if same and (theirs / "model.cavia").exists():
            mine.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=mine.parent, prefix=".adopted."))
            for name in KEPT:
                if (theirs / name).exists():
                    shutil.copy(theirs / name, temporary)
            try:
                temporary.rename(mine)
            except OSError:  # another process was faster
                shutil.rmtree(temporary)
            return


def _of_tasks(tasks: Any) -> dict[str, Any]:
    return {"environment" if isinstance(tasks, TaskEnv) else "family": describe_tasks(tasks)}

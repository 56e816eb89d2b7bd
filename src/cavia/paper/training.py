"""Trains and measures one cell, whatever its experiment."""

import inspect
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from cavia.envs.base import TaskEnv
from cavia.errors import CaviaError, Diverged
from cavia.learners.acting import Updates
from cavia.learners.base import Learner
from cavia.learners.saving import describe
from cavia.paper.experiment import Cell, Data, Experiment, Place, S
from cavia.paper.schema import CellResult
from cavia.temporaries import temporary
from cavia.tensor_file import read_json
from cavia.training.adam import LATER, Adam
from cavia.training.checkpoint import RunFolder
from cavia.training.feed import Validation, describe_source
from cavia.training.fit import fit
from cavia.training.trpo import TRPO

# The files of a training run that another cell may adopt.
KEPT = ("config.json", "metrics.jsonl", "checkpoint.safetensors", "before-cooldown.safetensors")


def run_cell(experiment: Experiment[S], settings: S, cell: Cell, place: Place) -> CellResult:
    """Train the cell in its folder, keep its best model by validation as model.cavia, and measure it.

    A run that diverges is a result, too. What is already trained, here or in the folder of another experiment, is not
    trained again.
    """
    learner, tasks = _begun(experiment, settings, cell, place.device, place.data)
    own = experiment.of_a_cell(settings)
    values = fit_settings(experiment, settings, cell)
    arguments = fit_arguments(values)
    source = {"environment" if isinstance(tasks, TaskEnv) else "family": describe_source(tasks)}
    given = {name: value for name, value in values.items() if value is not None}
    adopt(place.folder, {"learner": describe(learner)} | source | given | LATER | arguments["outer"].as_config())
    folder = RunFolder(place.folder, events=False)
    try:
        seconds = _stages(experiment.before(settings, cell, tasks), values, learner, place)
        ended = fit(learner, tasks, run_dir=folder, progress=place.show, **arguments)
        measured = experiment.measure(learner, tasks, settings, cell)
    except Diverged as error:
        return CellResult(cell.choices, own, diverged=str(error))
    return CellResult(
        cell.choices,
        own,
        commits=folder.commits(),
        validation=ended.best_score,
        best_iteration=ended.best_iteration,
        iterations=ended.iterations,
        seconds=seconds + ended.seconds,
        curve=[
            [at["iteration"], at["validation"], at["seconds"]] for at in folder.read_metrics() if "validation" in at
        ],
        **measured,
    )


def _stages(stages: Sequence[tuple[Any, dict[str, Any]]], values: dict[str, Any], learner: Any, place: Place) -> float:
    """Train the learner on each stage, each in its own folder below the cell's; returns the seconds it took."""
    seconds = 0.0
    for number, (tasks, changes) in enumerate(stages, 1):
        folder = RunFolder(place.folder / f"stage-{number}", events=False)
        seconds += fit(learner, tasks, run_dir=folder, progress=place.show, **fit_arguments(values | changes)).seconds
    return seconds


def follow_cell(experiment: Experiment[S], settings: S, cell: Cell, device: str, data: Data) -> None:
    """Help the first rank to train the cell, as another rank."""
    learner, tasks = _begun(experiment, settings, cell, device, data)
    values = fit_settings(experiment, settings, cell)
    for source, changes in [*experiment.before(settings, cell, tasks), (tasks, {})]:
        fit(learner, source, progress=False, **fit_arguments(values | changes))


def _begun(experiment: Experiment[S], settings: S, cell: Cell, device: str, data: Data) -> tuple[Learner, Any]:
    """The cell's learner with its initial weights, and its tasks."""
    tasks = experiment.tasks(settings, cell, data)
    with torch.random.fork_rng():
        torch.manual_seed(cell["seed"])
        return experiment.learner(settings, cell, tasks).to(device), tasks


def fit_settings(experiment: Experiment[S], settings: S, cell: Cell) -> dict[str, Any]:
    """The settings of a cell's training by name: the experiment's settings, and what `Experiment.fit` adds."""
    own = asdict(settings) | {"seed": cell["seed"], "minutes": settings.minutes or None}
    return own | experiment.fit(settings, cell)


def fit_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `fit`, except the learner and its tasks, from settings by name.

    Settings with `rollouts` are for TRPO in an environment.
    """
    known = {name: value for name, value in values.items() if name in inspect.signature(fit).parameters}
    validation = Validation(values["validation_tasks"], values.get("every"), values.get("validation_query"))
    if "rollouts" not in values:
        return known | {"outer": _made(Adam, values), "validation": validation}
    outer = _made(TRPO, {**values, "updates": _made(Updates, values)})
    return known | {"support": values["rollouts"], "outer": outer, "validation": validation}


def _made(kind: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """An instance of `kind`, from the values named like its arguments."""
    return kind(**{name: values[name] for name in inspect.signature(kind).parameters if name in values})


def adopt(mine: Path, trains: dict[str, Any]) -> None:
    """Adopt the training of the same cell from a neighbouring experiment, if the configurations agree.

    trains: this cell's training configuration, with the names of config.json. Measurements may differ, so only the
    training is adopted, and `fit` finds it finished.
    """
    mine = mine.absolute()
    if mine.exists() or len(mine.parents) < 3:  # or nothing is beside it, at the root
        return
    trains = json.loads(json.dumps(trains, default=repr))
    for theirs in sorted(mine.parents[2].glob(f"*/cells/{mine.name}")):
        try:
            config = LATER | read_json(theirs / "config.json")
            same = all(trains[name] == value for name, value in config.items() if name in trains)
        except (CaviaError, AttributeError, TypeError):  # not a run that this one could adopt
            continue
        if same and (theirs / "model.cavia").exists():
            mine.parent.mkdir(parents=True, exist_ok=True)
            with temporary(mine, folder=True) as unfinished:
                for name in KEPT:
                    if (theirs / name).exists():
                        shutil.copy(theirs / name, unfinished)
                with suppress(OSError):  # another process may be faster
                    unfinished.rename(mine)
            return

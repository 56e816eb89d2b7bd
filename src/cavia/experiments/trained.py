"""A trained model together with the tasks that it was trained on, from the folder of its run."""

from pathlib import Path
from typing import Any

from cavia.errors import CaviaError
from cavia.learners.base import Learner
from cavia.learners.saving import load
from cavia.tasks.batch import TaskFamily
from cavia.tasks.sine import Sine
from cavia.tensor_file import read_json

FAMILIES: dict[str, Any] = {"Sine": Sine}


def open_trained(path: Path) -> tuple[Learner, TaskFamily, int, int]:
    """The learner, its task family, and the support and validation query points per task.

    path: a `model.cavia` with the `config.json` of its run beside it, or the folder of both.
    """
    model = path / "model.cavia" if path.is_dir() else path
    if not model.is_file():
        cells = path / "cells"
        hint = f"; an experiment's models are in {cells}/*" if cells.is_dir() else ""
        raise CaviaError(f"there is no trained model {model}{hint}")
    learner = load(model)
    config = read_json(model.parent / "config.json")
    try:
        family = config["family"]
        return learner, FAMILIES[family["class"]](**family["settings"]), config["support"], config["validation_query"]
    except (KeyError, TypeError) as error:
        raise CaviaError(
            f"{model.parent / 'config.json'} is not the configuration of a training run ({error})"
        ) from error

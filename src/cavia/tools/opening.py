"""A trained model together with the tasks or the environment that it was trained in, from the folder of its run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cavia.envs.base import TaskEnv
from cavia.envs.cheetah import CheetahDirection, CheetahVelocity
from cavia.envs.navigation import Navigation
from cavia.errors import CaviaError, closest
from cavia.learners.acting import Updates, check_fits
from cavia.learners.base import Learner
from cavia.learners.gradient import GradientLearner
from cavia.learners.saving import load
from cavia.pictures.datasets import open_family
from cavia.tasks.batch import TaskFamily
from cavia.tasks.sine import Sine
from cavia.tensor_file import read_json

ENVIRONMENTS: dict[str, Callable[..., TaskEnv]] = {
    "Navigation": Navigation,
    "CheetahDirection": CheetahDirection,
    "CheetahVelocity": CheetahVelocity,
}
LATER_RATE = 0.5  # factor of the inner rate after the first update


class Trained(NamedTuple):
    """A learner, its tasks, the numbers of support points that it was trained for, and the query points to score."""

    learner: Learner
    family: TaskFamily
    support: list[int]
    query: int


def is_policy(path: Path) -> bool:
    """Whether the model was trained in an environment."""
    config = model_file(path).parent / "config.json"
    return config.exists() and "environment" in (read_json(config) or {})


def load_model(path: Path) -> Learner:
    """The learner in a `model.cavia`, or in the one of a cell's folder."""
    return load(model_file(path))


def open_trained(path: Path, root: Path) -> Trained:
    """The model with the tasks of its run.

    path: a `model.cavia` with the `config.json` of its run beside it, or the folder of both.
    root: where data sets are.
    """
    model = model_file(path)
    config_file = model.parent / "config.json"
    config = read_json(config_file)
    try:
        family = _family(config["family"]["class"], config["family"]["settings"], root)
        support = config["support"] if isinstance(config["support"], list) else [config["support"]]
        return Trained(load(model), family, sorted(set(support)), config["validation_query"])
    except CaviaError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CaviaError(f"{config_file} is not the configuration of a training run ({error})") from error


class TrainedPolicy(NamedTuple):
    """The policy of a training run, its environment, the episodes of an update, and how updates are made."""

    learner: GradientLearner
    env: TaskEnv
    rollouts: int
    updates: Updates


def open_policy(path: Path) -> TrainedPolicy:
    """A policy, from its model.cavia with the config.json of its run beside it, or the folder of both."""
    model = model_file(path)
    learner, config_file = load_model(model), model.parent / "config.json"
    config = read_json(config_file)
    try:
        name, settings = config["environment"]["class"], config["environment"]["settings"]
    except (KeyError, TypeError) as error:
        raise CaviaError(f"{config_file} is not the run of a policy (no {error}); take one of fig6a … fig7c") from error
    if name not in ENVIRONMENTS:
        raise CaviaError(f"there is no environment {name!r} here; {closest(str(name), ENVIRONMENTS)}")
    env = ENVIRONMENTS[name](**settings)
    check_fits(learner, env)
    assert isinstance(learner, GradientLearner)  # or check_fits raises
    return TrainedPolicy(learner, env, config["rollouts"], Updates(config["discount"], config["trace"], LATER_RATE))


def _family(name: str, settings: dict[str, Any], root: Path) -> TaskFamily:
    if name == "Sine":
        return Sine(**settings)
    if name in ("Completion", "Episodes"):
        return open_family(name, settings, root)
    raise CaviaError(f"there are no tasks of the kind {name!r}; {closest(name, ['Sine', 'Completion', 'Episodes'])}")


def model_file(path: Path) -> Path:
    """The `model.cavia` at the path, or in the folder there."""
    model = path / "model.cavia" if path.is_dir() else path
    if not model.is_file():
        hint = f"; an experiment's models are in {path / 'cells'}/*" if (path / "cells").is_dir() else ""
        raise CaviaError(f"there is no trained model {model}{hint}")
    return model

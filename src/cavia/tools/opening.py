"""Opens a trained model together with its tasks or environment, from its run folder."""

from pathlib import Path
from typing import NamedTuple

from cavia.building import build, find
from cavia.envs.base import TaskEnv
from cavia.errors import CaviaError, require_at_least, shown
from cavia.learners.acting import Updates, check_fits
from cavia.learners.base import Learner
from cavia.learners.gradient import GradientLearner
from cavia.learners.saving import load
from cavia.published.models import published
from cavia.tasks.batch import TaskFamily
from cavia.tensor_file import read_object

MOST = 10**5  # points, episodes or steps of a run
LATER_RATE = 0.5  # factor of the inner learning rate after the first update


class Trained(NamedTuple):
    """A learner, its tasks, the numbers of support points it was trained with, and the query points to score."""

    learner: Learner
    family: TaskFamily
    support: list[int]
    query: int


def is_policy(path: Path) -> bool:
    """Whether the model was trained in an environment."""
    config = model_file(path).parent / "config.json"
    return config.exists() and "environment" in read_object(config)


def load_model(path: Path) -> Learner:
    """The learner in a `model.cavia`, given the file or its folder."""
    return load(model_file(path))


def open_trained(path: Path, root: Path) -> Trained:
    """The model with the tasks of its run.

    path: a `model.cavia` next to the `config.json` of its run, or the folder of both.
    root: the folder of the data sets.
    """
    model = model_file(path)
    config_file = model.parent / "config.json"
    if not config_file.exists():
        raise CaviaError(f"{model} has no config.json of its run next to it, which names its tasks")
    config = read_object(config_file)
    try:
        name, settings = config["family"]["class"], config["family"]["settings"]
        family = find(TaskFamily, name, str(config_file)).reopen(settings, root)
        support = config["support"] if isinstance(config["support"], list) else [config["support"]]
        points = sorted({require_at_least(f"{config_file}: support", number, 0, MOST) for number in support})
        query = require_at_least(f"{config_file}: validation_query", config["validation_query"], 1, MOST)
        return Trained(load(model), family, points, query)
    except CaviaError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise CaviaError(f"{config_file} is not the configuration of a training run ({shown(str(error))})") from error


class TrainedPolicy(NamedTuple):
    """The policy of a training run, its environment, the episodes per update, and how updates are made."""

    learner: GradientLearner
    env: TaskEnv
    rollouts: int
    updates: Updates


def open_policy(path: Path) -> TrainedPolicy:
    """A policy, from its model.cavia next to the config.json of its run, or from the folder of both."""
    model = model_file(path)
    learner, config_file = load_model(model), model.parent / "config.json"
    config = read_object(config_file)
    try:
        name, settings = config["environment"]["class"], config["environment"]["settings"]
        env = build(find(TaskEnv, name, str(config_file)), settings, str(config_file))
        require_at_least(f"{config_file}: horizon", env.horizon, 1, MOST)
        rollouts = require_at_least(f"{config_file}: rollouts", config["rollouts"], 1, MOST)
        updates = Updates(config["discount"], config["trace"], LATER_RATE)
    except CaviaError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        what = shown(str(error))
        raise CaviaError(f"{config_file} is not the run of a policy ({what}); take one of fig6a … fig7c") from error
    check_fits(learner, env)
    assert isinstance(learner, GradientLearner)  # check_fits raises otherwise
    return TrainedPolicy(learner, env, rollouts, updates)


def model_file(path: Path) -> Path:
    """The `model.cavia` at the path, or in the folder there, or the published one of that name."""
    if not path.exists() and str(path) in published():
        path = published()[str(path)].folder
    model = path / "model.cavia" if path.is_dir() else path
    if not model.is_file():
        hint = f"; an experiment's models are in {path / 'cells'}/*" if (path / "cells").is_dir() else ""
        raise CaviaError(f"there is no trained model {model}{hint}; published ones are listed by `cavia models`")
    return model

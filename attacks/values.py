"""Values for calls: a right one for each argument, and wrong ones of every kind."""

import inspect
import random
import tempfile
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas
import torch

import cavia

INPUTS = torch.linspace(-1, 1, 8).reshape(2, 4, 1)  # two tasks of four points
TARGETS = INPUTS.sin()
LABELS = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]])
FEW = {"tasks": 2, "support": 2, "query": 2, "rollouts": 2, "iterations": 1}
FEW |= {"train": 8, "val": 4, "test": 4, "drawings": 4}


def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="attack-"))


def learner() -> cavia.CAVIA:
    torch.manual_seed(0)
    return cavia.CAVIA(cavia.MLP(1, 1, (4,), 2), "mse", 0.5)


def policy() -> cavia.GaussianPolicy:
    return cavia.GaussianPolicy(2, 2, (4,), context=2)


def model_file() -> Path:
    path = folder() / "model.cavia"
    learner().save(path)
    return path


def batch() -> cavia.TaskBatch:
    return cavia.TaskBatch(INPUTS, TARGETS, INPUTS, TARGETS)


def picture_set() -> cavia.ImageSet:
    return cavia.synthetic_glyphs(**{name: FEW[name] for name in ("train", "val", "test", "drawings")})


def inputs_of_rows() -> Any:
    """`rows` as a data frame without their target."""
    return pandas.DataFrame(rows()).drop(columns="y")


def estimator() -> cavia.ContextRegressor:
    made = cavia.ContextRegressor("user", hidden=(4,), iterations=1)
    return made.fit(inputs_of_rows(), rows()["y"])


def draws_once(learner: Any) -> bool:
    """Whether its points are steps of episodes: two observations, two numbers that were drawn, and a credit."""
    return bool(getattr(learner, "drawn_once", 0))


def inputs_of(learner: Any) -> Any:
    return INPUTS * torch.tensor([1.0, 0.5, -1.0, 2.0, 1.5]) if draws_once(learner) else INPUTS


def targets_of(learner: Any) -> Any:
    if draws_once(learner):
        return TARGETS * torch.tensor([0.1, -0.2, 1.0])
    if isinstance(learner, cavia.ContextClassifier):
        return [int(number > 3) for number in rows()["y"]]
    if isinstance(learner, cavia.ContextRegressor):
        return rows()["y"]
    return LABELS if getattr(learner, "loss", "") in ("cross_entropy", "score_mse") else TARGETS


def adapted_by(learner: Any) -> cavia.Adapted:
    return learner.adapt(inputs_of(learner), targets_of(learner))


def goals(count: int = 3) -> dict[str, list[float]]:
    return {split: [float(goal) for goal in range(count)] for split in ("train", "val", "test")}


def rows() -> dict[str, list[Any]]:
    """A table of eight users."""
    numbers = [float(row % 7) for row in range(64)]
    return {"user": [row // 8 for row in range(64)], "x": numbers, "y": [2 * number for number in numbers]}


# What an argument of a name takes, where its annotation does not say enough. `owner.name` goes before `name`.
BY_NAME: dict[str, Callable[[], Any]] = {
    "X": inputs_of_rows,
    "ContextRegressor.group": lambda: "user",
    "ContextClassifier.group": lambda: "user",
    **{f"{kind}.iterations": lambda: 1 for kind in ("ContextRegressor", "ContextClassifier")},
    "estimator": estimator,
    "few_shot_score.y": lambda: rows()["y"],
    "save.contexts": lambda: None,
    "load.contexts": lambda: None,
    "loss": lambda: "mse",
    "ProtoNets.loss": lambda: "cross_entropy",
    **{f"{kind}.loss": lambda: "cross_entropy" for kind in ("MatchingNets", "VERSA", "LEO")},
    "RelationNets.loss": lambda: "score_mse",
    **{f"{kind}.model": lambda: policy() for kind in ("SampledCAVIA", "MAESN")},
    **{f"{kind}.loss": lambda: cavia.GaussianPolicy.loss for kind in ("SampledCAVIA", "MAESN")},
    "Navigation.goals": lambda: "semicircle",
    "MetaLSTM.hidden": lambda: 2,
    "LEO.hidden": lambda: 2,
    "LEO.features": lambda: None,
    **{f"{kind}.features": lambda: None for kind in ("RelationNets", "VERSA", "VERSARegression")},
    "load.loss": lambda: None,
    "load.model": lambda: None,
    "ways": lambda: 2,
    "x": lambda: INPUTS,
    "y": lambda: TARGETS,
    "WaveBasis.hidden": lambda: (4,),
    "hidden": lambda: (4,),
    "encoder": lambda: (4,),
    "inputs": lambda: 1,
    "outputs": lambda: 1,
    "context": lambda: 2,
    "features": lambda: 3,
    "channels": lambda: 1,
    "filters": lambda: 4,
    "image": lambda: 28,
    "film": lambda: 3,
    "size": lambda: 28,
    "windows.states": lambda: torch.rand(2, 2, 4, 2, generator=torch.Generator().manual_seed(0)),
    "windows.dt": lambda: 0.5,
    "path": lambda: folder() / "file.parquet",  # what a store exports to; all others take any name
    "load.path": model_file,
    "ContextStore.model": lambda: "version one",
    "images": picture_set,
    "queries": lambda: 2,
    "Evaluation.metric": lambda: "mse",
    "Evaluation.tasks": lambda: None,
    "FitResult.loss": lambda: 0.5,
    "part.start": lambda: 0,
    "pretrained.name": lambda: "sine",
    **{f"Rollouts.{name}": lambda: torch.zeros(2, 1, 3, 2) for name in ("observations", "actions")},
    **{f"Rollouts.{name}": lambda: torch.ones(2, 1, 3) for name in ("rewards", "mask")},
    "Episodes.ways": lambda: 2,
    "Tasks.support": lambda: 2,
    "from_array.pixels": lambda: np.zeros((12, 8, 8, 3), np.uint8),
    "from_table.inputs": lambda: None,
    "how": lambda: "film",
    "optimiser": lambda: "adam",
    "sites": lambda: [{"layer": "0", "channels": 4, "axis": -1, "batch": 0}],
    "table": rows,
    "from_table.task": lambda: "user",
    "from_table.target": lambda: "y",
    "act": lambda: lambda observation: torch.zeros(*observation.shape[:-1], 2),
    "make": lambda: lambda: gymnasium.make("CartPole-v1"),
    "GymTasks.tasks": goals,
    "set_task": lambda: lambda env, task: None,
    "parameters": lambda: {"context": torch.ones(2, 3)},
    "task_losses": lambda: lambda fast: (fast["context"] ** 2).sum(-1),
    "fast": lambda: {"context": torch.ones(2, 3)},
    "adapt.step_size": lambda: {"context": 0.1},
    "generator": lambda: torch.Generator().manual_seed(0),
    "split": lambda: "train",
    "metric": lambda: None,
    "module": lambda: torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)),
    "load.module": lambda: None,
    "at": lambda: "1",
    "MLP.at": lambda: 0,
    "example": lambda: torch.ones(3, 1),
    "ids": lambda: ["a", "b"],
    "contexts": lambda: torch.ones(2, 2),
    "nearest.tasks": lambda: torch.ones(1, 2),
    "run_dir": lambda: None,
    "device": lambda: "cpu",
    "Tasks.tasks": lambda: dict.fromkeys("abcdefgh", (INPUTS[0], TARGETS[0])),
    "env": lambda: cavia.envs.Navigation(5),
    "observations": lambda: 2,
    "actions": lambda: 2,
    "pixels": lambda: {split: np.zeros((4, 8, 8, 3), np.uint8) for split in ("train", "val", "test")},
    "collect.tasks": lambda: torch.zeros(2, 2),
}
# … and of a method, where it depends on the object.
BY_OBJECT: dict[str, Callable[[Any], Any]] = {
    "x": lambda learner: inputs_of(learner),
    "y": lambda learner: targets_of(learner),
    "target": lambda learner: targets_of(learner),
    "prediction": lambda learner: learner.predict(inputs_of(learner), adapted_by(learner)),
    "adapted": lambda learner: adapted_by(learner),
    "batch": lambda learner: cavia.TaskBatch(*(2 * (inputs_of(learner), targets_of(learner)))),
    "one": lambda learner: adapted_by(learner)[:1],
    "lerp.other": lambda adapted: adapted,
    "of.parameters": lambda family: torch.ones(2, len(family.names)),
    "initialise.x": lambda model: INPUTS[0],
    "initialise.y": lambda model: TARGETS,
    "reset.tasks": lambda env: env.sample_tasks(2, torch.Generator().manual_seed(0)),
    "action": lambda env: (
        torch.zeros(2, 1).long() if isinstance(env, cavia.envs.GymTasks) else torch.zeros(2, 1, env.actions)
    ),
}
BY_OBJECT["interpolate.other"] = BY_OBJECT["one"]

# Objects that methods are called on, where the class's own arguments do not make one.
OBJECTS: dict[str, Callable[[], Any]] = {
    "Learner": learner,
    "ContextModel": lambda: learner().model,
    "TaskFamily": cavia.Sine,
    "TaskBatch": batch,
    "Adapted": lambda: learner().adapt(INPUTS, TARGETS),
    "Outer": cavia.Adam,
    "TaskEnv": lambda: cavia.envs.Navigation(5),
    "Module": BY_NAME["module"],
    "Generator": BY_NAME["generator"],
    "ImageSet": picture_set,
    "Tensor": lambda: INPUTS,
}
BY_KIND: dict[Any, Any] = {bool: False, int: 2, float: 0.5, str: "text", bytes: b"x"}


def right_value(owner: str, name: str, hint: Any, object_: Any = None) -> Any:
    """A value that a call takes for this argument; of a method, with the object that it belongs to."""
    for key in (f"{owner}.{name}", name):
        if object_ is not None and not isinstance(object_, type) and key in BY_OBJECT:
            return BY_OBJECT[key](object_)
    for key in (f"{owner}.{name}", name):
        if key in BY_NAME:
            return BY_NAME[key]()
    if name in FEW:
        return FEW[name]
    return _by_hint(hint)


def _by_hint(hint: Any) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in BY_KIND:
        return BY_KIND[hint]
    if origin in (typing.Union, types.UnionType):
        return None if type(None) in inner else _by_hint(inner[0])
    if origin is Callable or origin is Callable.__class__:
        return lambda *arguments: arguments[0]
    if isinstance(hint, type):
        for kind in hint.__mro__:
            if kind.__name__ in OBJECTS:
                return OBJECTS[kind.__name__]()
    if origin and isinstance(origin, type) and issubclass(origin, Mapping):
        return {}
    if origin and isinstance(origin, type) and issubclass(origin, Sequence):
        return [_by_hint(inner[0])] if inner else []
    raise LookupError(f"no right value is known for {hint}; add one to attacks/values.py")


def wrong_values(seed: int) -> Iterator[Any]:
    """Values of every kind that hardly an argument takes, and some drawn at random."""
    yield from (None, True, -1, 0, 2, 1.5, -0.5, float("nan"), float("inf"), -float("inf"), 1e300, 10**30, 2 + 1j)
    yield from ("", "text", "\udc80", "a\0b", "x" * 5000, b"bytes", Path("no/such/file"), object(), int, len)
    yield from ([], [None], ["a", 1], (), (0,), (-1, 2), {}, {"a": None}, {1: 2}, {"train"}, range(3), iter([1]))
    yield from (np.float64(0.5), np.int64(3), np.array(["a"]), np.zeros((0, 3)), np.array([None, 1], object))
    yield from (torch.zeros(0), torch.tensor(1.0), torch.zeros(2, 3), torch.zeros(1, 4, 1), torch.zeros(2, 4, 7))
    yield from (torch.zeros(2, 0, 1), torch.zeros(0, 4, 1), torch.zeros(2, 4, 1, dtype=torch.cfloat))
    yield from (torch.full((2, 4, 1), torch.nan), torch.zeros(2, 4, 1, dtype=torch.bool))
    yield torch.zeros(2, 3, 1, device="meta")
    yield from (torch.full((2, 4), -100), torch.full((2, 4), 99), torch.zeros(2, 4, 1).to_sparse(), Strange())
    chance = random.Random(seed)
    for _ in range(12):
        yield _drawn(chance, depth=2)


class Strange:
    """An object whose every answer is an error."""

    def __repr__(self) -> str:
        return "Strange()"

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("no items")


def _drawn(chance: random.Random, depth: int) -> Any:
    """Numbers, text, tensors, and collections of them."""
    kind = chance.randrange(7 if depth else 5)
    if kind == 0:
        return chance.choice([1, -1]) * chance.choice([chance.random(), 10 ** chance.randrange(40)])
    if kind == 1:
        return "".join(chr(chance.choice([chance.randrange(32, 127), chance.randrange(0x3000)])) for _ in range(5))
    if kind in (2, 3):
        shape = [chance.choice([0, 1, 2, 3, 4]) for _ in range(chance.randrange(5))]
        dtype = chance.choice([torch.float32, torch.float64, torch.int64, torch.bool, torch.float16, torch.uint8])
        return torch.zeros(shape, dtype=dtype)
    if kind == 4:
        return chance.choice([None, True, False, ...])
    parts = [_drawn(chance, depth - 1) for _ in range(chance.randrange(4))]
    return parts if kind == 5 else {chance.choice("abc"): part for part in parts}


def parameters_of(call: Any) -> dict[str, tuple[inspect.Parameter, Any]]:
    """An argument's name → how it is taken and its annotation, for those that have a name."""
    try:
        hints = typing.get_type_hints(vars(call).get("__init__", call) if isinstance(call, type) else call)
    except (NameError, TypeError):
        hints = {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: (each, hints.get(name, each.annotation if each.annotation is not inspect.Parameter.empty else Any))
        for name, each in inspect.signature(call).parameters.items()
        if each.kind in named and name != "self"
    }

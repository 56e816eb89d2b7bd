"""What the experiment with many modes trains and measures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from cavia.evaluation.evaluate import evaluate
from cavia.learners.base import Learner
from cavia.models.mlp import MLP
from cavia.paper.experiment import Cell, Data, Settings
from cavia.paper.methods import METHODS
from cavia.tasks.batch import seeded_generator
from cavia.tasks.modes import Modes

CAVIA, MAML, BOTH = "CAVIA", "MAML", "CAVIA + MAML"


@dataclass(frozen=True)
class ModesSettings(Settings):
    """Each method has four choices of its rates: CAVIA of φ's, MAML of the weights', the hybrid two by two."""

    known: ClassVar[Mapping[str, Any]] = {"methods": (CAVIA, MAML, BOTH)}

    methods: tuple[str, ...] = (CAVIA, MAML, BOTH)
    inner_steps: tuple[int, ...] = (1, 2, 5)
    cavia_lrs: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    maml_lrs: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    iterations: int = 20_000
    tasks_per_batch: int = 25
    support: int = 10
    query: int = 10
    hidden: tuple[int, ...] = (100, 100)
    context: int = 10
    lr: float = 1e-3
    clip: float = 10.0
    validation_tasks: int = 1000
    validation_query: int = 100
    test_tasks: int = 2000
    test_points: int = 100


def cells(settings: ModesSettings, seeds: int) -> list[Cell]:
    """The hybrid has the rates in the middle of those of CAVIA and of MAML, each with each: as many choices as they."""
    of_context = settings.cavia_lrs[1:-1] or settings.cavia_lrs
    of_weights = settings.maml_lrs[1:-1] or settings.maml_lrs
    rates = {
        CAVIA: [(rate, 0.0) for rate in settings.cavia_lrs],
        MAML: [(0.0, rate) for rate in settings.maml_lrs],
        BOTH: [(first, second) for first in of_context for second in of_weights],
    }
    return [
        Cell({"method": method, "inner_steps": steps, "context_lr": first, "weights_lr": second, "seed": seed})
        for method in settings.methods
        for steps in settings.inner_steps
        for first, second in rates[method]
        for seed in range(seeds)
    ]


def tasks(settings: ModesSettings, cell: Cell, data: Data) -> Modes:
    return Modes()


def learner(settings: ModesSettings, cell: Cell, family: Modes) -> Learner:
    """All three have the same network, with as many context parameters; for MAML they are extra input biases."""
    rates = {"inner_lr": cell["weights_lr"] if cell["method"] == MAML else cell["context_lr"]}
    if cell["method"] == BOTH:
        rates["weights_lr"] = cell["weights_lr"]
    model = MLP(1, 1, settings.hidden, settings.context)
    return METHODS[cell["method"]](model, "mse", inner_steps=cell["inner_steps"], **rates)


def errors(learner: Learner, family: Modes, settings: ModesSettings, cell: Cell) -> dict[str, Any]:
    """MSE on test tasks after 0 … inner_steps steps, and of each kind of curve after the last."""
    sizes = (settings.test_tasks, settings.support, settings.test_points)
    found = evaluate(learner, family, *sizes, learner.inner_steps, chunk=500)
    kind = family.sample(*sizes, seeded_generator(0, "test"), "test").attributes["kind"]  # of the same tasks
    last = found.scores[-1]
    of_kinds = {name: last[kind == number].mean().item() for number, name in enumerate(family.kinds)}
    return {"scores": {"mse": found.scores.tolist()}, "probes": {"of kinds": _finite(of_kinds)}}


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if torch.tensor(value).isfinite() else None for name, value in values.items()}

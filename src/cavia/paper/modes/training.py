"""Training and measurement of the experiment on many modes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from cavia.evaluation.evaluate import device_of, evaluate
from cavia.evaluation.identifiability import identifiability
from cavia.evaluation.probes import contexts
from cavia.learners.base import Learner
from cavia.models.mlp import MLP
from cavia.paper.curves import fitted_curves
from cavia.paper.experiment import Cell, Data, Settings
from cavia.paper.methods import METHODS
from cavia.tasks.batch import TaskBatch, seeded_generator
from cavia.tasks.modes import PARAMETERS, Modes

CAVIA, MAML, BOTH = "CAVIA", "MAML", "CAVIA + MAML"


@dataclass(frozen=True)
class ModesSettings(Settings):
    """Each method has four choices of learning rates: CAVIA for φ, MAML for the weights, the hybrid two by two."""

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
    probes: int = 500  # sines whose parameters are decoded from the context


def cells(settings: ModesSettings, seeds: int) -> list[Cell]:
    """The hybrid combines the middle rates of CAVIA and MAML, each with each, so that all have as many choices."""
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
    """All three methods use the same network with the same context parameters; for MAML they are input biases."""
    rates = {"inner_lr": cell["weights_lr"] if cell["method"] == MAML else cell["context_lr"]}
    if cell["method"] == BOTH:
        rates["weights_lr"] = cell["weights_lr"]
    model = MLP(1, 1, settings.hidden, settings.context)
    return METHODS[cell["method"]](model, "mse", inner_steps=cell["inner_steps"], **rates)


def errors(learner: Learner, family: Modes, settings: ModesSettings, cell: Cell) -> dict[str, Any]:
    """MSE on test tasks after 0 … inner_steps steps, and for each kind of curve after the last."""
    sizes = (settings.test_tasks, settings.support, settings.test_points)
    result = evaluate(learner, family, *sizes, learner.inner_steps, chunk=500)
    batch = family.sample(*sizes, seeded_generator(0, "test"), "test")  # the same tasks
    kind = batch.attributes["kind"]
    last = result.scores[-1]
    of_kinds = {name: last[kind == number].mean().item() for number, name in enumerate(family.kinds)}
    curves = _curves(learner, family, batch)
    probes = {"of kinds": _finite(of_kinds), "curves": curves, **_identified(learner, family, settings, cell)}
    return {"scores": {"mse": result.scores.tolist()}, "probes": probes}


def _curves(learner: Learner, family: Modes, batch: TaskBatch) -> list[dict[str, Any]]:
    """The first test task of each kind, and its fit."""
    kind, shown = batch.attributes["kind"], []
    for number in kind.unique().tolist():
        first = int((kind == number).nonzero()[0])
        one = batch.part(first, first + 1).to(device_of(learner))
        shown.append({"title": family.kinds[number], **fitted_curves(learner, one, learner.inner_steps)[0]})
    return shown


def _identified(learner: Learner, family: Modes, settings: ModesSettings, cell: Cell) -> dict[str, Any]:
    """How well the contexts of sines encode their parameters, for methods with a context."""
    if not METHODS[cell["method"]].context:
        return {}
    generator = seeded_generator(0, "identifiability")
    batch = replace(family, kinds=("sine",)).sample(settings.probes, settings.support, 1, generator, "test")
    context = contexts(learner, batch.to(device_of(learner)), learner.inner_steps)
    return identifiability(context.cpu(), {name: batch.attributes[name] for name in PARAMETERS}, {"phase": 2 * math.pi})


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if torch.tensor(value).isfinite() else None for name, value in values.items()}

"""Table 1 and Figures 3 and 4: regression of sine curves (Section 5.1.1)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

from cavia.evaluation.evaluate import evaluate
from cavia.evaluation.probes import context_gradient_norms, contexts, neighbour_r2
from cavia.experiments.base import Cell, Experiment, Place, Result, Settings, check_numbers
from cavia.experiments.sine_summary import (
    embedding_summary,
    norms_summary,
    rates_summary,
    steps_summary,
    table1_summary,
)
from cavia.experiments.training import fit_cell
from cavia.learners.base import Learner
from cavia.learners.gradient import CAVIA, MAML
from cavia.models.mlp import MLP
from cavia.tasks.batch import seeded_generator
from cavia.tasks.sine import Sine

METHODS: dict[str, Callable[..., Learner]] = {
    "CAVIA": CAVIA,
    "MAML": MAML,
    "CAVIA, learned start": partial(CAVIA, learn_init=True),
}
CAVIA_LR = 1.0  # the paper's, not tuned


@dataclass(frozen=True)
class SineSettings:
    """What every sine experiment shares: the paper's values."""

    iterations: int = 50_000
    tasks_per_batch: int = 25
    support: int = 10
    query: int = 10
    hidden: tuple[int, ...] = (40, 40)
    lr: float = 1e-3
    clip: float = 10.0
    validation_tasks: int = 1000
    test_tasks: int = 1000
    test_points: int = 100

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("contexts",))


@dataclass(frozen=True)
class Table1Settings(SineSettings):
    contexts: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 50)
    maml_lrs: tuple[float, ...] = (0.001, 0.003, 0.005, 0.01, 0.02)  # the best on validation tasks is reported


@dataclass(frozen=True)
class StepsSettings(SineSettings):
    context: int = 5
    maml_lrs: tuple[float, ...] = (0.001, 0.003, 0.005, 0.01, 0.02)
    steps: int = 10


@dataclass(frozen=True)
class RatesSettings(SineSettings):
    context: int = 5
    rates: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class EmbeddingSettings(SineSettings):
    steps: int = 5


# Training and measuring


def train(cell: Cell, settings: Settings, place: Place, measure: Callable[[Learner, Cell, Settings], Result]) -> Result:
    """Train one cell, keep the model of the best validation score, and measure it on the test tasks."""
    with torch.random.fork_rng():
        torch.manual_seed(cell["seed"])
        model = MLP(1, 1, hidden=settings.hidden, context=cell["context"])
    learner = METHODS[cell["method"]](model, "mse", inner_lr=cell["inner_lr"]).to(place.device)
    return fit_cell(
        learner,
        Sine(),
        place,
        settings.iterations,
        lambda: measure(learner, cell, settings),
        tasks_per_batch=settings.tasks_per_batch,
        support=settings.support,
        query=settings.query,
        lr=settings.lr,
        clip=settings.clip,
        seed=cell["seed"],
        validation_tasks=settings.validation_tasks,
        validation_query=settings.test_points,
    )


def error_on_test_tasks(learner: Learner, settings: Settings, steps: int = 1) -> Result:
    """MSE on the test tasks after 0 … steps gradient steps."""
    found = evaluate(
        learner, Sine(), settings.test_tasks, settings.support, settings.test_points, steps=steps, chunk=1000
    )
    return {"mse": found.mean.tolist(), "interval": found.interval.tolist()}


def after_one_step(learner: Learner, cell: Cell, settings: Settings) -> Result:
    return error_on_test_tasks(learner, settings)


def after_many_steps(learner: Learner, cell: Cell, settings: Settings) -> Result:
    return error_on_test_tasks(learner, settings, settings.steps)


def gradient_norms(learner: Learner, cell: Cell, settings: Settings) -> Result:
    norms = context_gradient_norms(learner, _test_tasks(learner, settings))
    return error_on_test_tasks(learner, settings) | {"norm": norms.median().item()}


def embedding(learner: Learner, cell: Cell, settings: Settings) -> Result:
    tasks = _test_tasks(learner, settings)
    found = contexts(learner, tasks, settings.steps)
    return error_on_test_tasks(learner, settings, settings.steps) | {
        "context": found.tolist(),
        **{name: values.tolist() for name, values in tasks.attributes.items()},
        **{f"r2_{name}": neighbour_r2(found, values) for name, values in tasks.attributes.items()},
    }


def _test_tasks(learner: Learner, settings: Settings) -> Any:
    batch = Sine().sample(
        settings.test_tasks, settings.support, settings.test_points, seeded_generator(0, "test"), "test"
    )
    return batch.to(next(learner.parameters()).device)


# Cells


def _cells(seeds: int, *kinds: tuple[str, Iterable[int], Iterable[float]]) -> list[Cell]:
    """A cell for each method, context size, rate and seed."""
    return [
        Cell({"method": method, "context": context, "inner_lr": float(rate), "seed": seed})
        for method, sizes, rates in kinds
        for context, rate, seed in product(sizes, rates, range(seeds))
    ]


def table1_cells(settings: Table1Settings, seeds: int) -> list[Cell]:
    with_context = [size for size in settings.contexts if size > 0]
    return _cells(seeds, ("CAVIA", with_context, [CAVIA_LR]), ("MAML", settings.contexts, settings.maml_lrs))


def steps_cells(settings: StepsSettings, seeds: int) -> list[Cell]:
    return _cells(seeds, ("CAVIA", [settings.context], [CAVIA_LR]), ("MAML", [settings.context], settings.maml_lrs))


def rates_cells(settings: RatesSettings, seeds: int) -> list[Cell]:
    return _cells(seeds, *((method, [settings.context], settings.rates) for method in METHODS))


def norms_cells(settings: RatesSettings, seeds: int) -> list[Cell]:
    return _cells(seeds, ("CAVIA", [settings.context], settings.rates))


def embedding_cells(settings: EmbeddingSettings, seeds: int) -> list[Cell]:
    return _cells(seeds, ("CAVIA", [2], [CAVIA_LR]))


EXPERIMENTS = (
    Experiment(
        id="table1",
        title="Sine regression: CAVIA and MAML",
        reproduces="Table 1: MSE with 0, 1, 2, 3, 4, 5 and 50 additional input parameters",
        quick=Table1Settings(iterations=6000, contexts=(0, 2, 5), maml_lrs=(0.01,)),
        full=Table1Settings(),
        minutes=(2, 57),
        cells=table1_cells,
        train=partial(train, measure=after_one_step),
        summarise=table1_summary,
    ),
    Experiment(
        id="fig3a",
        title="Sine regression: more gradient steps than in training",
        reproduces="Figure 3a: test MSE after 0 to 10 gradient steps",
        quick=StepsSettings(iterations=8000, maml_lrs=(0.01,)),
        full=StepsSettings(),
        minutes=(1, 8),
        cells=steps_cells,
        train=partial(train, measure=after_many_steps),
        summarise=steps_summary,
    ),
    Experiment(
        id="fig3b",
        title="Sine regression: sensitivity to the inner learning rate",
        reproduces="Figure 3b: test MSE for inner learning rates from 1e-6 to 10",
        quick=RatesSettings(iterations=3000, rates=(1e-3, 1e-2, 1e-1, 1.0)),
        full=RatesSettings(),
        minutes=(2, 29),
        cells=rates_cells,
        train=partial(train, measure=after_one_step),
        summarise=rates_summary,
    ),
    Experiment(
        id="fig3c",
        title="Sine regression: the context's gradient makes up for the inner rate",
        reproduces="Figure 3c: inner learning rate against the norm of the context gradient",
        quick=RatesSettings(iterations=5000, rates=(1e-3, 1e-2, 1e-1, 1.0)),
        full=RatesSettings(),
        minutes=(1, 7),
        cells=norms_cells,
        train=partial(train, measure=gradient_norms),
        summarise=norms_summary,
    ),
    Experiment(
        id="fig4",
        title="Sine regression: what two context parameters encode",
        reproduces="Figure 4: context after 5 updates, coloured by amplitude and phase",
        quick=EmbeddingSettings(iterations=8000),
        full=EmbeddingSettings(),
        minutes=(1, 4),
        cells=embedding_cells,
        train=partial(train, measure=embedding),
        summarise=embedding_summary,
    ),
)

"""Training and measurement of the sine experiments."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cavia.evaluation.evaluate import evaluate
from cavia.evaluation.identifiability import identifiability
from cavia.evaluation.probes import context_gradient_norms, contexts, neighbour_r2
from cavia.learners.base import Learner
from cavia.models.mlp import MLP
from cavia.paper.curves import fitted_curves
from cavia.paper.experiment import Cell, Data, Settings, cells_of
from cavia.paper.methods import METHODS
from cavia.tasks.batch import TaskBatch, seeded_generator
from cavia.tasks.sine import Sine

CAVIA_LR = 1.0  # the paper's, not tuned
MAML_LRS = (0.001, 0.003, 0.005, 0.01, 0.02)  # the best on validation tasks is reported
SHOWN = 3  # test curves in the picture of Table 1
COMPARED = ("CAVIA", "MAML", "CAVIA, learned start")  # over all inner rates


@dataclass(frozen=True)
class SineSettings(Settings):
    """Shared by all sine experiments: the paper's values."""

    iterations: int = 50_000
    tasks_per_batch: int = 25
    support: int = 10
    query: int = 10
    hidden: tuple[int, ...] = (40, 40)
    lr: float = 1e-3
    clip: float = 10.0
    validation_tasks: int = 1000
    validation_query: int = 100
    test_tasks: int = 1000
    test_points: int = 100
    steps: int = 1  # in testing; training takes one


@dataclass(frozen=True)
class Table1Settings(SineSettings):
    contexts: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 50)
    maml_lrs: tuple[float, ...] = MAML_LRS


@dataclass(frozen=True)
class StepsSettings(SineSettings):
    steps: int = 10
    context: int = 5
    maml_lrs: tuple[float, ...] = MAML_LRS


@dataclass(frozen=True)
class RatesSettings(SineSettings):
    context: int = 5
    rates: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class ComparedSettings(RatesSettings):
    known: ClassVar = {"methods": (*COMPARED, "MT-net")}  # which the paper names, but does not show

    methods: tuple[str, ...] = COMPARED


@dataclass(frozen=True)
class EmbeddingSettings(SineSettings):
    steps: int = 5


# Training and measuring


def tasks(settings: SineSettings, cell: Cell, data: Data) -> Sine:
    return Sine()


def learner(settings: SineSettings, cell: Cell, family: Sine) -> Learner:
    model = MLP(1, 1, settings.hidden, cell["context"])
    return METHODS[cell["method"]](model, "mse", inner_lr=cell["inner_lr"])


def errors(learner: Learner, family: Sine, settings: SineSettings, cell: Cell) -> dict[str, Any]:
    """MSE on the test tasks after 0 … steps gradient steps."""
    result = evaluate(
        learner, family, settings.test_tasks, settings.support, settings.test_points, settings.steps, chunk=1000
    )
    return {"scores": {"mse": result.scores.tolist()}}


def errors_and_curves(learner: Learner, family: Sine, settings: SineSettings, cell: Cell) -> dict[str, Any]:
    """`errors`, and the fits of some test curves before and after one step."""
    batch = next(_test_tasks(learner, family, settings).split(SHOWN))
    return errors(learner, family, settings, cell) | {"probes": {"curves": fitted_curves(learner, batch, 1)}}


def gradient_norms(learner: Learner, family: Sine, settings: SineSettings, cell: Cell) -> dict[str, Any]:
    norms = context_gradient_norms(learner, _test_tasks(learner, family, settings))
    return errors(learner, family, settings, cell) | {"probes": {"norm": norms.median().item()}}


def embedding(learner: Learner, family: Sine, settings: SineSettings, cell: Cell) -> dict[str, Any]:
    batch = _test_tasks(learner, family, settings)
    context = contexts(learner, batch, settings.steps)
    of_tasks = {name: values.tolist() for name, values in batch.attributes.items()}
    r2 = {name: neighbour_r2(context, values) for name, values in batch.attributes.items()}
    identified = identifiability(context, batch.attributes, periods={"phase": 2 * math.pi})
    return errors(learner, family, settings, cell) | {
        "probes": {"context": context.tolist(), **of_tasks, "r2": r2, **identified}
    }


def _test_tasks(learner: Learner, family: Sine, settings: SineSettings) -> TaskBatch:
    sizes = (settings.test_tasks, settings.support, settings.test_points)
    batch = family.sample(*sizes, seeded_generator(0, "test"), "test")
    return batch.to(next(learner.parameters()).device)


# Cells


def table1_cells(settings: Table1Settings, seeds: int) -> list[Cell]:
    with_context = [size for size in settings.contexts if size > 0]
    ours = cells_of(seeds, "CAVIA", with_context, [CAVIA_LR])
    return ours + cells_of(seeds, "MAML", settings.contexts, settings.maml_lrs)


def steps_cells(settings: StepsSettings, seeds: int) -> list[Cell]:
    ours = cells_of(seeds, "CAVIA", [settings.context], [CAVIA_LR])
    return ours + cells_of(seeds, "MAML", [settings.context], settings.maml_lrs)


def rates_cells(settings: ComparedSettings, seeds: int) -> list[Cell]:
    return [cell for method in settings.methods for cell in cells_of(seeds, method, [settings.context], settings.rates)]


def norms_cells(settings: RatesSettings, seeds: int) -> list[Cell]:
    return cells_of(seeds, "CAVIA", [settings.context], settings.rates)


def embedding_cells(settings: EmbeddingSettings, seeds: int) -> list[Cell]:
    return cells_of(seeds, "CAVIA", [2], [CAVIA_LR])

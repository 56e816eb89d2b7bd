"""Training and measurement of the few-shot experiments."""

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import torch

from cavia.evaluation.evaluate import device_of, evaluate, evaluating
from cavia.evaluation.probes import contexts, neighbour_agreement, plane
from cavia.learners.base import Learner
from cavia.learners.gradient import CAVIA
from cavia.models.convnet import NORMS, SHRINKS, ConvNet
from cavia.paper.experiment import Cell, Data, Settings
from cavia.paper.methods import METHODS
from cavia.pictures.datasets import DataSet
from cavia.pictures.episodes import Episodes
from cavia.tasks.batch import TaskBatch, seeded_generator

COMPARED = (
    *("CAVIA", "CAVIA (first order)", "MAML", "MAML (first order)", "ANIL", "Meta-SGD", "Reptile", "CAVIA + MAML"),
    *("ProtoNets", "Matching Networks"),
)
# Further methods that the paper quotes or names
SYSTEMS = ("MAML++", "iMAML", "MT-net", "Meta-LSTM", "Relation Networks", "VERSA", "LEO")


@dataclass(frozen=True)
class FewShotSettings(Settings):
    """The paper's values for Mini-ImageNet, where it gives them."""

    known: ClassVar = {"methods": (*COMPARED, *SYSTEMS), "norm": NORMS, "shrink": SHRINKS}

    iterations: int = 60_000
    methods: tuple[str, ...] = COMPARED
    filters: tuple[int, ...] = (32,)
    ways: tuple[int, ...] = (5,)
    shots: tuple[int, ...] = (1, 5)
    queries: int = 15  # per class
    image: int = 84  # pixels along a side
    tasks_per_batch: int = 4  # with one shot; half as many with more
    context: int = 100
    film: tuple[int, ...] = (3,)
    norm: str = "task"
    shrink: str = "pool"
    inner_steps: int = 2
    reptile_steps: int = 5
    cavia_lr: float = 0.1
    maml_lr: float = 0.1
    lr: float = 1e-3
    lr_decay: float = 0.9
    lr_decay_every: int = 5000
    cooldown: float = 0.0
    clip: float = 10.0
    every: int = 1000
    validation_tasks: int = 200
    test_tasks: int = 1000
    chunk: int = 1  # a single task fits the CPU cache


def tasks(data_set: DataSet, settings: FewShotSettings, cell: Cell, data: Data) -> Episodes:
    images = data_set.open(data.root, data.synthetic, settings.image)
    return Episodes(images, cell["ways"], cell["shots"], settings.queries, **data_set.episodes or {})


def learner(settings: FewShotSettings, cell: Cell, family: Episodes) -> Learner:
    method = METHODS[cell["method"]]
    model = ConvNet(
        ways=cell["ways"] if method.head else 0,
        filters=cell["filters"],
        image=family.size,
        channels=family.channels,
        context=settings.context if method.context else 0,
        film=settings.film,
        norm=settings.norm,
        shrink=settings.shrink,
    )
    return method(
        model,
        "cross_entropy",
        inner_lr=(settings.cavia_lr if method.context else settings.maml_lr) * cell.choices.get("scale", 1),
        weights_lr=settings.maml_lr,
        inner_steps=settings.reptile_steps if method.walks else settings.inner_steps,
        head="linear",
        ways=cell["ways"],
    )


def fit(settings: FewShotSettings, cell: Cell) -> dict[str, Any]:
    """Arguments of training that are not named like a setting."""
    return {"tasks_per_batch": settings.tasks_per_batch // (1 if cell["shots"] == 1 else 2) or 1}


def accuracy(learner: Learner, family: Episodes, settings: FewShotSettings, cell: Cell) -> dict[str, Any]:
    """Accuracy on tasks of the test classes; for methods with a context also what it says about the task."""
    result = evaluate(learner, family, settings.test_tasks, chunk=settings.chunk)
    probes = probe(learner, family, settings.chunk) if isinstance(learner, CAVIA) else {}
    return {"scores": {"accuracy": result.scores[-1:].tolist()}, "probes": probes | {"data": family.images.settings}}


def probe(learner: Learner, family: Episodes, chunk: int, tasks: int = 8, repeats: int = 12) -> dict[str, Any]:
    """The contexts of a few test tasks, each adapted several times to different pictures of the same classes.

    "agreement": how often a context's nearest neighbour is of the same task; "chance": how often by chance. Empty if
    the classes have too few pictures to adapt twice.
    """
    repeats = min(repeats, family.pictures_of_each_class("test") // family.shots - 1)
    if repeats < 2:
        return {}
    batch = family.sample(tasks, None, family.support * repeats, seeded_generator(0, "probe"), "test")
    batch = batch.to(device_of(learner))
    # Query pictures are ordered by class: [T, ways, repeats, shots, ...] → `repeats` support sets of each task.
    sets = (tasks, family.ways, repeats, family.shots)
    x = batch.query_x.unflatten(1, sets[1:]).transpose(1, 2).flatten(2, 3).flatten(0, 1)  # [T·R, ways·shots, ...]
    y = batch.query_y.unflatten(1, sets[1:]).transpose(1, 2).flatten(2, 3).flatten(0, 1)
    parts = TaskBatch(x, y, x, y).split(chunk)
    with evaluating(learner):
        context = torch.cat([contexts(learner, part, learner.inner_steps) for part in parts])  # [T·R, C]
    return {
        "plane": plane(context).tolist(),
        "task": torch.arange(tasks).repeat_interleave(repeats).tolist(),
        "agreement": neighbour_agreement(context.unflatten(0, (tasks, repeats))),
        "chance": (repeats - 1) / (tasks * repeats - 1),
    }


# Cells


def cells(settings: FewShotSettings, seeds: int) -> list[Cell]:
    return [
        Cell({"method": method, "filters": filters, "ways": ways, "shots": shots, "seed": seed})
        for shots, ways, filters, method, seed in product(
            settings.shots, settings.ways, settings.filters, settings.methods, range(seeds)
        )
    ]

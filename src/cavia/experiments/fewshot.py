"""Table 3 and Omniglot: few-shot classification of pictures (Section 5.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

from cavia.errors import CaviaError
from cavia.evaluation.evaluate import device_of, evaluate, evaluating
from cavia.evaluation.probes import contexts, neighbour_agreement, plane
from cavia.experiments.base import Cell, Data, Experiment, Place, Result, Settings, check_choices, check_numbers
from cavia.experiments.fewshot_summary import omniglot_summary, table3_summary
from cavia.experiments.training import fit_cell
from cavia.learners.base import Learner
from cavia.learners.gradient import ANIL, CAVIA, MAML, CaviaMAML, MetaSGD
from cavia.learners.metric import MatchingNets, ProtoNets
from cavia.learners.reptile import Reptile
from cavia.models.convnet import NORMS, SHRINKS, ConvNet
from cavia.tasks.batch import TaskBatch, seeded_generator
from cavia.tasks.episodes import Episodes
from cavia.tasks.glyphs import synthetic_glyphs
from cavia.tasks.images import ImageSet
from cavia.tasks.labelled import read_miniimagenet, read_omniglot

LOSS = "cross_entropy"
METHODS: dict[str, Callable[[Callable[..., ConvNet], Settings], Learner]] = {
    "CAVIA": lambda net, s: CAVIA(net(), LOSS, s.cavia_lr, s.inner_steps),
    "CAVIA (first order)": lambda net, s: CAVIA(net(), LOSS, s.cavia_lr, s.inner_steps, first_order=True),
    "MAML": lambda net, s: MAML(net(context=0), LOSS, s.maml_lr, s.inner_steps),
    "MAML (first order)": lambda net, s: MAML(net(context=0), LOSS, s.maml_lr, s.inner_steps, first_order=True),
    "ANIL": lambda net, s: ANIL(net(context=0), LOSS, s.maml_lr, s.inner_steps, head="linear"),
    "Meta-SGD": lambda net, s: MetaSGD(net(context=0), LOSS, s.maml_lr, s.inner_steps),
    "Reptile": lambda net, s: Reptile(net(context=0), LOSS, s.maml_lr, s.reptile_steps),
    "CAVIA + MAML": lambda net, s: CaviaMAML(net(), LOSS, s.cavia_lr, s.maml_lr, s.inner_steps),
    "ProtoNets": lambda net, s: ProtoNets(net(context=0, ways=0), LOSS, net.keywords["ways"]),  # type: ignore[attr-defined]
    "Matching Networks": lambda net, s: MatchingNets(net(context=0, ways=0), LOSS, net.keywords["ways"]),  # type: ignore[attr-defined]
}


@dataclass(frozen=True)
class FewShotSettings:
    """The paper's values for Mini-ImageNet, where it gives them."""

    methods: tuple[str, ...] = tuple(METHODS)
    filters: tuple[int, ...] = (32,)
    ways: tuple[int, ...] = (5,)
    shots: tuple[int, ...] = (1, 5)
    queries: int = 15  # of each class
    iterations: int = 60_000
    minutes: float = 0.0  # of training for each cell, if that is less than the iterations take; 0: no limit
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
    chunk: int = 1  # one task at a time fits a processor's cache

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("minutes", "cooldown"))
        check_choices(self, methods=METHODS, norm=NORMS, shrink=SHRINKS)


# Data


@dataclass(frozen=True)
class PictureSource:
    """A data set of labelled pictures and how its pictures enter the network."""

    folder: str
    size: int
    channels: int
    read: Callable[..., ImageSet]
    needs: str  # what to put where
    is_ink: bool = False  # black on white, and a turned character is another one


MINI_IMAGENET = PictureSource(
    "miniimagenet",
    84,
    3,
    read_miniimagenet,
    "put images/ and train.csv, val.csv, test.csv (the split of Ravi and Larochelle: filename,label) there",
)
OMNIGLOT = PictureSource(
    "omniglot",
    28,
    1,
    read_omniglot,
    "put images_background/ and images_evaluation/ there (from the Omniglot project, github.com/brendenlake/omniglot)",
    is_ink=True,
)


def find_classes(source: PictureSource, data: Data) -> None:
    """Raise unless the pictures are there, and decode them if that has not been done, once for all cells."""
    if not data.synthetic:
        open_classes(source, data)


def open_classes(source: PictureSource, data: Data) -> ImageSet:
    """The pictures under the data root, or drawn glyphs of the same size."""
    if data.synthetic:
        return synthetic_glyphs(size=source.size)
    folder = data.root / source.folder
    if not folder.is_dir():
        raise CaviaError(
            f"there is no folder {folder}: {source.needs}, name another --data-root, or try --data synthetic"
        )
    return source.read(folder, source.size)


def episodes(source: PictureSource, data: Data, ways: int, shots: int, queries: int) -> Episodes:
    """Tasks as the experiments have them."""
    return Episodes(
        open_classes(source, data),
        ways,
        shots,
        queries,
        channels=source.channels,
        rotations=source.is_ink,
        invert=source.is_ink,
    )


# Training and measuring


def train(cell: Cell, settings: Settings, place: Place, source: PictureSource) -> Result:
    """Train one cell on the training classes, select on the validation classes, measure on the test classes."""
    net = partial(
        ConvNet,
        ways=cell["ways"],
        filters=cell["filters"],
        image=source.size,
        channels=source.channels,
        context=settings.context,
        film=settings.film,
        norm=settings.norm,
        shrink=settings.shrink,
    )
    with torch.random.fork_rng():
        torch.manual_seed(cell["seed"])
        learner = METHODS[cell["method"]](net, settings).to(place.device)
    family = episodes(source, place.data, cell["ways"], cell["shots"], settings.queries)
    return fit_cell(
        learner,
        family,
        place,
        settings.iterations,
        lambda: {"data": family.images.settings, **measure(learner, family, settings)},
        tasks_per_batch=settings.tasks_per_batch if cell["shots"] == 1 else max(settings.tasks_per_batch // 2, 1),
        lr=settings.lr,
        lr_decay=settings.lr_decay,
        lr_decay_every=settings.lr_decay_every,
        cooldown=settings.cooldown,
        clip=settings.clip,
        seed=cell["seed"],
        every=settings.every,
        validation_tasks=settings.validation_tasks,
        minutes=settings.minutes or None,
        chunk=settings.chunk,
    )


def measure(learner: Learner, family: Episodes, settings: Settings) -> Result:
    """Accuracy on tasks of the test classes; and, where a context adapts, what it says about the task."""
    found = evaluate(learner, family, settings.test_tasks, chunk=settings.chunk)
    result: Result = {"accuracy": found.mean[-1].item(), "interval": found.interval[-1].item()}
    return result | (probe(learner, family, settings.chunk) if isinstance(learner, CAVIA) else {})


def probe(learner: Learner, family: Episodes, chunk: int, tasks: int = 8, repeats: int = 12) -> Result:
    """The contexts of a few test tasks, each adapted to several times on other pictures of the same classes.

    "agreement": how often the nearest context is one of the same task; "chance": how often by luck. Nothing, if the
    classes have too few pictures to adapt twice.
    """
    repeats = min(repeats, family.pictures_of_each_class("test") // family.shots - 1)
    if repeats < 2:
        return {}
    batch = family.sample(tasks, None, family.support * repeats, seeded_generator(0, "probe"), "test")
    batch = batch.to(device_of(learner))
    # Query pictures stand class by class: [T, ways, repeats, shots, ...] → repeats support sets of each task.
    sets = (tasks, family.ways, repeats, family.shots)
    x = batch.query_x.unflatten(1, sets[1:]).transpose(1, 2).flatten(2, 3).flatten(0, 1)  # [T·R, ways·shots, ...]
    y = batch.query_y.unflatten(1, sets[1:]).transpose(1, 2).flatten(2, 3).flatten(0, 1)
    parts = TaskBatch(x, y, x, y).split(chunk)
    with evaluating(learner):
        found = torch.cat([contexts(learner, part, learner.inner_steps) for part in parts])  # [T·R, C]
    return {
        "plane": plane(found).tolist(),
        "task": torch.arange(tasks).repeat_interleave(repeats).tolist(),
        "agreement": neighbour_agreement(found.unflatten(0, (tasks, repeats))),
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


QUICK: dict[str, Any] = {
    "iterations": 100,
    "methods": ("CAVIA", "MAML", "ProtoNets"),
    "shots": (1,),
    "every": 50,
    "validation_tasks": 20,
    "test_tasks": 100,
}

EXPERIMENTS = (
    Experiment(
        id="table3",
        title="Few-shot classification: Mini-ImageNet",
        reproduces="Table 3: 5-way accuracy on Mini-ImageNet, 1-shot and 5-shot",
        quick=FewShotSettings(**QUICK),
        full=FewShotSettings(),
        minutes=(5, 24_000),
        cells=cells,
        chooses_cells=("methods", "filters", "ways", "shots"),
        train=partial(train, source=MINI_IMAGENET),
        data=MINI_IMAGENET.folder,
        summarise=table3_summary,
        find_data=partial(find_classes, MINI_IMAGENET),
    ),
    Experiment(
        id="omniglot",
        title="Few-shot classification: Omniglot",
        reproduces="beyond the paper: 5- and 20-way accuracy on Omniglot, 1-shot and 5-shot",
        quick=FewShotSettings(**QUICK | {"iterations": 300, "every": 150}, tasks_per_batch=8, chunk=8, queries=5),
        full=FewShotSettings(
            methods=("CAVIA", "MAML", "ProtoNets"),
            ways=(5, 20),
            iterations=20_000,
            tasks_per_batch=16,
            queries=5,
            cooldown=0.3,
            lr_decay=1.0,
            chunk=16,
        ),
        minutes=(5, 2000),
        cells=cells,
        chooses_cells=("methods", "filters", "ways", "shots"),
        train=partial(train, source=OMNIGLOT),
        data=OMNIGLOT.folder,
        summarise=omniglot_summary,
        find_data=partial(find_classes, OMNIGLOT),
    ),
)

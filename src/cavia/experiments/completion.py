"""Table 2 and Figure 5: completion of pictures from some of their pixels (Section 5.1.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch

from cavia.errors import CaviaError
from cavia.evaluation.evaluate import device_of, evaluate
from cavia.experiments.base import Cell, Data, Experiment, Place, Result, Settings, check_choices, check_numbers
from cavia.experiments.completion_summary import METHODS, WAVE_BASIS, faces_summary, table2_summary
from cavia.experiments.training import fit_cell
from cavia.learners.amortised import CNP
from cavia.learners.base import Learner
from cavia.learners.gradient import CAVIA, MAML
from cavia.learners.newton import GaussNewton
from cavia.models.basis import WaveBasis
from cavia.models.mlp import INITS, MLP
from cavia.tasks.batch import seeded_generator
from cavia.tasks.completion import ORDERS, Completion
from cavia.tasks.images import CELEBA_IMAGES, CELEBA_PARTITION, ImageSet, read_celeba
from cavia.tasks.synthetic import synthetic_faces
from cavia.training.settings import PRECISIONS

SIZE, PIXELS = 32, 32 * 32


@dataclass(frozen=True)
class CompletionSettings:
    """The paper's values, where it gives them. Every number of known pixels has a model of its own."""

    iterations: int = 50_000
    tasks_per_batch: int = 25
    query: int = PIXELS  # to train on; the wave basis always takes all, which cost it nothing
    hidden: tuple[int, ...] = (128,) * 5
    context: int = 128
    init: str = "torch"
    inner_steps: int = 5
    cavia_lr: float = 1.0
    maml_lr: float = 0.1
    lr: float = 1e-3
    waves: int = 24
    wave_hidden: tuple[int, ...] = (256, 256)
    wave_tasks_per_batch: int = 200  # it starts near the best that it can be, and small batches would lead it away
    wave_lr: float = 1e-3
    first_pictures: int = 20_000  # whose principal components the wave basis starts from
    cooldown: float = 0.0
    clip: float = 10.0
    minutes: float = 0.0  # of training for each cell, if that is less than the iterations take; 0: no limit
    every: int = 500
    validation_pictures: int = 100
    chunk: int = 25
    precision: str = "float32"  # of matrix products in training; the wave basis solves systems, always in float32

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("minutes", "cooldown"))
        check_choices(self, methods=METHODS, orders=ORDERS, init=INITS, precision=PRECISIONS)
        for name in ("shots", "query"):
            value = getattr(self, name)
            if max(value if isinstance(value, tuple) else (value,)) > PIXELS:
                raise CaviaError(f"{name} must be at most {PIXELS}, the pixels of a picture, got {value}")


@dataclass(frozen=True)
class Table2Settings(CompletionSettings):
    methods: tuple[str, ...] = METHODS
    orders: tuple[str, ...] = ("random", "ordered")
    shots: tuple[int, ...] = (10, 100, 1000)
    test_pictures: int = 1000


@dataclass(frozen=True)
class FacesSettings(CompletionSettings):
    methods: tuple[str, ...] = METHODS
    shots: tuple[int, ...] = (10, 100, 1000)
    faces: int = 6


# Data


def find_pictures(data: Data) -> None:
    """Raise unless CelebA is there, and decode it if that has not been done, once for all cells."""
    if not data.synthetic:
        open_pictures(data)


def open_pictures(data: Data) -> ImageSet:
    """CelebA under the data root, or drawn faces."""
    if data.synthetic:
        return synthetic_faces()
    folder = data.root / "celeba"
    if not (folder / CELEBA_IMAGES).is_dir() or not (folder / CELEBA_PARTITION).is_file():
        raise CaviaError(
            f"no CelebA in {folder}: put {CELEBA_IMAGES}/ and {CELEBA_PARTITION} there (from the CelebA project page, "
            "mmlab.ie.cuhk.edu.hk/projects/CelebA.html), name another --data-root, or try --data synthetic"
        )
    return read_celeba(folder, SIZE)


# Training and measuring


def build(method: str, settings: Settings) -> Learner:
    """A new learner of the method."""
    model = MLP(2, 3, settings.hidden, settings.context, init=settings.init)
    if method == "CNP":
        return CNP(model, "mse", inputs=2, outputs=3)
    if method == "MAML":
        return MAML(model, "mse", settings.maml_lr, settings.inner_steps)
    return CAVIA(model, "mse", settings.cavia_lr, settings.inner_steps)


def build_wave_basis(family: Completion, settings: Settings, seed: int) -> Learner:
    """The network beyond the paper, as the principal components of training pictures make it."""
    model = WaveBasis(2, 3, settings.waves, settings.context, settings.wave_hidden)
    whole = family.sample(settings.first_pictures, 1, PIXELS, seeded_generator(seed, "initialise"))
    damping = model.initialise(whole.query_x[0], whole.query_y)
    for parameter in (model.constant, model.functions):  # no basis is better; training finds how φ bends
        parameter.requires_grad_(False)
    return GaussNewton(model, "mse", damping)


def train(cell: Cell, settings: Settings, place: Place, measure: Callable[..., Result]) -> Result:
    """Train one cell on the training pictures, select on the validation pictures, measure on the test pictures."""
    pictures = open_pictures(place.data)
    family = Completion(pictures, SIZE, cell["order"])
    known, is_wave_basis = cell["known"], cell["method"] == WAVE_BASIS
    with torch.random.fork_rng():
        torch.manual_seed(cell["seed"])
        learner = build_wave_basis(family, settings, cell["seed"]) if is_wave_basis else build(cell["method"], settings)
    learner.to(place.device)
    return fit_cell(
        learner,
        family,
        place,
        settings.iterations,
        lambda: {"data": pictures.settings, **measure(learner, family, replace(settings, shots=(known,)))},
        tasks_per_batch=settings.wave_tasks_per_batch if is_wave_basis else settings.tasks_per_batch,
        support=known,
        query=PIXELS if is_wave_basis else settings.query,
        lr=settings.wave_lr if is_wave_basis else settings.lr,
        cooldown=settings.cooldown,
        minutes=settings.minutes or None,
        clip=settings.clip,
        seed=cell["seed"],
        every=settings.every,
        validation_tasks=settings.validation_pictures,
        validation_query=PIXELS,
        chunk=settings.chunk * (PIXELS // known if is_wave_basis else 1),  # memory grows with the known pixels
        precision="float32" if is_wave_basis else settings.precision,
    )


def error_on_test_pictures(learner: Learner, family: Completion, settings: Settings) -> Result:
    """Pixel MSE of whole test pictures for each number of known pixels."""
    pictures = min(settings.test_pictures, len(family.images.of("test")))
    found = {
        str(k): evaluate(learner, family, pictures, support=k, query=PIXELS, chunk=settings.chunk)
        for k in settings.shots
    }
    return {
        "mse": {k: result.mean[-1].item() for k, result in found.items()},
        "interval": {k: result.interval[-1].item() for k, result in found.items()},
    }


@torch.no_grad()
def draw_faces(learner: Learner, family: Completion, settings: Settings) -> Result:
    """The first test pictures, their known pixels and their completions, as PNGs."""
    from cavia.experiments.pictures import as_png, with_known_only

    truth: list[str] = []
    known: dict[str, list[str]] = {}
    completed: dict[str, list[str]] = {}
    for k in settings.shots:
        batch = family.sample(settings.faces, k, PIXELS, seeded_generator(0, "faces"), "test")
        batch = batch.to(device_of(learner))
        prediction = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
        truth = [as_png(picture) for picture in batch.query_y]
        known[str(k)] = [
            as_png(with_known_only(*points, SIZE)) for points in zip(batch.support_x, batch.support_y, strict=True)
        ]
        completed[str(k)] = [as_png(picture) for picture in prediction]
    return {"pictures": {"truth": truth, "known": known, "completed": completed}}


# Cells


def table2_cells(settings: Table2Settings, seeds: int) -> list[Cell]:
    return _cells(settings, settings.orders, seeds)


def faces_cells(settings: FacesSettings, seeds: int) -> list[Cell]:
    return _cells(settings, ("random",), seeds)


def _cells(settings: Settings, orders: Sequence[str], seeds: int) -> list[Cell]:
    """One run for each number of known pixels, as the paper's authors have it."""
    return [
        Cell({"method": method, "order": order, "known": known, "seed": seed})
        for order, method, known, seed in product(orders, settings.methods, settings.shots, range(seeds))
    ]


QUICK: dict[str, Any] = {
    "init": "he",
    "iterations": 150,
    "query": 128,
    "every": 75,
    "validation_pictures": 20,
    "shots": (10, 100),
}

TUNED: dict[str, Any] = {"init": "he", "lr": 2e-3, "cooldown": 0.6, "query": 256, "every": 1000}
DIFFERS = (
    "Weights start from He et al.'s distribution; the outer rate is 0.002 and falls to zero over the last 60 % of the "
    "run; a training step predicts 256 random pixels of each picture, not all 1024."
)

EXPERIMENTS = (
    Experiment(
        id="table2",
        title="Image completion: CAVIA, MAML and CNP",
        reproduces="Table 2: pixel MSE on CelebA for 10, 100 and 1000 known pixels, random and ordered",
        quick=Table2Settings(**QUICK, test_pictures=100),
        full=Table2Settings(),
        tuned=(Table2Settings(**TUNED, test_pictures=3000), DIFFERS),
        minutes=(3, 3200),
        cells=table2_cells,
        chooses_cells=("methods", "orders", "shots"),
        train=partial(train, measure=error_on_test_pictures),
        summarise=table2_summary,
        find_data=find_pictures,
    ),
    Experiment(
        id="fig5",
        title="Image completion: faces",
        reproduces="Figure 5: completed faces for 10, 100 and 1000 known pixels",
        quick=FacesSettings(**QUICK),
        full=FacesSettings(),
        tuned=(FacesSettings(**TUNED), DIFFERS),
        minutes=(2, 1600),
        cells=faces_cells,
        chooses_cells=("methods", "orders", "shots"),
        train=partial(train, measure=draw_faces),
        summarise=faces_summary,
        find_data=find_pictures,
    ),
)

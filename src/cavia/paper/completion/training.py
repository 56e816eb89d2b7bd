"""Training and measurement of the completion experiments."""

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import torch

from cavia.errors import CaviaError
from cavia.evaluation.evaluate import device_of, evaluate
from cavia.learners.base import Learner
from cavia.learners.newton import GaussNewton
from cavia.models.basis import WaveBasis
from cavia.models.mlp import INITS, MLP
from cavia.paper.experiment import Cell, Data, Settings
from cavia.paper.methods import METHODS
from cavia.pictures.completion import ORDERS, Completion
from cavia.pictures.datasets import CELEBA
from cavia.pictures.pixels import as_png, with_known_only
from cavia.tasks.batch import seeded_generator
from cavia.training.adam import PRECISIONS

SIZE, PIXELS = CELEBA.size, CELEBA.size**2
WAVE_BASIS = "wave basis"  # beyond the paper: a better network with the same number of context parameters
COMPARED = ("CAVIA", "MAML", "CNP", WAVE_BASIS)


@dataclass(frozen=True)
class CompletionSettings(Settings):
    """The paper's values, where it gives them. Each number of known pixels has its own model."""

    known: ClassVar = {"methods": COMPARED, "orders": ORDERS, "init": INITS, "precision": PRECISIONS}

    iterations: int = 50_000
    methods: tuple[str, ...] = COMPARED
    shots: tuple[int, ...] = (10, 100, 1000)  # known pixels
    tasks_per_batch: int = 25
    query: int = PIXELS  # pixels to train on; the wave basis always uses all, at no extra cost
    hidden: tuple[int, ...] = (128,) * 5
    context: int = 128
    init: str = "torch"
    inner_steps: int = 5
    cavia_lr: float = 1.0
    maml_lr: float = 0.1
    lr: float = 1e-3
    waves: int = 24
    wave_hidden: tuple[int, ...] = (256, 256)
    wave_tasks_per_batch: int = 200  # it starts near its optimum, from which small batches would lead it away
    wave_lr: float = 1e-3
    first_pictures: int = 20_000  # the wave basis starts from their principal components
    cooldown: float = 0.0
    clip: float = 10.0
    every: int = 500
    validation_tasks: int = 100
    chunk: int = 25
    precision: str = "float32"  # of matrix products in training; the wave basis solves systems, always in float32

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, most in (("shots", self.shots, max(self.shots)), ("query", self.query, self.query)):
            if most > PIXELS:
                raise CaviaError(f"{name} must be at most {PIXELS}, the pixels of a picture, got {value}")


@dataclass(frozen=True)
class Table2Settings(CompletionSettings):
    orders: tuple[str, ...] = ("random", "ordered")
    test_pictures: int = 3000


@dataclass(frozen=True)
class FacesSettings(CompletionSettings):
    faces: int = 6


def tasks(settings: CompletionSettings, cell: Cell, data: Data) -> Completion:
    return Completion(CELEBA.open(data.root, data.synthetic), SIZE, cell["order"])


def learner(settings: CompletionSettings, cell: Cell, family: Completion) -> Learner:
    """A new learner of the cell's method."""
    if cell["method"] == WAVE_BASIS:
        return _wave_basis(settings, family, cell["seed"])
    model = MLP(2, 3, settings.hidden, settings.context, init=settings.init)
    method = METHODS[cell["method"]]
    rate = settings.cavia_lr if method.context else settings.maml_lr
    return method(model, "mse", inner_lr=rate, inner_steps=settings.inner_steps, inputs=2, outputs=3)


def _wave_basis(settings: CompletionSettings, family: Completion, seed: int) -> Learner:
    """The network beyond the paper, initialised from the principal components of training pictures."""
    model = WaveBasis(2, 3, settings.waves, settings.context, settings.wave_hidden)
    whole = family.sample(settings.first_pictures, 1, PIXELS, seeded_generator(seed, "initialise"))
    damping = model.initialise(whole.query_x[0], whole.query_y)
    for parameter in (model.constant, model.functions):  # the basis is optimal; only φ's map is trained
        parameter.requires_grad_(False)
    return GaussNewton(model, "mse", damping)


def fit(settings: CompletionSettings, cell: Cell) -> dict[str, Any]:
    """Arguments of training that are not named like a setting."""
    known: dict[str, Any] = {"support": cell["known"], "validation_query": PIXELS}
    if cell["method"] != WAVE_BASIS:
        return known
    return known | {
        "tasks_per_batch": settings.wave_tasks_per_batch,
        "query": PIXELS,
        "lr": settings.wave_lr,
        "precision": "float32",
        "chunk": settings.chunk * (PIXELS // cell["known"]),  # memory grows with the known pixels
    }


def errors(learner: Learner, family: Completion, settings: Table2Settings, cell: Cell) -> dict[str, Any]:
    """Pixel MSE of whole test pictures."""
    pictures = min(settings.test_pictures, len(family.images.of("test")))
    result = evaluate(learner, family, pictures, support=cell["known"], query=PIXELS, chunk=settings.chunk)
    return {"scores": {"mse": result.scores[-1:].tolist()}, "probes": {"data": family.images.settings}}


@torch.no_grad()
def faces(learner: Learner, family: Completion, settings: FacesSettings, cell: Cell) -> dict[str, Any]:
    """The first test pictures, their known pixels and their completions, as PNGs."""
    batch = family.sample(settings.faces, cell["known"], PIXELS, seeded_generator(0, "faces"), "test")
    batch = batch.to(device_of(learner))
    prediction = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
    known = [with_known_only(*points, SIZE) for points in zip(batch.support_x, batch.support_y, strict=True)]
    pictures = {"truth": list(batch.query_y), "known": known, "completed": list(prediction)}
    return {"probes": {name: [as_png(picture) for picture in those] for name, those in pictures.items()}}


def cells(settings: CompletionSettings, seeds: int) -> list[Cell]:
    """One run per number of known pixels, as in the authors' code; faces use random pixels only."""
    orders = settings.orders if isinstance(settings, Table2Settings) else ("random",)
    return [
        Cell({"method": method, "order": order, "known": known, "seed": seed})
        for order, method, known, seed in product(orders, settings.methods, settings.shots, range(seeds))
    ]

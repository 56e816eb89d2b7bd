"""The meta-steps that are raced: what every entrant computes, from the same weights and on the same batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch

import cavia
import completion
import fewshot
from cavia.models.base import ContextModel
from cavia.pictures.datasets import MINI_IMAGENET

DATA = Path("data")


@dataclass(frozen=True)
class Work:
    """One kind of meta-step: adapt to each task of a batch, take the outer gradient, clamp it, one step of Adam.

    method:   CAVIA (the context adapts) or MAML (the weights do).
    batch:    seed → a batch of tasks.
    chunk:    how many tasks our own step takes at a time if it is not compiled; None: all.
    compiled: whether our own step is worth compiling.
    compiled_chunk: how many tasks it takes at a time if it is.
    rounds:   how often each entrant is timed: a step of seconds less often than one of milliseconds.
    dtype:    in which the entrants' results are compared: float64 where rounding decides what a max-pool takes.
    data:     a sentence on the pictures, for the page.
    """

    method: str
    model: Callable[[], ContextModel]
    batch: Callable[[int], cavia.TaskBatch]
    loss: str
    inner_lr: float
    inner_steps: int
    chunk: int | None = None
    compiled: bool = True
    compiled_chunk: int | None = None
    rounds: int = 9
    dtype: torch.dtype = torch.float32
    data: Callable[[], str] = str

    def new_model(self) -> ContextModel:
        """The network, always with the same weights."""
        torch.manual_seed(0)
        return self.model()

    def learner(self) -> cavia.Learner:
        """Our learner around a new copy of the network."""
        kind = cavia.CAVIA if self.method == "CAVIA" else cavia.MAML
        return kind(self.new_model(), self.loss, self.inner_lr, self.inner_steps)

    def batches(self, count: int) -> list[cavia.TaskBatch]:
        """So many batches, always the same, in the default dtype."""
        return [_as_default(self.batch(seed)) for seed in range(count)]


def _as_default(batch: cavia.TaskBatch) -> cavia.TaskBatch:
    kind = torch.get_default_dtype()
    points = (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
    support_x, support_y, query_x, query_y = (part.to(kind) if part.is_floating_point() else part for part in points)
    return cavia.TaskBatch(support_x, support_y, query_x, query_y)


def sine_batch(seed: int, tasks: int = 25, points: int = 10) -> cavia.TaskBatch:
    return cavia.Sine().sample(tasks, points, points, torch.Generator().manual_seed(seed))


def sine_model(context: int, width: int = 40) -> cavia.MLP:
    return cavia.MLP(1, 1, hidden=(width, width), context=context)


def completion_batch(seed: int, known: int) -> cavia.TaskBatch:
    generator = torch.Generator().manual_seed(seed)
    return completion.faces().sample(completion.PICTURES, known, 1024, generator)


def conv_batch(seed: int, shots: int, tasks: int) -> cavia.TaskBatch:
    """Tasks of Mini-ImageNet, if it is there; else of noise."""
    if not has_mini_imagenet():
        return fewshot.pictures(shots, tasks)
    images = MINI_IMAGENET.open(DATA)
    family = cavia.Episodes(images, fewshot.WAYS, shots, fewshot.QUERIES, channels=3)
    return family.sample(tasks, family.support, family.query, torch.Generator().manual_seed(seed))


def has_mini_imagenet() -> bool:
    return (DATA / MINI_IMAGENET.folder).is_dir()


def conv_data() -> str:
    return " Tasks of Mini-ImageNet." if has_mini_imagenet() else " Pictures are noise: no Mini-ImageNet under data/."


def _sine(method: str) -> Work:
    if method == "CAVIA":
        return Work(method, partial(sine_model, 5), sine_batch, "mse", 1.0, 1, rounds=25)
    return Work(method, partial(sine_model, 0), sine_batch, "mse", 0.01, 1, rounds=25)


def _completion(known: int) -> Work:
    batch = partial(completion_batch, known=known)
    return Work("CAVIA", completion.new_model, batch, "mse", 1.0, completion.INNER_STEPS, compiled_chunk=5)


def _conv(method: str, filters: int, shots: int, tasks: int) -> Work:
    context, rate = (100, fewshot.INNER_LR) if method == "CAVIA" else (0, 0.01)
    model = partial(cavia.ConvNet, fewshot.WAYS, filters, context=context)
    batch = partial(conv_batch, shots=shots, tasks=tasks)
    make = partial(Work, method, model, batch, "cross_entropy", rate, fewshot.INNER_STEPS)
    return make(chunk=1, compiled=False, rounds=9 if filters < 128 else 3, dtype=torch.float64, data=conv_data)


WORK: Mapping[str, Work] = MappingProxyType(
    {
        "sine, CAVIA": _sine("CAVIA"),
        "sine, MAML": _sine("MAML"),
        "completion, 10 known pixels": _completion(10),
        "completion, 100 known pixels": _completion(100),
        "completion, 1000 known pixels": _completion(1000),
        "conv 32, 1-shot": _conv("CAVIA", 32, 1, 4),
        "conv 32, 5-shot": _conv("CAVIA", 32, 5, 2),
        "conv 32, 1-shot, MAML": _conv("MAML", 32, 1, 4),
        # Half the tasks, for the memory of all tasks at once in float64.
        "conv 128, 1-shot": _conv("CAVIA", 128, 1, 2),
        "conv 128, 5-shot": _conv("CAVIA", 128, 5, 1),
    }
)
QUICK: Sequence[str] = ("sine, CAVIA", "sine, MAML")

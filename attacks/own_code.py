"""Code that users write themselves, done wrong, a loss or a task family: an iteration of training must refuse it."""

from collections.abc import Callable, Iterator
from functools import partial
from inspect import isabstract
from typing import Any

import torch
from torch import Tensor

import cavia
from attacks.calls import right_arguments
from attacks.outcomes import Case
from attacks.values import INPUTS, LABELS, TARGETS, learner

# Losses of predictions and targets [T, N, ...] that are not one differentiable number for each point, [T, N].
LOSSES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "detached": lambda p, t: p.detach().flatten(2).square().mean(-1),
    "whole numbers": lambda p, t: (p > 0).flatten(2).sum(-1),
    "truth": lambda p, t: (p > 0).flatten(2).any(-1),
    "None": lambda p, t: None,
    "a number": lambda p, t: 0.5,
    "one for all": lambda p, t: p.mean(),
    "too many": lambda p, t: p.flatten(2).square(),
    "complex": lambda p, t: p.flatten(2).mean(-1) * 1j,
    "an array": lambda p, t: p.detach().flatten(2).mean(-1).numpy(),
    "not finite": lambda p, t: p.flatten(2).square().mean(-1) / 0,
    "gradient not finite": lambda p, t: (p - p.detach()).flatten(2).abs().sqrt().mean(-1),
}
# What `sample` returns in place of the points x, y twice, with the word that a message must have.
SAMPLES: dict[str, tuple[str, Callable[[Tensor, Tensor, str], Any]]] = {
    "a tuple": ("sample", lambda x, y, split: (x, y, x, y)),
    "None": ("sample", lambda x, y, split: None),
    "too few": ("sample", lambda x, y, split: cavia.TaskBatch(x[1:], y[1:], x[1:], y[1:])),
    "too many": ("sample", lambda x, y, split: cavia.TaskBatch(*2 * (x.repeat(2, 1, 1), y.repeat(2, 1, 1)))),
    "NaN": ("query_x", lambda x, y, split: cavia.TaskBatch(x, y, x * torch.nan, y)),
    "NaN to validate by": ("query_x", lambda x, y, split: cavia.TaskBatch(x, y, x * [1, torch.nan][split == "val"], y)),
    "too large": ("support_x", lambda x, y, split: cavia.TaskBatch(1e37 * x, y, x, y)),
    "complex": ("support_y", lambda x, y, split: cavia.TaskBatch(x, 1j * y, x, y)),
    "of no points": ("query", lambda x, y, split: cavia.TaskBatch(x, y, x[:, :0], y[:, :0])),
}


class Own(cavia.TaskFamily):
    """The points that `attacks.values` has, with numbers or two classes as targets, or spoilt in one way."""

    def __init__(self, classes: bool = False, spoilt: str = ""):
        self.classes, self.spoilt = classes, spoilt

    def sample(self, tasks: int, support: int, query: int, generator: Any, split: str = "train") -> Any:
        x, y = (value[:1].repeat(tasks, *[1] * (value.ndim - 1)) for value in (INPUTS, self._targets()))
        return SAMPLES[self.spoilt][1](x, y, split) if self.spoilt else cavia.TaskBatch(x, y, x, y)

    def _targets(self) -> Tensor:
        return LABELS if self.classes else TARGETS


def train(make: Callable[[], cavia.Learner], family: cavia.TaskFamily) -> Any:
    """One iteration: its result, and the learner that it leaves behind."""
    torch.manual_seed(0)
    made, few = make(), cavia.Validation(tasks=2)
    return cavia.fit(made, family, 1, tasks_per_batch=2, support=4, query=4, validation=few, progress=False), made


def cases() -> Iterator[Case]:
    """Every learner with every loss, asked of the package itself, and every family."""
    named = ((name, getattr(cavia, name)) for name in vars(cavia)["__all__"])
    kinds = ((name, kind) for name, kind in named if isinstance(kind, type) and issubclass(kind, cavia.Learner))
    for name, kind in kinds:
        arguments = {} if isabstract(kind) else right_arguments(name, kind)
        if isinstance(loss := arguments.get("loss"), str):
            family = Own(loss != "mse")
            for about, own in LOSSES.items():
                run = partial(train, partial(kind, **arguments | {"loss": own}), family)
                yield Case(f"fit({name})", "loss", about, run, "it was trained with")
    for about, (word, _) in SAMPLES.items():
        yield Case("fit(Own)", word, about, partial(train, learner, Own(spoilt=about)), "it was trained with")

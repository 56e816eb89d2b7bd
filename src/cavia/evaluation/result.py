"""The result of an evaluation, and the learner's mode during it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from cavia.evaluation.rounding import with_interval
from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner

RETURN, LIKELIEST = "return", "likeliest return"  # in an environment: with random actions, with the likeliest ones


@checked
@dataclass(frozen=True)
class Evaluation:
    """Scores of T tasks after 0, 1, … S gradient steps.

    metric:   "accuracy", "return" and "likeliest return": higher is better; otherwise an error (lower is better).
    scores:   [S + 1, T]
    mean:     [S + 1]  over tasks
    interval: [S + 1]  half width of the 95 % interval of the mean
    tasks:    [T, ...]  in an environment: the tasks
    adapted:  in an environment: the result of the last step
    """

    metric: str
    scores: Tensor
    tasks: Tensor | None = None
    adapted: Adapted | None = None

    @property
    def mean(self) -> Tensor:
        return self.scores.mean(1)

    @property
    def interval(self) -> Tensor:
        return half_width(self.scores)

    @property
    def higher_is_better(self) -> bool:
        return self.metric in ("accuracy", RETURN, LIKELIEST)

    def __str__(self) -> str:
        pairs = zip(self.mean.tolist(), self.interval.tolist(), strict=True)
        return "\n".join(
            f"{self.metric} after {step} step{'s' * (step != 1)}: {with_interval(mean, width, 4)}"
            for step, (mean, width) in enumerate(pairs)
        )


def half_width(scores: Tensor) -> Tensor:
    """Half width of the 95 % interval of the mean over the last axis: [..., T] → [...]."""
    count = scores.shape[-1]
    if count < 2:
        return torch.full(scores.shape[:-1], float("nan"))
    return 1.96 * scores.std(-1) / count**0.5


@contextmanager
def evaluating(learner: Learner) -> Iterator[None]:
    """Inside, the learner is in evaluation mode; afterwards, in its previous mode."""
    was_training = learner.training
    learner.eval()
    try:
        yield
    finally:
        learner.train(was_training)


def device_of(learner: Learner) -> torch.device:
    """The device of the learner's parameters."""
    tensors = (*learner.parameters(), *learner.buffers())
    return tensors[0].device if tensors else torch.device("cpu")

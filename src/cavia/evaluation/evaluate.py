"""Scores on unseen tasks after every number of gradient steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from cavia.errors import require_at_least
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.losses import accuracy, mean_over_points, without_padding
from cavia.tasks.batch import TaskBatch, TaskFamily, seeded_generator


@dataclass(frozen=True)
class Evaluation:
    """Scores of T tasks after 0, 1, … S gradient steps.

    metric:   "accuracy" for classification or "return" (higher is better), otherwise the loss (lower is better).
    scores:   [S + 1, T]
    mean:     [S + 1]  over tasks
    interval: [S + 1]  half width of the 95 % interval of the mean
    """

    metric: str
    scores: Tensor

    @property
    def mean(self) -> Tensor:
        return self.scores.mean(1)

    @property
    def interval(self) -> Tensor:
        return half_width(self.scores)

    @property
    def higher_is_better(self) -> bool:
        return self.metric in ("accuracy", "return")

    def __str__(self) -> str:
        pairs = zip(self.mean.tolist(), self.interval.tolist(), strict=True)
        return "\n".join(
            f"{self.metric} after {step} steps: {mean:.4f} ± {width:.4f}" for step, (mean, width) in enumerate(pairs)
        )


def half_width(scores: Tensor) -> Tensor:
    """Half width of the 95 % interval of the mean over the last axis: [..., T] → [...]."""
    count = scores.shape[-1]
    if count < 2:
        return torch.full(scores.shape[:-1], float("nan"))
    return 1.96 * scores.std(-1) / count**0.5


@torch.no_grad()
def evaluate(
    learner: Learner,
    family: TaskFamily,
    tasks: int = 1000,
    support: int | None = None,
    query: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    split: str = "test",
    chunk: int | None = None,
) -> Evaluation:
    """Adapt to unseen tasks and score them on their query points.

    support, query: points per task, by default the family's own numbers if it has them, else 10 and 100.
    steps: gradient steps, by default as many as in training; every number from 0 to it is scored.
    seed:  which tasks are drawn from the split.
    chunk: tasks at a time, to bound memory; by default all at once.
    """
    require_at_least("tasks", tasks, 1)
    steps = require_at_least("steps", learner.inner_steps if steps is None else steps, 0)
    chunk = require_at_least("chunk", tasks if chunk is None else chunk, 1)
    support = getattr(family, "support", 10) if support is None else support
    query = getattr(family, "query", 100) if query is None else query
    at_a_time = getattr(family, "at_a_time", tasks)  # what is held in memory; never more for a larger number of tasks
    generator, scores = seeded_generator(seed, split), []
    with evaluating(learner):
        for start in range(0, tasks, at_a_time):
            batch = family.sample(min(at_a_time, tasks - start), support, query, generator, split)
            scores += [_scores(learner, part.to(device_of(learner)), steps) for part in batch.split(chunk)]
    return Evaluation("accuracy" if learner.loss == "cross_entropy" else _name(learner), torch.cat(scores, 1).cpu())


@contextmanager
def evaluating(learner: Learner) -> Iterator[None]:
    """The learner in evaluation mode inside, and as it was afterwards."""
    was_training = learner.training
    learner.eval()
    try:
        yield
    finally:
        learner.train(was_training)


def device_of(learner: Learner) -> torch.device:
    """Where the learner's parameters are."""
    tensors = (*learner.parameters(), *learner.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def _scores(learner: Learner, batch: TaskBatch, steps: int) -> Tensor:
    """[steps + 1, T]"""
    learner.check_mask(batch.query_mask)
    scores, adapted = [], None
    for step in range(steps + 1):
        adapted = _advance(learner, batch, adapted, steps=min(step, 1))
        prediction = learner.predict(without_padding(batch.query_x, batch.query_mask), adapted)
        if learner.loss == "cross_entropy":
            scores.append(mean_over_points(accuracy(prediction, batch.query_y), batch.query_mask))
        else:
            scores.append(learner.mean_loss(prediction, batch.query_y, batch.query_mask))
    return torch.stack(scores)


def _advance(learner: Learner, batch: TaskBatch, start: Adapted | None, steps: int) -> Adapted:
    return learner.adapt(batch.support_x, batch.support_y, batch.support_mask, steps=steps, start=start)


def _name(learner: Learner) -> str:
    return learner.loss if isinstance(learner.loss, str) else "loss"

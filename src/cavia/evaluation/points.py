"""Scores on the query points of unseen tasks after every number of gradient steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cavia.errors import CaviaError, call_of_user, require_one_of, shown
from cavia.evaluation.result import Evaluation, device_of
from cavia.learners.base import Learner
from cavia.learners.losses import PointLoss, accuracy, mean_over_points, mse, without_padding
from cavia.tasks.batch import TaskBatch, TaskFamily, seeded_generator
from cavia.tasks.points import shape

SCORES: dict[str, PointLoss | None] = {"accuracy": accuracy, "mse": mse, "loss": None}
Metric: TypeAlias = str | PointLoss


def drawn(
    family: TaskFamily, tasks: int, support: int, query: int, seed: int, split: str, chunk: int | None
) -> Iterator[TaskBatch]:
    """The tasks, a chunk at a time; memory does not grow with their number."""
    at_a_time = family.at_a_time or tasks
    generator = seeded_generator(seed, split)
    for start in range(0, tasks, at_a_time):
        batch = family.sample(min(at_a_time, tasks - start), support, query, generator, split)
        yield from batch.split(chunk or tasks)


def scores(learner: Learner, batches: Iterator[TaskBatch], steps: int, metrics: Sequence[Any]) -> list[Evaluation]:
    """`evaluate` on a family: one evaluation per metric, all from the same adaptations."""
    names: list[str] = []
    values: list[list[Tensor]] = [[] for _ in metrics]
    for batch in batches:
        batch = batch.to(device_of(learner))
        predictions = _predictions(learner, batch, steps)
        scored = [_metric(one, learner, predictions[0], batch.query_y) for one in metrics]
        names = [name for name, _ in scored]
        for kept, (_, score) in zip(values, scored, strict=True):
            kept.append(torch.stack([score(one, batch) for one in predictions]))
            if not kept[-1].isfinite().all() and (fault := batch.fault()):
                raise CaviaError(f"the tasks cannot be scored: {fault}")
    return [Evaluation(name, torch.cat(parts, 1).cpu()) for name, parts in zip(names, values, strict=True)]


def _predictions(learner: Learner, batch: TaskBatch, steps: int) -> list[Tensor]:
    """Predictions for the query points after 0 … steps gradient steps, each [T, N, ...]."""
    learner.check_mask(batch.query_mask)
    if not batch.query_y.shape[1]:
        raise CaviaError(f"a score needs at least 1 query point, got query_x {shape(batch.query_x)}")
    predictions, adapted = [], None
    for step in range(steps + 1):
        adapted = learner.adapt(batch.support_x, batch.support_y, batch.support_mask, min(step, 1), start=adapted)
        predictions.append(learner.predict(without_padding(batch.query_x, batch.query_mask), adapted))
    return predictions


def _metric(
    metric: Any, learner: Learner, prediction: Tensor, target: Tensor
) -> tuple[str, Callable[[Tensor, TaskBatch], Tensor]]:
    """The metric's name, and the function that scores predictions for a batch, → [T]."""
    if metric is None:
        metric = "accuracy" if _is_classification(prediction, target) else "loss"
    if metric == "loss":
        name = learner.loss if isinstance(learner.loss, str) else "loss"
        return name, lambda prediction, batch: learner.mean_loss(prediction, batch.query_y, batch.query_mask)
    if not callable(metric):
        require_one_of("metric", metric, SCORES)
    function: Any = metric if callable(metric) else SCORES[metric]

    def score(prediction: Tensor, batch: TaskBatch) -> Tensor:
        target = without_padding(batch.query_y, batch.query_mask)
        values = call_of_user("metric", function, prediction, target)
        if not isinstance(values, Tensor):
            raise CaviaError(f"the metric must return a tensor, one value per point, got {shown(values)}")
        if values.shape != batch.query_y.shape[:2]:
            wanted, got = list(batch.query_y.shape[:2]), list(values.shape)
            raise CaviaError(f"the metric must return one value per point, {wanted}; it returned {got}")
        if values.is_complex():
            raise CaviaError(f"the metric must return real numbers, got {values.dtype}")
        return mean_over_points(values if values.is_floating_point() else values.float(), batch.query_mask)

    return metric if isinstance(metric, str) else getattr(metric, "__name__", "metric"), score


def _is_classification(prediction: Tensor, target: Tensor) -> bool:
    """Whether targets [T, N] are whole numbers and predictions [T, N, classes] one logit for each class."""
    whole = not target.is_floating_point() and target.dtype != torch.bool
    return whole and target.ndim == 2 and prediction.ndim == 3 and prediction.shape[-1] > 1

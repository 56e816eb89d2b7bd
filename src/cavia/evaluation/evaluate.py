"""Scores on unseen tasks after every number of gradient steps."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor

from cavia.envs.base import TaskEnv
from cavia.errors import CaviaError, require_at_least, require_one_of
from cavia.learners.acting import Updates
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.losses import PointLoss, accuracy, mean_over_points, mse, without_padding
from cavia.tasks.batch import TaskBatch, TaskFamily, seeded_generator

RETURN, LIKELIEST = "return", "likeliest return"
RETURNS = (RETURN, LIKELIEST)  # in an environment
SCORES: dict[str, PointLoss | None] = {"accuracy": accuracy, "mse": mse, "loss": None}  # on points
Metric: TypeAlias = str | PointLoss


@dataclass(frozen=True)
class Evaluation:
    """Scores of T tasks after 0, 1, … S gradient steps.

    metric:   "accuracy", "return" and "likeliest return": higher is better; otherwise an error (lower is better).
    scores:   [S + 1, T]
    mean:     [S + 1]  over tasks
    interval: [S + 1]  half width of the 95 % interval of the mean
    tasks:    [T, ...]  in an environment: which tasks
    adapted:  name → [T, ...]  in an environment: what the last step led to
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
        return self.metric in ("accuracy", *RETURNS)

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


@overload
def evaluate(
    learner: Learner,
    source: TaskFamily | TaskEnv,
    tasks: int | None = None,
    support: int | None = None,
    query: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    split: str = "test",
    chunk: int | None = None,
    metric: Metric | None = None,
    updates: Updates | None = None,
) -> Evaluation: ...


@overload
def evaluate(
    learner: Learner,
    source: TaskFamily | TaskEnv,
    tasks: int | None = None,
    support: int | None = None,
    query: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    split: str = "test",
    chunk: int | None = None,
    *,
    metric: list[Metric] | list[str],
    updates: Updates | None = None,
) -> list[Evaluation]: ...


@torch.no_grad()
def evaluate(
    learner: Learner,
    source: TaskFamily | TaskEnv,
    tasks: int | None = None,
    support: int | None = None,
    query: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    split: str = "test",
    chunk: int | None = None,
    metric: Metric | list[Metric] | list[str] | None = None,
    updates: Updates | None = None,
) -> Evaluation | list[Evaluation]:
    """Adapt to unseen tasks and score them, in evaluation mode.

    source:         a task family, or an environment (`cavia.envs`) if the learner's model is a policy.
    tasks:          how many, by default 1000, in an environment 40.
    support, query: points per task, by default the family's own numbers if it has them, else 10 and 100.
                    In an environment: episodes of each task before each step, by default 20, and after the last, by
                    default as many.
    steps:          gradient steps, by default as many as in training; every number from 0 to it is scored.
    seed:           which tasks are drawn from the split.
    chunk:          tasks at a time, to bound memory; by default all at once.
    metric:         None: accuracy if the targets are classes, otherwise the learner's loss. Or "accuracy", "mse",
                    "loss", or a function of predictions and targets [T, N, ...] → [T, N].
                    In an environment: "return", with random actions of the policy, or "likeliest return", with its
                    likeliest actions.
                    A list of metrics gives a list of evaluations, on the same tasks and adaptations.
    updates:        in an environment, how the policy is updated.
    """
    if tasks is not None:
        require_at_least("tasks", tasks, 1)
    steps = require_at_least("steps", learner.inner_steps if steps is None else steps, 0)
    if chunk is not None:
        require_at_least("chunk", chunk, 1)
    metrics: list[Any] = list(metric) if isinstance(metric, list) else [metric]
    with evaluating(learner):
        if isinstance(source, TaskEnv):
            from cavia.evaluation.returns import returns

            names = [_of_returns(one) for one in metrics]
            episodes = 20 if support is None else support
            sizes = (40 if tasks is None else tasks, episodes, episodes if query is None else query, steps)
            found = returns(learner, source, *sizes, seed, split, chunk, names, updates or Updates())
        else:
            support = getattr(source, "support", 10) if support is None else support
            query = getattr(source, "query", 100) if query is None else query
            drawn = _drawn(source, 1000 if tasks is None else tasks, support, query, seed, split, chunk)
            found = _points(learner, drawn, steps, metrics)
    return found if isinstance(metric, list) else found[0]


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


def _of_returns(metric: Any) -> str:
    if metric is None:
        return RETURN
    require_one_of("metric in an environment", metric, RETURNS)
    return metric


def _drawn(
    family: TaskFamily, tasks: int, support: int, query: int, seed: int, split: str, chunk: int | None
) -> Iterator[TaskBatch]:
    """The tasks, a chunk at a time; never more in memory for a larger number of tasks than the family says."""
    at_a_time = getattr(family, "at_a_time", tasks)
    generator = seeded_generator(seed, split)
    for start in range(0, tasks, at_a_time):
        batch = family.sample(min(at_a_time, tasks - start), support, query, generator, split)
        yield from batch.split(chunk or tasks)


def _points(learner: Learner, drawn: Iterator[TaskBatch], steps: int, metrics: Sequence[Any]) -> list[Evaluation]:
    """An evaluation for each metric."""
    names: list[str] = []
    scores: list[list[Tensor]] = [[] for _ in metrics]
    for batch in drawn:
        batch = batch.to(device_of(learner))
        predictions = _predictions(learner, batch, steps)
        found = [_metric(one, learner, predictions[0], batch.query_y) for one in metrics]
        names = [name for name, _ in found]
        for kept, (_, score) in zip(scores, found, strict=True):
            kept.append(torch.stack([score(one, batch) for one in predictions]))
    return [Evaluation(name, torch.cat(parts, 1).cpu()) for name, parts in zip(names, scores, strict=True)]


def _predictions(learner: Learner, batch: TaskBatch, steps: int) -> list[Tensor]:
    """For the query points after 0 … steps gradient steps, each [T, N, ...]."""
    learner.check_mask(batch.query_mask)
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
        values = function(prediction, without_padding(batch.query_y, batch.query_mask))
        if values.shape != batch.query_y.shape[:2]:
            wanted, got = list(batch.query_y.shape[:2]), list(values.shape)
            raise CaviaError(f"the metric must return one value per point, {wanted}; it returned {got}")
        return mean_over_points(values, batch.query_mask)

    return metric if isinstance(metric, str) else getattr(metric, "__name__", "metric"), score


def _is_classification(prediction: Tensor, target: Tensor) -> bool:
    """Whether targets [T, N] are whole numbers and predictions [T, N, classes] one logit for each class."""
    whole = not target.is_floating_point() and target.dtype != torch.bool
    return whole and target.ndim == 2 and prediction.ndim == 3 and prediction.shape[-1] > 1

"""`cavia.evaluate`: scores on unseen tasks after every number of gradient steps."""

from typing import Any, overload

import torch

from cavia.envs.base import TaskEnv
from cavia.errors import require_at_least, require_one_of, require_steps
from cavia.evaluation.points import Metric, drawn, scores
from cavia.evaluation.result import LIKELIEST, RETURN, Evaluation, device_of, evaluating, half_width
from cavia.evaluation.returns import returns
from cavia.kinds import checked
from cavia.learners.acting import Updates
from cavia.learners.base import Learner
from cavia.tasks.batch import SPLITS, TaskFamily

__all__ = ["LIKELIEST", "RETURN", "Evaluation", "device_of", "evaluate", "evaluating", "half_width"]


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


@checked
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
    steps:          gradient steps, by default as many as in training; scored after each, from 0 on.
    seed:           determines which tasks of the split are drawn.
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
    steps = require_steps("steps", learner.inner_steps if steps is None else steps)
    for name, value, least in (("chunk", chunk, 1), ("support", support, 1), ("query", query, 0)):
        if value is not None:
            require_at_least(name, value, least)
    require_at_least("seed", seed, 0)
    require_one_of("split", split, SPLITS)
    metrics: list[Any] = list(metric) if isinstance(metric, list) else [metric]
    with evaluating(learner):
        if isinstance(source, TaskEnv):
            names = [_of_returns(one) for one in metrics]
            episodes = 20 if support is None else support
            sizes = (40 if tasks is None else tasks, episodes, episodes if query is None else query, steps)
            evaluations = returns(learner, source, *sizes, seed, split, chunk, names, updates or Updates())
        else:
            support = (source.support or 10) if support is None else support
            query = (source.query or 100) if query is None else query
            batches = drawn(source, 1000 if tasks is None else tasks, support, query, seed, split, chunk)
            evaluations = scores(learner, batches, steps, metrics)
    return evaluations if isinstance(metric, list) else evaluations[0]


def _of_returns(metric: Any) -> str:
    if metric is None:
        return RETURN
    require_one_of("metric in an environment", metric, (RETURN, LIKELIEST))
    return metric

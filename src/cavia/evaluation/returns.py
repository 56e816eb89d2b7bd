"""Returns of a policy on unseen tasks after every number of updates."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cavia.envs.base import TaskEnv
from cavia.envs.rollouts import collect
from cavia.errors import require_at_least
from cavia.evaluation.result import LIKELIEST, RETURN, Evaluation, device_of
from cavia.learners.acting import Stage, Updates, actor, adapt_in, check_fits
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.gradient import GradientLearner
from cavia.tasks.batch import seeded_generator


def returns(
    learner: Learner,
    env: TaskEnv,
    tasks: int,
    support: int,
    query: int,
    steps: int,
    seed: int,
    split: str,
    chunk: int | None,
    metrics: Sequence[str],
    updates: Updates,
) -> list[Evaluation]:
    """`evaluate` in an environment: one evaluation per metric, all from the same updates."""
    check_fits(learner, env)
    assert isinstance(learner, GradientLearner)  # check_fits raises otherwise
    for name, value in (("support", support), ("query", query)):
        require_at_least(name, value, 1)
    generator = seeded_generator(seed, f"returns {split}")
    drawn = env.sample_tasks(tasks, generator, split).to(device_of(learner))
    parts = []  # per chunk: metric → [S + 1, T], and the adapted policies
    for part in drawn.split(chunk or tasks):
        stages = adapt_in(learner, env, part, support, steps, generator, updates, query)
        scores = {RETURN: torch.stack([stage.episodes.returns for stage in stages])}
        if LIKELIEST in metrics:
            scores[LIKELIEST] = _likeliest(learner, env, part, stages, generator)
        parts.append((scores, stages[-1].adapted))
    adapted = Adapted.cat([part for _, part in parts]).to("cpu")
    return [
        Evaluation(name, torch.cat([scores[name] for scores, _ in parts], 1).cpu(), drawn.cpu(), adapted)
        for name in metrics
    ]


def _likeliest(
    learner: GradientLearner, env: TaskEnv, tasks: Tensor, stages: Sequence[Stage], generator: torch.Generator
) -> Tensor:
    """Returns [S + 1, T] with the policy's likeliest actions, over as many episodes as each stage has."""
    counts = [stage.episodes.rewards.shape[1] for stage in stages]
    return torch.stack(
        [
            collect(env, tasks, actor(learner, stage.adapted, generator, mean=True), count, generator).returns
            for stage, count in zip(stages, counts, strict=True)
        ]
    )

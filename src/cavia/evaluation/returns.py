"""Returns on unseen tasks after every number of updates."""

from typing import NamedTuple

import torch
from torch import Tensor

from cavia.envs.base import TaskEnv
from cavia.envs.rollouts import collect
from cavia.errors import require_at_least
from cavia.evaluation.evaluate import Evaluation, device_of
from cavia.learners.acting import actor, adapt_in, check_fits
from cavia.learners.adapted import Adapted
from cavia.learners.gradient import GradientLearner
from cavia.tasks.batch import seeded_generator


class Returns(NamedTuple):
    """The mean return of each task's episodes after 0 … S updates.

    sampled: with random actions of the policy, scores [S + 1, T]
    mean:    with its likeliest actions; the updates are those of `sampled`
    tasks:   [T, ...]
    adapted: after the last update
    """

    sampled: Evaluation
    mean: Evaluation
    tasks: Tensor
    adapted: Adapted


def evaluate_returns(
    learner: GradientLearner,
    env: TaskEnv,
    tasks: int = 40,
    rollouts: int = 20,
    steps: int = 2,
    discount: float = 0.95,
    trace: float = 1.0,
    later_rate: float = 1.0,
    seed: int = 0,
    split: str = "test",
) -> Returns:
    """Adapt to `tasks` tasks of the split by `steps` updates, each on `rollouts` new episodes, and score every stage.

    discount, trace: γ and λ of the advantages.
    later_rate: factor of the inner rate after the first update; the paper halves MAML's.
    """
    check_fits(learner, env)
    for name, value, least in (("tasks", tasks, 1), ("rollouts", rollouts, 1), ("steps", steps, 0)):
        require_at_least(name, value, least)
    generator = seeded_generator(seed, f"returns {split}")
    drawn = env.sample_tasks(tasks, generator, split).to(device_of(learner))
    stages = adapt_in(learner, env, drawn, rollouts, steps, generator, discount, trace, later_rate)
    sampled = [stage.episodes.returns for stage in stages]
    mean = [
        collect(env, drawn, actor(learner, stage.adapted, generator, mean=True), rollouts, generator).returns
        for stage in stages
    ]
    return Returns(
        Evaluation("return", torch.stack(sampled).cpu()),
        Evaluation("return", torch.stack(mean).cpu()),
        drawn.cpu(),
        stages[-1].adapted.to("cpu"),
    )

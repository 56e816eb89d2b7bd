"""The batches of a training run in an environment: episodes before and after adaptation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cavia import building
from cavia.envs.base import TaskEnv
from cavia.envs.gym import GymTasks
from cavia.errors import CaviaError, require_at_least
from cavia.evaluation.evaluate import device_of, evaluating
from cavia.learners.acting import MetaBatch, Stage, Updates, adapt_in, check_fits
from cavia.learners.gradient import GradientLearner
from cavia.tasks.batch import seeded_generator
from cavia.tasks.share import Share
from cavia.training.feed import Feed, Scored, Sizes, Validation, describe_source
from cavia.training.outer import Metrics


@dataclass(frozen=True)
class EpisodeBlock:
    """One batch of tasks with their episodes."""

    batch: MetaBatch
    metrics: Metrics = field(default_factory=dict)
    count: int = 1

    def __getitem__(self, number: int) -> MetaBatch:
        return self.batch

    def fault(self, number: int) -> str | None:
        return None  # collecting refuses episodes that are not finite


class EpisodeFeed(Feed):
    """New tasks of an environment, with episodes before each inner step and after the last."""

    gives = MetaBatch
    waits = True  # for simulators on other threads
    line_every = 1
    learner: GradientLearner

    def __init__(
        self,
        learner: GradientLearner,
        env: TaskEnv,
        tasks_per_batch: int | None = None,
        support: int | Sequence[int] | None = None,
        query: int | None = None,
        validation: Validation | None = None,
        seed: int = 0,
        updates: Updates | None = None,
    ):
        support = 20 if support is None else support
        if isinstance(support, Sequence):
            raise CaviaError(f"support must be one number of episodes in an environment, got {support}")
        require_at_least("support", support, 1)
        query = require_at_least("query", support if query is None else query, 1)
        sizes = Sizes(20 if tasks_per_batch is None else tasks_per_batch, support, query)
        super().__init__(learner, sizes, (validation or Validation()).filled(20, 10, sizes.query), seed)
        require_at_least("validation query", self.validation.query, 1)
        check_fits(learner, env)
        self.may_draw = building.module_of(type(env)) is not None or isinstance(env, GymTasks)
        self.env, self.updates, self.rollouts = env, updates or Updates(), support
        rate = self.updates.later_rate
        if rate != 1:
            raise CaviaError(f"later_rate is for evaluate: in training all inner updates have one rate, got {rate}")

    def as_config(self) -> dict[str, Any]:
        """Leaves out settings that match earlier versions' behaviour, so that their folders resume."""
        query, scored = self.sizes.query, self.validation.query
        return {
            "environment": describe_source(self.env),
            "tasks_per_batch": self.sizes.tasks_per_batch,
            "rollouts": self.rollouts,
            **({} if query == self.rollouts else {"query_rollouts": query}),
            "discount": self.updates.discount,
            "trace": self.updates.trace,
            "seed": self.seed,
            "every": self.validation.every,
            "validation_tasks": self.validation.tasks,
            **({} if scored == query else {"validation_query_rollouts": scored}),
        }

    def draw(self) -> EpisodeBlock:
        stages = self._stages(self.sizes.tasks_per_batch, self.sizes.query, self.generator, "train", self.share)
        query, last = stages[-1].points, stages[-1].episodes.returns.double()  # [T]
        returns = torch.tensor(
            [_return(stages[0]), _return(stages[-1]), last.square().mean().item()], dtype=torch.float64
        )
        before, after, squares = self.ranks.mean(returns, len(last)).tolist()
        std = max(squares - after**2, 0.0) ** 0.5
        gain = ((last - after) / max(std, 1e-8)).to(query.x)
        batch = MetaBatch([stage.points for stage in stages[:-1]], query, gain)
        return EpisodeBlock(batch, {"return_before": before, "return_after": after})

    def validate(self) -> Scored:
        with evaluating(self.learner):
            generator = seeded_generator(self.seed, "val")
            stages = self._stages(self.validation.tasks, self.validation.query, generator, "val")
        return Scored(_return(stages[-1]), True, {"validation_before": _return(stages[0])})

    def _stages(
        self, tasks: int, query: int, generator: torch.Generator, split: str, share: Share | None = None
    ) -> list[Stage]:
        """New tasks, or this rank's share of them, before each inner step and after the last."""
        drawn = self.env.sample_tasks(tasks, generator, split).to(device_of(self.learner))
        return adapt_in(
            self.learner,
            self.env,
            drawn,
            self.rollouts,
            self.learner.inner_steps,
            generator,
            self.updates,
            query,
            share,
        )

    def source_state(self) -> dict[str, Tensor]:
        return self.env.state()

    def load_source_state(self, state: Mapping[str, Tensor]) -> None:
        self.env.load_state(state)


def _return(stage: Stage) -> float:
    return stage.episodes.returns.mean().item()

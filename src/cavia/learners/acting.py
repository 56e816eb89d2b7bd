"""A learner in an environment: its actions, and the steps of episodes as points to adapt on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cavia.envs.advantages import advantages
from cavia.envs.base import TaskEnv
from cavia.envs.rollouts import Rollouts, collect, collect_share
from cavia.errors import CaviaError, Diverged, require_positive, require_share
from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.gradient import GradientLearner
from cavia.models.policy import Policy
from cavia.tasks.share import Share


@dataclass(frozen=True)
class Points:
    """The steps of R episodes of each task as points: N = R·H, episode after episode.

    x:    [T, N, observations]; for a learner that draws L numbers once an episode [T, N, observations + L + 1]:
          beside each observation stand the episode's numbers, and its credit last
    y:    [T, N, A + 1]  the action that was taken, and its advantage last
    mask: [T, N] bool    False after the end of an episode
    """

    x: Tensor
    y: Tensor
    mask: Tensor

    @classmethod
    def of(
        cls,
        rollouts: Rollouts,
        discount: float,
        trace: float,
        dtype: torch.dtype = torch.float32,
        noise: Tensor | None = None,
    ) -> "Points":
        """Rollouts with their advantages (GAE with discount γ and trace λ).

        noise: [T, R, L], what was drawn once an episode.
        """
        advantage = advantages(rollouts, discount, trace)
        actions = rollouts.actions if rollouts.actions.ndim == 4 else rollouts.actions.unsqueeze(-1)
        y = torch.cat([actions.to(dtype), advantage.to(dtype).unsqueeze(-1)], -1)
        x = rollouts.observations.to(dtype)
        if noise is not None:
            x = torch.cat([x, _of_episodes(noise, advantage).to(dtype).unsqueeze(2).expand(-1, -1, x.shape[2], -1)], -1)
        return cls(x.flatten(1, 2), y.flatten(1, 2), rollouts.mask.flatten(1))

    def split(self, chunk: int) -> "Iterator[Points]":
        """The tasks in order, at most `chunk` at a time."""
        for x, y, mask in zip(self.x.split(chunk), self.y.split(chunk), self.mask.split(chunk), strict=True):
            yield Points(x, y, mask)

    def every(self, steps: int) -> "Points":
        """Every k-th point."""
        return self if steps == 1 else Points(self.x[:, ::steps], self.y[:, ::steps], self.mask[:, ::steps])


def _of_episodes(noise: Tensor, advantages: Tensor) -> Tensor:
    """What was drawn once an episode [T, R, L], and the credit for it last: [T, R, L + 1].

    The credit is the advantage of the first step [T, R, H], with mean 0 and standard deviation 1 over a task's
    episodes: what is drawn before the first step is answerable for all that follows.
    """
    centred = advantages[:, :, 0] - advantages[:, :, 0].mean(1, keepdim=True)
    std = centred.square().mean(1, keepdim=True).sqrt()
    return torch.cat([noise, (centred / std.clamp(min=1e-8)).to(noise).unsqueeze(-1)], -1)


@dataclass(frozen=True)
class MetaBatch:
    """T tasks: the episodes before each inner step, and those after the last.

    support: one set of points for each inner step
    query:   of the adapted policy
    gain:    [T], each task's return after the last step, with mean 0 and standard deviation 1 over the batch
    """

    support: Sequence[Points]
    query: Points
    gain: Tensor | None = None

    def __len__(self) -> int:
        """The number of tasks, T."""
        return len(self.query.x)

    def split(self, chunk: int) -> "Iterator[MetaBatch]":
        """The tasks in order, at most `chunk` at a time."""
        gains = [None] * len(self) if self.gain is None else self.gain.split(chunk)
        parts = zip(*(points.split(chunk) for points in (self.query, *self.support)), strict=True)
        for (query, *support), gain in zip(parts, gains, strict=False):
            yield MetaBatch(support, query, gain)

    def every(self, steps: int) -> "MetaBatch":
        """Every k-th step of the episodes."""
        return MetaBatch([points.every(steps) for points in self.support], self.query.every(steps), self.gain)


def policy_of(learner: Learner) -> Policy:
    """The learner's policy; an error if it has none."""
    if not isinstance(learner.model, Policy):
        raise CaviaError(
            f"the learner's model must be a policy (cavia.GaussianPolicy), got {type(learner.model).__name__}"
        )
    return learner.model


def check_fits(learner: Learner, env: TaskEnv) -> None:
    """Raise unless the learner adapts by gradient and its policy takes the environment's observations and actions."""
    if not isinstance(learner, GradientLearner):
        raise CaviaError(f"{type(learner).__name__} does not adapt by gradient; use cavia.CAVIA or cavia.MAML")
    if type(learner).forward is not Learner.forward:
        raise CaviaError(f"{type(learner).__name__} has an outer loss of its own, not a policy's; use cavia.MAML")
    policy, name = policy_of(learner), type(env).__name__
    if learner.loss != policy.loss:
        raise CaviaError(f"the loss of a {type(policy).__name__} is {policy.loss!r}, got {learner.loss!r}")
    if policy.discrete != env.discrete:
        right = "CategoricalPolicy" if env.discrete else "GaussianPolicy"
        raise CaviaError(f"{name} needs a {right}, got a {type(policy).__name__}")
    for what in ("observations", "actions"):
        ours, theirs = getattr(policy, what), getattr(env, what)
        if ours != theirs:
            raise CaviaError(f"{name} has {theirs} {what}, the policy {ours}; make it with {what}={theirs}")


def drawn_once(
    learner: GradientLearner, tasks: int, rollouts: int, generator: torch.Generator, share: Share | None = None
) -> Tensor | None:
    """Standard normal numbers [T, R, L] for the episodes of a learner that draws once an episode; else nothing."""
    if not learner.drawn_once:
        return None
    like = next(learner.parameters())
    size = (tasks if share is None else share.tasks, rollouts, learner.drawn_once)
    noise = torch.randn(size, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)
    return noise if share is None else noise[share.start : share.stop]


def actor(
    learner: GradientLearner,
    adapted: Adapted,
    generator: torch.Generator,
    mean: bool = False,
    share: Share | None = None,
    noise: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """Observations [T, R, observations] → actions [T, R, actions] (int64 [T, R] if discrete) of the adapted tasks.

    mean:  take the likeliest action instead of a random one.
    share: these are part of a larger batch of tasks, and random actions are those that they would have there.
    noise: [T, R, L], what `drawn_once` gave for these episodes; without it what is drawn is at its mean.
    """
    policy, dtype = policy_of(learner), next(learner.parameters()).dtype
    fast = {name: adapted[name] for name in learner.fast_names}

    def draw(prediction: Tensor) -> Tensor:
        if share is None:
            return policy.sample(prediction, generator)
        whole = prediction.new_zeros(share.tasks, *prediction.shape[1:])
        whole[share.start : share.stop] = prediction
        return policy.sample(whole, generator)[share.start : share.stop]

    def act(observation: Tensor) -> Tensor:
        x = observation.to(dtype)
        if noise is not None:
            x = torch.cat([x, noise, torch.zeros_like(noise[..., :1])], -1)
        prediction = learner.predictor(x)(fast)  # `predict` without checks, once per time step
        if prediction.isfinite().all():
            action = policy.mode(prediction) if mean else draw(prediction)
            if action.isfinite().all():  # a huge standard deviation is a finite prediction
                return action
        raise Diverged(f"{type(learner).__name__}: the policy diverged; try a smaller inner_lr")

    return act


@checked
@dataclass(frozen=True)
class Updates:
    """How a policy's inner updates are made.

    discount, trace: γ and λ of the advantages (GAE).
    later_rate:      factor of the inner rate after the first update, in testing; the paper halves MAML's.
    """

    discount: float = 0.95
    trace: float = 1.0
    later_rate: float = 1.0

    def __post_init__(self) -> None:
        require_share("discount", self.discount)
        require_share("trace", self.trace)
        require_positive("later_rate", self.later_rate)


class Stage(NamedTuple):
    """T tasks after some number of updates.

    adapted:  the T tasks
    episodes: R of each task, with random actions of the policy at this stage
    points:   their steps, what the next update is made on
    """

    adapted: Adapted
    episodes: Rollouts
    points: Points


def adapt_in(
    learner: GradientLearner,
    env: TaskEnv,
    tasks: Tensor,
    rollouts: int,
    steps: int,
    generator: torch.Generator,
    updates: Updates | None = None,
    query: int | None = None,
    share: Share | None = None,
) -> list[Stage]:
    """The stages after 0 … steps updates to the tasks [T, ...], each update on `rollouts` new episodes of each task.

    query: episodes after the last update, by default as many.
    share: of the tasks; the stages are those of these alone, and what is random is as if all were there.
    """
    dtype, updates = next(learner.parameters()).dtype, updates or Updates()
    adapted = learner.start(len(tasks if share is None else share)).detach()
    stages: list[Stage] = []
    for step in range(steps + 1):
        if step:
            points = stages[-1].points
            moved = learner.adapt(points.x, points.y, points.mask, steps=1, start=adapted)
            # An update is proportional to its rate.
            adapted = adapted.lerp(moved, float(updates.later_rate) if step > 1 else 1.0)
            if not all(value.isfinite().all() for value in adapted.values()):
                raise Diverged(f"{type(learner).__name__}: update {step} is not finite; try a smaller inner_lr")
        count = rollouts if query is None or step < steps else query
        noise = drawn_once(learner, len(adapted), count, generator, share)
        act = actor(learner, adapted, generator, share=share, noise=noise)
        if share is None:
            episodes = collect(env, tasks, act, count, generator)
        else:
            episodes = collect_share(env, tasks, act, count, generator, share)
        points = Points.of(episodes, updates.discount, updates.trace, dtype, noise)
        stages.append(Stage(adapted, episodes, points))
    return stages

"""Episodes of all tasks, collected together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cavia.envs.base import TaskEnv
from cavia.errors import CaviaError, call_of_user, shown
from cavia.kinds import checked
from cavia.tasks.share import Share


@checked
@dataclass(frozen=True)
class Rollouts:
    """R episodes of each of T tasks, padded to the H steps of the longest.

    observations: [T, R, H, observations]  before each action
    actions:      [T, R, H, actions]       int64 [T, R, H] if the environment is discrete
    rewards:      [T, R, H]                0 after the end of an episode
    mask:         [T, R, H] bool           True while the episode was running
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    mask: Tensor

    @property
    def returns(self) -> Tensor:
        """The mean undiscounted return of each task, [T]."""
        return (self.rewards * self.mask).sum(dim=2).mean(dim=1)


@checked
@torch.no_grad()
def collect(
    env: TaskEnv, tasks: Tensor, act: Callable[[Tensor], Tensor], rollouts: int, generator: torch.Generator
) -> Rollouts:
    """`rollouts` episodes of each task [T, ...], until all have ended.

    act: maps observations [T, R, observations] to actions [T, R, actions]; called once per time step.
    """
    return _episodes(env, env.reset(tasks, rollouts, generator), act)


@torch.no_grad()
def collect_share(
    env: TaskEnv,
    tasks: Tensor,
    act: Callable[[Tensor], Tensor],
    rollouts: int,
    generator: torch.Generator,
    share: Share,
) -> Rollouts:
    """The same for our share of the tasks [T, ...] only, padded to the longest episode of all processes.

    All tasks are reset, so that our tasks get the same initial states as in the whole batch.
    """
    observation = env.reset(tasks, rollouts, generator)
    env.keep(share.start, share.stop)
    return _episodes(env, observation[share.start : share.stop], act, share.longest)


def _episodes(
    env: TaskEnv,
    observation: Tensor,
    act: Callable[[Tensor], Tensor],
    longest: Callable[[int], int] = lambda steps: steps,
) -> Rollouts:
    """Episodes from their first observations [T, R, observations] on, padded to the longest, as `Share` reports it."""
    done = torch.zeros(observation.shape[:2], dtype=torch.bool, device=observation.device)
    observations, actions, rewards, masks = [], [], [], []
    last: int | None = None
    for time in range(1, env.horizon + 1):
        action: Any = call_of_user("act", act, observation)
        if not isinstance(action, Tensor):
            raise CaviaError(f"act must return a tensor of actions, got {shown(action)}")
        step = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(step.reward)
        masks.append(~done)
        observation, done = step.observation, step.done
        if last is None and (time == env.horizon or done.all()):  # ask only once
            last = longest(time)
        if time == last:
            break
    return Rollouts(*(torch.stack(steps, dim=2) for steps in (observations, actions, rewards, masks)))

"""2D navigation: the point robot of Section 5.3 of the paper, and MAESN's goals with sparse reward."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from cavia.envs.base import Step, TaskEnv, spread
from cavia.errors import require_at_least, require_one_of, require_positive

FARTHEST = 0.5  # maximum distance of a goal from the start, along each axis
RADIUS = 2.0  # of the semicircle
NEAR = 0.01
GOALS = ("square", "semicircle")


class Navigation(TaskEnv):
    """Walk from (0, 0) to a goal revealed only through reward.

    An action is a step, clipped to ±0.1 along each axis; the observation is the position after it, the reward the
    negative distance from there to the goal. An episode ends within 0.01 of the goal. Runs on the device of `tasks`.

    goals: "square": anywhere in [-0.5, 0.5]², as in the paper; "semicircle": 2 away, at an angle from 0 to π.
    disk:  sparse reward: zero, except within this radius of the goal, where it is the progress made since the start
           (initial minus current distance). Episodes then last to the horizon. None: the negative distance, everywhere.

    `Navigation(goals="semicircle", disk=0.8)` is MAESN's wheeled-robot task (Gupta et al. 2018) for a point robot: the
    authors' code has goals at a radius of 2, a reward of minus the distance within 0.8 of the goal, and −2 elsewhere.
    Our reward is larger by 2. They train with dense reward, `disk=None`, and test with the disk.

    >>> env, generator = Navigation(), torch.Generator().manual_seed(0)
    >>> goals = env.sample_tasks(20, generator)
    >>> env.reset(goals, rollouts=5, generator=generator).shape
    torch.Size([20, 5, 2])
    >>> env.step(torch.zeros(20, 5, 2)).reward.shape
    torch.Size([20, 5])
    """

    observations = actions = 2
    task_shape = (2,)
    bound = 0.1  # actions are clipped to ±bound
    later: ClassVar = {"goals": "square", "disk": None}

    def __init__(self, horizon: int = 100, goals: str = "square", disk: float | None = None):
        self.horizon = require_at_least("horizon", horizon, 1)
        require_one_of("goals", goals, GOALS)
        self.goals, self.disk = goals, None if disk is None else require_positive("disk", disk)

    def _draw(self, count: int, generator: torch.Generator, split: str) -> Tensor:
        """Goals [T, 2]."""
        if self.goals == "semicircle":
            angle = math.pi * spread(count, 1, generator, split)
            return RADIUS * torch.cat([angle.cos(), angle.sin()], 1)
        return (2 * spread(count, 2, generator, split) - 1) * FARTHEST

    def _start(self, tasks: Tensor, rollouts: int, generator: torch.Generator) -> Tensor:
        self._goal = tasks.to(torch.float32)[:, None]  # [T, 1, 2]
        self._position = self._goal.new_zeros(len(tasks), rollouts, 2)
        return self._position.clone()

    def _advance(self, action: Tensor) -> Step:
        moved = self._position + action.detach().to(self._position).clamp(-self.bound, self.bound)
        self._position = torch.where(self._running().unsqueeze(-1), self._position, moved)
        distance = torch.linalg.vector_norm(self._position - self._goal, dim=-1)
        if self.disk is None:
            return Step(self._position.clone(), -distance, distance <= NEAR)
        nearer = torch.linalg.vector_norm(self._goal, dim=-1) - distance
        return Step(self._position.clone(), nearer.where(distance <= self.disk, 0.0), torch.zeros_like(self._running()))

    def _state(self) -> dict[str, Tensor]:
        return {"goal": self._goal, "position": self._position}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self._goal, self._position = state["goal"].clone(), state["position"].clone()

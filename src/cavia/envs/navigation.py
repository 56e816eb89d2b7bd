"""2D navigation: the point robot of Section 5.3 of the paper."""

from collections.abc import Mapping

import torch
from torch import Tensor

from cavia.envs.base import Step, TaskEnv, spread
from cavia.errors import require_at_least

FARTHEST = 0.5  # of a goal from the start, along each axis
NEAR = 0.01


class Navigation(TaskEnv):
    """Walk from (0, 0) to a goal in [-0.5, 0.5]² revealed only through reward.

    An action is a step, clipped to ±0.1 along each axis; the observation is the position after it and the reward
    minus the distance from there to the goal. An episode ends within 0.01 of the goal. Runs on the device of `tasks`.

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

    def __init__(self, horizon: int = 100):
        self.horizon = require_at_least("horizon", horizon, 1)

    def _draw(self, count: int, generator: torch.Generator, split: str) -> Tensor:
        """Goals [T, 2]."""
        return (2 * spread(count, 2, generator, split) - 1) * FARTHEST

    def _start(self, tasks: Tensor, rollouts: int, generator: torch.Generator) -> Tensor:
        self._goal = tasks.to(torch.float32)[:, None]  # [T, 1, 2]
        self._position = self._goal.new_zeros(len(tasks), rollouts, 2)
        return self._position.clone()

    def _advance(self, action: Tensor) -> Step:
        moved = self._position + action.detach().to(self._position).clamp(-self.bound, self.bound)
        self._position = torch.where(self._running().unsqueeze(-1), self._position, moved)
        distance = torch.linalg.vector_norm(self._position - self._goal, dim=-1)
        return Step(self._position.clone(), -distance, distance <= NEAR)

    def _state(self) -> dict[str, Tensor]:
        return {"goal": self._goal, "position": self._position}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self._goal, self._position = state["goal"].clone(), state["position"].clone()

"""One task of our environments as a Gymnasium environment; importing this module registers them all."""

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from cavia.envs.base import TaskEnv
from cavia.envs.cheetah import CheetahDirection, CheetahVelocity
from cavia.envs.navigation import Navigation
from cavia.errors import CaviaError

Array = NDArray[np.float32]
FAMILIES: dict[str, tuple[type[Navigation | CheetahDirection | CheetahVelocity], int]] = {
    "Navigation": (Navigation, 100),
    "CheetahDirection": (CheetahDirection, 200),
    "CheetahVelocity": (CheetahVelocity, 200),
}


class SingleTask(gymnasium.Env[Array, Array]):
    """One rollout of one task.

    task:     the goal, direction or velocity; None: a new one is drawn at each reset
    settings: of the environment (`horizon`, and for the cheetah `observation`, `backend`, …); for episodes longer than
              the registered 100 or 200 steps, also pass `max_episode_steps` to `gymnasium.make`

    `reset(options={"task": …})` sets the task of one episode; `info["task"]` holds it.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, family: str, task: Any = None, **settings: Any):
        if family.startswith("Cheetah"):
            settings = {"threads": 1} | settings  # for a single simulation
        self.env = FAMILIES[family][0](**settings)
        self.task = None if task is None else as_task(self.env, task)
        bound, far = self.env.bound, np.inf
        if isinstance(self.env, Navigation):
            far = bound * self.env.horizon
        self.action_space = gymnasium.spaces.Box(-bound, bound, (self.env.actions,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-far, far, (self.env.observations,), np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        generator = torch.Generator().manual_seed(int(self.np_random.integers(2**63)))
        drawn = self.env.sample_tasks(1, generator)
        if options and "task" in options:
            drawn = as_task(self.env, options["task"])
        elif self.task is not None:
            drawn = self.task
        self._steps, self._drawn = 0, drawn[0]
        return self.env.reset(drawn, 1, generator)[0, 0].numpy(), self._info()

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        given = np.asarray(action, dtype=np.float32)
        if given.shape != self.action_space.shape:
            raise CaviaError(f"action must have shape {list(self.action_space.shape or ())}, got {list(given.shape)}")
        observation, reward, done = self.env.step(torch.from_numpy(given)[None, None])
        self._steps += 1
        over = self._steps >= self.env.horizon
        return observation[0, 0].numpy(), reward.item(), bool(done.item()), over, self._info()

    def _info(self) -> dict[str, Any]:
        """A new copy at every call, which users may keep and change."""
        return {"task": self._drawn.numpy().copy()}


def as_task(env: TaskEnv, task: Any) -> torch.Tensor:
    """A user's task as [1, *task_shape]."""
    value = torch.as_tensor(task, dtype=torch.float32)
    if tuple(value.shape) != env.task_shape:
        raise CaviaError(f"a task must have shape {list(env.task_shape)}, got {task!r}")
    return value[None]


for name, (_, steps) in FAMILIES.items():
    gymnasium.register(
        id=f"cavia/{name}-v0",
        entry_point="cavia.envs.single_task:SingleTask",
        max_episode_steps=steps,
        kwargs={"family": name},
    )

"""Gymnasium in both directions: our environments registered there, and any Gymnasium environment as a TaskEnv."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.envs.base import Step, TaskEnv
from cavia.envs.optional import optional
from cavia.errors import CaviaError, call_of_user, require_at_least, shown
from cavia.tasks.batch import SPLITS


def register() -> None:
    """Register `cavia/Navigation-v0`, `cavia/CheetahDirection-v0` and `cavia/CheetahVelocity-v0` with Gymnasium.

    `gymnasium.make("cavia.envs.single_task:cavia/Navigation-v0")` does the same on the fly.
    """
    optional("gymnasium")
    optional("cavia.envs.single_task")


class GymTasks(TaskEnv):
    """Your own Gymnasium environment, with a list of tasks to meta-train it on.

    make:     makes one environment; called once for each of the T × R copies, which are reused
    tasks:    the tasks, of any type, or {"train": …, "val": …, "test": …}; the environment sees indices into them
    set_task: called as set_task(environment, task) before each reset
    horizon:  steps of an episode; None: the environment's own limit (`spec.max_episode_steps`)

    Observations are a Box, which is flattened; actions a Box (flattened, clipped to its bounds) or Discrete.
    An episode ends when it is terminated or truncated.

        env = GymTasks(lambda: gymnasium.make("Pendulum-v1"), [5.0, 10.0, 15.0],
                       lambda env, gravity: setattr(env.unwrapped, "g", gravity))
    """

    def __init__(
        self,
        make: Callable[[], Any],
        tasks: Sequence[Any] | Mapping[str, Sequence[Any]],
        set_task: Callable[[Any, Any], object],
        horizon: int | None = None,
    ):
        self._make, self._set_task = make, set_task
        self.tasks, self._ranges = number_tasks(tasks)
        self._copies: list[Any] = [call_of_user("make", make)]
        if not hasattr(self._copies[0], "observation_space"):
            raise CaviaError(f"make must return a Gymnasium environment, got {shown(self._copies[0])}")
        self._action_space: Any = getattr(self._copies[0], "action_space", None)
        self.observations = count_observations(getattr(self._copies[0], "observation_space", None))
        self.actions, self.discrete = count_actions(self._action_space)
        self.horizon = require_at_least("horizon", limit_of(self._copies[0]) if horizon is None else horizon, 1)

    @property
    def settings(self) -> dict[str, Any]:
        """Tasks other than numbers and strings are only counted: an object's address changes between runs."""
        spec = getattr(self._copies[0], "spec", None)
        known = [task if isinstance(task, str | int | float) else None for task in self.tasks]
        return {
            "horizon": self.horizon,
            "environment": getattr(spec, "id", type(self._copies[0]).__name__),
            "tasks": {split: [known[number] for number in numbers] for split, numbers in self._ranges.items()},
        }

    def close(self) -> None:
        """Close all copies."""
        while self._copies:
            self._copies.pop().close()
        super().close()

    def _draw(self, count: int, generator: torch.Generator, split: str) -> Tensor:
        """Indices [T] into `tasks`."""
        numbers = self._ranges[split]
        if not numbers:
            raise CaviaError(f"there are no tasks for {split!r}; give tasks[{split!r}]")
        if split == "train":
            drawn = torch.randint(len(numbers), (count,), generator=generator, device=generator.device)
        else:
            drawn = torch.arange(count, device=generator.device) * max(len(numbers), count) // count % len(numbers)
        return drawn + numbers.start

    def _check_tasks(self, tasks: Tensor) -> None:
        super()._check_tasks(tasks)
        if tasks.is_floating_point() or not ((tasks >= 0) & (tasks < len(self.tasks))).all():
            raise CaviaError(f"tasks must be indices below {len(self.tasks)}, got {tasks.tolist()}; use sample_tasks")

    def _start(self, tasks: Tensor, rollouts: int, generator: torch.Generator) -> Tensor:
        count = len(tasks) * rollouts
        seeds = torch.randint(2**31, (count,), generator=generator, device=generator.device).tolist()
        self._copies += [self._make() for _ in range(count - len(self._copies))]
        self._time, self._done = 0, None
        self._shape, self._device = (len(tasks), rollouts), tasks.device
        self._seen = np.empty((count, self.observations), dtype=np.float32)
        for copy, number in enumerate(tasks.repeat_interleave(rollouts).tolist()):
            env = self._copies[copy]
            with self._naming(copy, "set_task"):
                self._set_task(env, self.tasks[number])
            with self._naming(copy, "reset"):
                first, _ = env.reset(seed=seeds[copy])
            self._see(copy, first)
        return self._tensor(self._seen)

    def _advance(self, action: Tensor) -> Step:
        ended = self._running().flatten().tolist()
        rewards, done = np.zeros(len(ended), dtype=np.float32), np.array(ended)
        for copy, row in enumerate(self._to_space(action.detach().cpu().flatten(0, 1).numpy())):
            if not ended[copy]:
                with self._naming(copy, "step"):
                    observation, rewards[copy], terminated, truncated, _ = self._copies[copy].step(row)
                done[copy] = terminated or truncated
                self._see(copy, observation, rewards[copy])
        return Step(self._tensor(self._seen), self._tensor(rewards), self._tensor(done))

    def _keep(self, start: int, stop: int) -> None:
        rollouts = self._shape[1]
        ours = slice(start * rollouts, stop * rollouts)
        first, self._seen = self._copies[ours], self._seen[ours]
        self._copies = first + self._copies[: ours.start] + self._copies[ours.stop :]
        self._shape = (stop - start, rollouts)

    def _state(self) -> dict[str, Tensor]:
        if self._time < self.horizon and not self._running().all():
            raise CaviaError("a Gymnasium environment cannot be saved in the middle of an episode; save after its end")
        return {}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        """All episodes of a saved state have ended: only a reset can follow."""
        self._shape, self._device = (state["done"].shape[0], state["done"].shape[1]), state["done"].device
        self._seen = np.zeros((state["done"].numel(), self.observations), dtype=np.float32)

    def _to_space(self, actions: np.ndarray) -> Any:
        """Actions [T·R, …] as the environment takes them."""
        space = self._action_space
        if self.discrete:
            return [int(action + space.start) for action in actions]
        shaped = actions.reshape(len(actions), *space.shape)
        return np.clip(shaped, space.low, space.high).astype(space.dtype)

    def _see(self, copy: int, observation: Any, reward: float = 0.0) -> None:
        """Store an observation, after checking it."""
        row = np.asarray(observation, dtype=np.float32).reshape(-1)
        if row.size != self.observations:
            raise CaviaError(f"{self._name(copy)} gave {row.size} numbers, its space has {self.observations}")
        for what, values in (("observation", row), ("reward", np.atleast_1d(reward))):
            if not np.isfinite(values).all():
                value = values[~np.isfinite(values)][0]
                raise CaviaError(f"{self._name(copy)} gave the {what} {value}; use smaller actions, or mend it")
        self._seen[copy] = row

    @contextlib.contextmanager
    def _naming(self, copy: int, what: str) -> Iterator[None]:
        """Add to errors of the user's code which copy they came from."""
        try:
            yield
        except Exception as error:
            self._done = None
            raise CaviaError(f"{self._name(copy)} failed in {what}: {type(error).__name__}: {error}") from error

    def _name(self, copy: int) -> str:
        task, rollout = divmod(copy, self._shape[1])
        return f"the environment of task {task}, rollout {rollout} at step {self._time}"

    def _tensor(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows.copy()).unflatten(0, self._shape).to(self._device)


def number_tasks(tasks: Sequence[Any] | Mapping[str, Sequence[Any]]) -> tuple[list[Any], dict[str, range]]:
    """All tasks in one list, and the range of each split in it; a plain list serves all splits."""
    if not isinstance(tasks, Mapping):
        everything = list(tasks)
        ranges = dict.fromkeys(SPLITS, range(len(everything)))
    else:
        unknown = set(tasks) - set(SPLITS)
        if unknown:
            raise CaviaError(f"tasks are for {', '.join(SPLITS)}, got {', '.join(map(repr, sorted(unknown)))}")
        everything, ranges = [], {}
        for split in SPLITS:
            start = len(everything)
            everything += list(tasks.get(split, ()))
            ranges[split] = range(start, len(everything))
    if not everything:
        raise CaviaError("tasks must hold at least 1 task, got none")
    return everything, ranges


def count_observations(space: Any) -> int:
    """The size of a Box observation, or an error that names the space."""
    spaces = optional("gymnasium").spaces
    if not isinstance(space, spaces.Box):
        raise CaviaError(
            f"observation space {space} is not supported, only Box is; wrap the environment in "
            "gymnasium.wrappers.FlattenObservation"
        )
    return int(np.prod(space.shape))


def count_actions(space: Any) -> tuple[int, bool]:
    """The size of a Box action or the number of Discrete choices, and whether the space is discrete."""
    spaces = optional("gymnasium").spaces
    if isinstance(space, spaces.Discrete):
        return int(space.n), True
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return int(np.prod(space.shape)), False
    raise CaviaError(
        f"action space {space} is not supported, only Box of floating-point numbers and Discrete are; wrap the "
        "environment in gymnasium.wrappers.TransformAction"
    )


def limit_of(env: Any) -> int:
    """The registered maximum length of an episode."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    if limit is None:
        raise CaviaError("the environment has no limit of steps of its own; give GymTasks a horizon")
    return int(limit)

"""The contract of an environment with a task axis."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from cavia.building import Built
from cavia.errors import CaviaError, require_at_least, require_one_of
from cavia.kinds import checked
from cavia.machine import require_memory
from cavia.tasks.batch import SPLITS
from cavia.tasks.points import as_tensor, shape

GOLDEN = (5**0.5 - 1) / 2


@checked
class Step(NamedTuple):
    """The outcome of one action in each of T tasks × R rollouts.

    observation: [T, R, observations]
    reward:      [T, R]         0 once an episode has ended
    done:        [T, R] bool    the episode has ended, in this step or before
    """

    observation: Tensor
    reward: Tensor
    done: Tensor


class TaskEnv(Built, ABC):
    """T tasks × R rollouts, stepped together.

    observations: numbers in an observation
    actions:      numbers in an action; with `discrete`, how many actions there are to choose from
    horizon:      maximum length of an episode, in steps
    discrete:     an action is one of `actions` whole numbers from 0 on, and actions are int64 [T, R]
    task_shape:   the shape of one task

    A subclass sets these and writes `_draw`, `_start`, `_advance`, `_state` and `_load_state`; arguments are
    checked here. Every constructor argument is an attribute of the same name. An episode that has ended keeps its last
    observation and earns no more reward.
    """

    observations: int
    actions: int
    horizon: int
    discrete: bool = False
    task_shape: ClassVar[tuple[int, ...]] = ()

    _time: int = 0
    _done: Tensor | None = None  # [T, R]; None before the first reset

    @property
    def settings(self) -> dict[str, Any]:
        """The config.json entries for the environment, as JSON values; a run folder is tied to them."""
        return self.arguments

    @checked
    def sample_tasks(self, count: int, generator: torch.Generator, split: str = "train") -> Tensor:
        """`count` tasks, [T, *task_shape]: random in "train", spread evenly in "val", a fixed even set in "test"."""
        require_at_least("count", count, 1)
        require_one_of("split", split, SPLITS)
        require_memory(8 * count * max(1, math.prod(self.task_shape)), f"count={count}")
        return self._draw(count, generator, split)

    @checked
    def reset(self, tasks: Tensor, rollouts: int, generator: torch.Generator) -> Tensor:
        """Start `rollouts` new episodes of each task [T, *task_shape]; returns observations [T, R, observations]."""
        require_at_least("rollouts", rollouts, 1)
        self._check_tasks(tasks)
        require_memory(
            8 * len(tasks) * rollouts * self.observations,
            f"rollouts={rollouts} of {len(tasks)} tasks with {self.observations} observations",
        )
        observation = self._start(tasks, rollouts, generator)
        self._time, self._done = 0, torch.zeros(len(tasks), rollouts, dtype=torch.bool, device=observation.device)
        return observation

    @checked
    def step(self, action: Tensor) -> Step:
        """Take one action in every episode: [T, R, actions], or int64 [T, R] if `discrete`."""
        before = self._running()
        if self._time >= self.horizon:
            raise CaviaError(f"the episodes are over after {self.horizon} steps; call reset, or raise horizon")
        self._check_action(action, before.shape)
        observation, reward, done = self._advance(action)
        self._time, self._done = self._time + 1, before | done
        return Step(observation, reward.masked_fill(before, 0.0), self._done)

    @checked
    def keep(self, start: int, stop: int) -> None:
        """Right after `reset`: keep only the tasks from `start` to before `stop`; their episodes are unaffected."""
        before = self._running()
        if not 0 <= start < stop <= len(before):
            raise CaviaError(f"keep must name at least 1 of the {len(before)} tasks, got start={start} and stop={stop}")
        self._keep(start, stop)
        self._done = before[start:stop].clone()

    def state(self) -> dict[str, Tensor]:
        """Everything the next step depends on; empty before the first reset."""
        if self._done is None:
            return {}
        return {"time": torch.tensor(self._time), "done": self._done, **self._state()}

    @checked
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue, identical to the bit, from where `state` was taken."""
        if not state:
            self._time, self._done = 0, None
            return
        missing = {"time", "done"} - set(state)
        if missing:
            raise CaviaError(f"the state of an environment lacks {', '.join(sorted(missing))}; pass what state() gave")
        self._load_state(state)
        self._time, self._done = int(state["time"]), state["done"].clone()

    def close(self) -> None:
        """Free resources held outside Python. The environment can be reset again."""
        self._done = None

    @abstractmethod
    def _draw(self, count: int, generator: torch.Generator, split: str) -> Tensor:
        """`count` tasks [T, *task_shape]."""

    @abstractmethod
    def _start(self, tasks: Tensor, rollouts: int, generator: torch.Generator) -> Tensor:
        """First observations [T, R, observations]."""

    @abstractmethod
    def _advance(self, action: Tensor) -> Step:
        """One step. The reward of episodes that have ended is ignored."""

    @abstractmethod
    def _state(self) -> dict[str, Tensor]:
        """What the next step depends on, except the time and which episodes have ended."""

    @abstractmethod
    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `_state` returned."""

    def _keep(self, start: int, stop: int) -> None:
        """Drop the other tasks. By default: from every tensor of `_state` whose first axis has length T or T·R."""
        tasks, rollouts = self._running().shape

        def part(value: Tensor) -> Tensor:
            each = {tasks: 1, tasks * rollouts: rollouts}.get(len(value) if value.ndim else 0)
            return value if each is None else value[start * each : stop * each]

        state = {"time": torch.tensor(self._time), "done": self._running(), **self._state()}
        self._load_state({name: part(value) for name, value in state.items()})

    def _running(self) -> Tensor:
        """Which episodes have ended [T, R]; an error if none was started."""
        if self._done is None:
            raise CaviaError("no episode is running; call reset first")
        return self._done

    def _check_tasks(self, tasks: Tensor) -> None:
        as_tensor("tasks", tasks)
        if tasks.ndim == 0 or len(tasks) == 0 or tuple(tasks.shape[1:]) != self.task_shape:
            wanted = ", ".join(("T", *map(str, self.task_shape)))
            raise CaviaError(f"tasks must have shape [{wanted}] with T at least 1, got {shape(tasks)}")
        if not tasks.isfinite().all():
            raise CaviaError(f"tasks must be finite, got {tasks[~tasks.isfinite()][0].item()}")

    def _check_action(self, action: Tensor, batch: torch.Size) -> None:
        wanted = batch if self.discrete else (*batch, self.actions)
        as_tensor("action", action)
        if action.shape != torch.Size(wanted):
            raise CaviaError(f"action must have shape {list(wanted)} (tasks, rollouts, …), got {shape(action)}")
        if self.discrete and (action.is_floating_point() or action.dtype == torch.bool):
            raise CaviaError(f"actions are whole numbers below {self.actions}, got {action.dtype}; use action.long()")
        wrong = (action < 0) | (action >= self.actions) if self.discrete else ~action.isfinite()
        if wrong.any():
            task, rollout, *_ = wrong.nonzero()[0].tolist()
            fix = f"choose from 0 … {self.actions - 1}" if self.discrete else "the policy diverged: lower its step size"
            value = action[wrong][0].item()
            raise CaviaError(f"action of task {task}, rollout {rollout} at step {self._time} is {value}; {fix}")


def spread(count: int, dimensions: int, generator: torch.Generator, split: str) -> Tensor:
    """`count` points [count, 1 or 2] of the unit interval or square.

    Random in "train". Otherwise one in each of `count` equal slices, and along the second axis multiples of the golden
    ratio: in "val" with a random shift, in "test" always the same points.
    """

    def uniform(*size: int) -> Tensor:
        return torch.rand(size, generator=generator, device=generator.device)

    if split == "train":
        return uniform(count, dimensions)
    index = torch.arange(count, device=generator.device)
    within, shift = (uniform(count), uniform(1)) if split == "val" else (0.5, 0.5)
    axes = [(index + within) / count, (index * GOLDEN + shift) % 1.0]
    return torch.stack(axes[:dimensions], dim=1)

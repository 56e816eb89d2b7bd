"""A batch of tasks, and the contract of whatever tasks are drawn from."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from cavia.building import Built, build
from cavia.errors import CaviaError

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class TaskBatch:
    """T tasks, each with points to adapt on (support) and points to judge the result by (query).

    support_x:    [T, K, ...]   inputs of K points per task
    support_y:    [T, K, ...]   their targets
    query_x:      [T, Q, ...]
    query_y:      [T, Q, ...]
    support_mask: [T, K] bool   False where a task has fewer than K points and the rest is padding; None: all count
    query_mask:   [T, Q] bool
    attributes:   name → [T, ...]  what the generator knows of each task (amplitude, class, …); no learner sees it
    """

    support_x: Tensor
    support_y: Tensor
    query_x: Tensor
    query_y: Tensor
    support_mask: Tensor | None = None
    query_mask: Tensor | None = None
    attributes: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_points("support", self.support_x, self.support_y, self.support_mask)
        check_points("query", self.query_x, self.query_y, self.query_mask)
        if len(self.support_x) != len(self.query_x):
            raise CaviaError(
                f"support and query must hold the same tasks: support_x {shape(self.support_x)} has "
                f"{len(self.support_x)}, query_x {shape(self.query_x)} has {len(self.query_x)}"
            )

    def __len__(self) -> int:
        """The number of tasks, T."""
        return len(self.support_x)

    def to(self, device: torch.device | str) -> "TaskBatch":
        """The same tasks on another device."""
        there = torch.device(device)
        tensors = [value for value in vars(self).values() if isinstance(value, Tensor)]
        if all(tensor.device == there for tensor in (*tensors, *self.attributes.values())):
            return self  # to build it anew would show beside a small step
        return self._map(lambda tensor: tensor.to(there))

    def split(self, chunk: int) -> "Iterator[TaskBatch]":
        """The tasks in order, at most `chunk` at a time."""
        for start in range(0, len(self), chunk):
            yield self.part(start, start + chunk)

    def part(self, start: int, stop: int) -> "TaskBatch":
        """The tasks from `start` to before `stop`."""
        return self._map(lambda tensor: tensor[start:stop])

    def fault(self) -> str | None:
        """The first number that is not finite and no padding, in words; None: all are fine."""
        for name in ("support_x", "support_y", "query_x", "query_y"):
            value, mask = getattr(self, name), getattr(self, f"{name[:-2]}_mask")
            if not value.is_floating_point():
                continue
            wrong = ~value.isfinite().flatten(2).all(2) if value.ndim > 2 else ~value.isfinite()  # [T, N]
            wrong = wrong if mask is None else wrong & mask
            if wrong.any():
                task, point = wrong.nonzero()[0].tolist()
                numbers = value[task, point].flatten()
                bad = numbers[~numbers.isfinite()][0].item()
                return f"{name} of task {task}, point {point} of the batch is {bad}: mend the data"
        return None

    def _map(self, change: Any) -> "TaskBatch":
        tensors = {
            entry.name: change(value)
            for entry in fields(self)
            if isinstance(value := getattr(self, entry.name), Tensor)
        }
        attributes = {name: change(value) for name, value in self.attributes.items()}
        return replace(self, **tensors, attributes=attributes)


class TaskFamily(Built, ABC):
    """Whatever tasks are drawn from. The same generator state gives the same tasks.

    support, query: points of a task that it is made for; None: as many as are asked for.
    at_a_time:      tasks that are held in memory at once where many are scored; None: all.
    draws_ahead:    the training tasks are independent of each other and small: `fit` may draw the tasks of many
                    batches in one call, which is cheaper.

    Every constructor argument is an attribute of the same name, or `settings` says what a run is tied to.
    """

    support: int | None = None
    query: int | None = None
    at_a_time: int | None = None
    draws_ahead: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """What config.json says of the tasks, as JSON values; a run folder is tied to it."""
        return self.arguments

    @classmethod
    def reopen(cls, settings: Mapping[str, Any], root: Path) -> Self:
        """The family whose `settings` these are; root: the folder that data sets are in."""
        return build(cls, settings, "the run's config.json")

    @abstractmethod
    def sample(
        self, tasks: int, support: int, query: int, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """`tasks` new tasks with `support` and `query` points each, from the split "train", "val" or "test"."""


def seeded_generator(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose ("train", "val", "test", …), so that no two purposes draw the same numbers."""
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)


def shape(tensor: Tensor) -> str:
    """A tensor's shape as error messages print it: [25, 10, 1]."""
    return str(list(tensor.shape))


def check_points(name: str, x: Tensor, y: Tensor, mask: Tensor | None = None) -> None:
    """Raise unless x [T, N, ...], y [T, N, ...] and mask [T, N] agree on T and N."""
    for what, value in (("inputs", x), ("targets", y), *([] if mask is None else [("mask", mask)])):
        if not isinstance(value, Tensor):
            raise CaviaError(f"{name} {what} must be a tensor, got {type(value).__name__}; use torch.as_tensor")
    if x.ndim < 2 or y.ndim < 2 or x.shape[:2] != y.shape[:2]:
        raise CaviaError(
            f"{name} inputs and targets need the same two leading axes [tasks, points, ...], "
            f"got {shape(x)} and {shape(y)}"
        )
    if mask is not None and mask.dtype != torch.bool:
        raise CaviaError(f"{name} mask must be of type torch.bool, got {mask.dtype}; use mask.bool()")
    if mask is not None and mask.shape != x.shape[:2]:
        raise CaviaError(f"{name} mask must have shape {list(x.shape[:2])} like its inputs, got {shape(mask)}")

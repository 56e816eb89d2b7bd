"""A batch of tasks, and the contract of a task family."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from cavia.building import Built, build
from cavia.errors import CaviaError, require_at_least, shown
from cavia.kinds import checked
from cavia.tasks.points import as_device, as_points, as_tensor, each, lead, shape as shape

SPLITS = ("train", "val", "test")
SAFE = 0.4  # the largest number to this power can be squared and summed: 3e15 in float32


@dataclass(frozen=True)
class TaskBatch:
    """T tasks, each with points to adapt on (support) and points to score the result on (query).

    support_x:    [T, K, ...]   inputs of K points per task; or a dictionary of such tensors, for networks with several
    support_y:    [T, K, ...]   their targets
    query_x:      [T, Q, ...]
    query_y:      [T, Q, ...]
    support_mask: [T, K] bool   False where a task has fewer than K points and the rest is padding; None: all count
    query_mask:   [T, Q] bool
    attributes:   name → [T, ...]  what the generator knows about each task (amplitude, class, …); no learner sees it

    Arrays and lists become tensors.
    """

    support_x: Tensor | Any  # `Inputs`; usually one tensor
    support_y: Tensor
    query_x: Tensor | Any
    query_y: Tensor
    support_mask: Tensor | None = None
    query_mask: Tensor | None = None
    attributes: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in ("support", "query"):
            names = [f"{part}_{what}" for what in ("x", "y", "mask")]
            x, y, mask = given = [getattr(self, name) for name in names]
            for name, old, new in zip(names, given, as_points(x, y, mask, names), strict=True):
                if new is not old:
                    object.__setattr__(self, name, new)
        support, query = lead(self.support_x), lead(self.query_x)
        if len(support) != len(query):
            raise CaviaError(
                f"support and query must hold the same tasks: support_x {shape(self.support_x)} has "
                f"{len(support)}, query_x {shape(self.query_x)} has {len(query)}"
            )
        if type(self.attributes) is not dict or self.attributes:
            self._check_attributes()

    def _check_attributes(self) -> None:
        if not isinstance(self.attributes, Mapping):
            raise CaviaError(f"attributes must be name → tensor [tasks, ...], got {shown(self.attributes)}")
        attributes = {name: as_tensor(f"attributes[{name!r}]", value) for name, value in self.attributes.items()}
        for name, value in attributes.items():
            if value.ndim == 0 or len(value) != len(self):
                raise CaviaError(f"attributes[{name!r}] must be [{len(self)}, ...] for the tasks, got {shape(value)}")
        object.__setattr__(self, "attributes", attributes)

    def __len__(self) -> int:
        """The number of tasks, T."""
        return len(lead(self.support_x))

    @checked
    def to(self, device: torch.device | str) -> "TaskBatch":
        """The same tasks on another device."""
        there = as_device(device)
        leads = [lead(value) for name, value in vars(self).items() if value is not None and name != "attributes"]
        if all(tensor.device == there for tensor in (*leads, *self.attributes.values())):
            return self  # rebuilding would take noticeable time beside a small step
        return self._map(lambda tensor: tensor.to(there))

    @checked
    def split(self, chunk: int) -> "Iterator[TaskBatch]":
        """The tasks in order, at most `chunk` at a time."""
        require_at_least("chunk", chunk, 1)
        return (self.part(start, start + chunk) for start in range(0, len(self), chunk))

    @checked
    def part(self, start: int, stop: int) -> "TaskBatch":
        """The tasks from `start` to before `stop`, at least one."""
        if not 0 <= start < min(stop, len(self)):
            raise CaviaError(f"part must hold at least 1 of the {len(self)} tasks, got start={start} and stop={stop}")
        return self._map(lambda tensor: tensor[start:stop])

    def fault(self) -> str | None:
        """Describes the first number, outside the padding, that is not finite, or else the first that is too large to
        compute with; None: there is none."""
        parts: list[tuple[str, Tensor, Tensor | None]] = []
        for name in ("support_x", "support_y", "query_x", "query_y"):
            value, mask = getattr(self, name), getattr(self, f"{name[:-2]}_mask")
            several = {name: value} if isinstance(value, Tensor) else {f"{name}[{key!r}]": value[key] for key in value}
            parts += [(what, one, mask) for what, one in several.items() if one.is_floating_point()]
        for what, one, mask in parts:
            if fault := _first(one, ~one.isfinite(), mask):
                return f"{what} of {fault}: fix the data"
        for what, one, mask in parts:
            most = torch.finfo(one.dtype).max ** SAFE
            if fault := _first(one, one.abs() > most, mask):
                return f"{what} of {fault}, too large to compute with (at most {most:.0e}): fix or scale the data"
        return None

    def _map(self, change: Callable[[Tensor], Tensor]) -> "TaskBatch":
        changed: dict[str, Any] = {
            entry.name: each(change, value)
            for entry in fields(self)
            if entry.name != "attributes" and (value := getattr(self, entry.name)) is not None
        }
        attributes = {name: change(value) for name, value in self.attributes.items()}
        return replace(self, **changed, attributes=attributes)


def _first(value: Tensor, wrong: Tensor, mask: Tensor | None) -> str | None:
    """Describes the first number of value [T, N, ...], outside the padding, that is `wrong`, bool of its shape."""
    points = wrong.flatten(2).any(2) if wrong.ndim > 2 else wrong  # [T, N]
    points = points if mask is None else points & mask
    if not points.any():
        return None
    task, point = points.nonzero()[0].tolist()
    return f"task {task}, point {point} of the batch is {value[task, point][wrong[task, point]].flatten()[0].item():g}"


class TaskFamily(Built, ABC):
    """A source of tasks. The same generator state gives the same tasks.

    support, query: the family's own numbers of points per task; None: any number.
    at_a_time:      tasks to hold in memory at once when many are scored; None: all.
    draws_ahead:    the training tasks are independent of each other and small: `fit` may draw the tasks of many
                    batches in one call, which is cheaper.

    Every constructor argument is an attribute of the same name, unless `settings` is overridden.
    """

    support: int | None = None
    query: int | None = None
    at_a_time: int | None = None
    draws_ahead: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "sample" in vars(cls):
            cls.sample = _sampling(checked(cls.sample))  # type: ignore[method-assign]

    @property
    def settings(self) -> dict[str, Any]:
        """The config.json entries for the tasks, as JSON values; a run folder is tied to them."""
        return self.arguments

    @classmethod
    def reopen(cls, settings: Mapping[str, Any], root: Path) -> Self:
        """The family with these `settings`; root: the folder of the data sets."""
        return build(cls, settings, "the run's config.json")

    @abstractmethod
    def sample(
        self, tasks: int, support: int, query: int, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """`tasks` new tasks with `support` and `query` points each, from the split "train", "val" or "test"."""


def _sampling(sample: Callable[..., Any]) -> Callable[..., TaskBatch]:
    """A family's `sample`, which must return as many tasks as it was asked for."""

    @wraps(sample)
    def sampled(self: TaskFamily, *arguments: Any, **named: Any) -> TaskBatch:
        batch = sample(self, *arguments, **named)
        name = f"{type(self).__name__}.sample"
        if not isinstance(batch, TaskBatch):
            raise CaviaError(f"{name} must return a cavia.TaskBatch, got {shown(batch)}")
        asked = arguments[0] if arguments else named.get("tasks")
        if len(batch) != asked:
            raise CaviaError(f"{name} must return the {asked} tasks that it was asked for, got {len(batch)}")
        return batch

    return sampled


def seeded_generator(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose ("train", "val", "test", …): no two purposes draw the same numbers."""
    require_at_least("seed", seed, 0)
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)

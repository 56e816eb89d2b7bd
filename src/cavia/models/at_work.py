"""Which conditioned network runs in a thread: its layers ask at each call, so that no call changes the module."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from cavia.errors import CaviaError


class Mark:
    """Identifies a conditioned network; a copy of its module gets a new one."""


@dataclass(frozen=True)
class AtWork:
    """The network that runs in this thread.

    norms_by_task: its batch norms take each task's own statistics.
    """

    modulations: nn.ModuleList
    context: Tensor  # [T, C]
    norms_by_task: bool


_at_work: ContextVar[Mapping[Mark, AtWork]] = ContextVar("at_work", default=MappingProxyType({}))


@contextmanager
def working(mark: Mark, entry: AtWork) -> Iterator[None]:
    """Inside, the network of this mark is running in this thread."""
    before = _at_work.set({**_at_work.get(), mark: entry})
    try:
        yield
    finally:
        _at_work.reset(before)


@dataclass(frozen=True, eq=False)
class Modulator:
    """A forward hook that changes the layer's output while the network is running."""

    mark: Mark
    number: int  # of the modulation

    def __call__(self, layer: nn.Module, inputs: Any, output: Any) -> Any:
        entry = _at_work.get().get(self.mark)
        return None if entry is None else entry.modulations[self.number](output, entry.context, layer)


@cache
def by_task(kind: Any) -> Any:
    """A kind of batch norm (a class) that takes each task's own statistics while a network at work wants that."""
    if getattr(kind, "asks_for_tasks", False):
        return kind

    def forward(self: Any, h: Tensor) -> Tensor:
        wanting = [entry for entry in _at_work.get().values() if entry.norms_by_task]
        return task_batch_norm(self, wanting[-1].context.shape[0], h) if wanting else kind.forward(self, h)

    own = {"forward": forward, "asks_for_tasks": True, "__module__": __name__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), own)


def task_batch_norm(norm: _BatchNorm, tasks: int, h: Tensor) -> Tensor:
    """Batch norm by each task's own statistics: h [T·N, channels, ...] → the same shape."""
    rows = h.unflatten(0, (tasks, -1))  # [T, N, channels, ...]
    if rows.shape[1] * rows[0, 0, 0].numel() < 2:
        raise CaviaError('norm="task" needs at least 2 points per task for their statistics, got 1; use norm="frozen"')
    affine: tuple[Tensor | None, ...] = (norm.weight, norm.bias)
    weight, bias = (None if value is None else value.repeat(tasks) for value in affine)
    folded = rows.transpose(0, 1).flatten(1, 2)  # [N, T·channels, ...]: a channel of each task is one of its own
    normed = batch_norm(folded, None, None, weight, bias, True, 0.0, norm.eps)
    return normed.unflatten(1, (tasks, -1)).transpose(0, 1).flatten(0, 1)

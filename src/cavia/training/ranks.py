"""The processes ("ranks") that train one run together, as seen by one of them.

For a single process all of this is free and imports nothing. With several, each takes a share of every batch of tasks,
sums run over all ranks, and the first rank decides, validates and writes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, shown
from cavia.tasks.share import Share

T = TypeVar("T")
Packed: TypeAlias = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, and a description


class Ranks:
    """All ranks of a run, and which of them this process is: here, the only one."""

    number: int = 0
    count: int = 1

    @property
    def alone(self) -> bool:
        """Whether this is the only process."""
        return self.count == 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that validates, writes and decides."""
        return self.number == 0

    def share(self, tasks: int) -> Share:
        """This rank's part of a batch of this many tasks; no two shares differ by more than one task."""
        if tasks < self.count:
            raise CaviaError(f"tasks_per_batch must be at least the number of ranks, {self.count}, got {tasks}")
        bounds = [tasks * number // self.count for number in (self.number, self.number + 1)]
        return Share(bounds[0], bounds[1], tasks, self.largest)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place: equal on all ranks, to the bit."""
        return values

    def mean(self, means: Tensor, tasks: int) -> Tensor:
        """Means [N] over this rank's `tasks` tasks → over the tasks of all ranks; one sum, equal on all ranks."""
        return means

    def largest(self, value: int) -> int:
        """The largest value of any rank."""
        return value

    def from_first(self, find: Callable[[], T]) -> T:
        """What `find` returns on the first rank, as a JSON value; the others do not call it."""
        return find()

    def packed_from_first(self, find: Callable[[], Packed | None]) -> Packed | None:
        """Named tensors and a description, as `find` returns them on the first rank; the others do not call it."""
        return find()

    def copy_from_first(self, values: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first rank."""

    def wait(self) -> None:
        """Wait until all ranks are here."""

    def require_same(self, config: Callable[[], Mapping[str, Any]]) -> None:
        """Raise unless all ranks have the same configuration; `config` is called only if there are several."""


ALONE = Ranks()


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """The ranks of a run on this device: those that torchrun or `cavia run --ranks` started with this process."""
    if not _has_others():
        yield ALONE
        return
    from cavia.training.group import group

    with group(device) as ranks:
        yield ranks


def _has_others() -> bool:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size() > 1
    if "RANK" not in os.environ:
        return False
    return _number("WORLD_SIZE", 1) > 1


def _number(name: str, least: int) -> int:
    """The environment variable as a whole number."""
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise CaviaError(f"the environment variable {name} must be a whole number, got {shown(text)}; torchrun sets it")
    return require_at_least(name, int(text), least)

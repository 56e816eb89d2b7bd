"""The part of a batch of tasks that one of several processes takes."""

from collections.abc import Callable
from dataclasses import dataclass


def _own(number: int) -> int:
    return number


@dataclass(frozen=True)
class Share:
    """Our share of a batch of `tasks`: those from `start` to before `stop`.

    longest: maps our number to the largest of any process; every process calls it at the same points.
    """

    start: int
    stop: int
    tasks: int
    longest: Callable[[int], int] = _own

    def __len__(self) -> int:
        """How many tasks are ours."""
        return self.stop - self.start

    @property
    def is_whole(self) -> bool:
        """Whether all tasks are ours."""
        return len(self) == self.tasks

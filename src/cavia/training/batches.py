"""The batches of a training run, drawn many at a time where that is cheaper."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cavia.tasks.batch import TaskBatch, TaskFamily
from cavia.training.settings import FitSettings

POINTS_AHEAD, MOST_AHEAD = 50_000, 100  # points and batches of a block at most: they should fit the cache


@dataclass(frozen=True)
class Block:
    """Some batches drawn together: count · T tasks, T of each batch."""

    tasks: TaskBatch
    count: int

    def __getitem__(self, number: int) -> TaskBatch:
        """One of the batches."""
        if self.count == 1:
            return self.tasks
        size = len(self.tasks) // self.count
        return self.tasks.part(number * size, (number + 1) * size)


class Batches:
    """Where a run's batches come from.

    ahead: batches drawn at once. They depend on it, so a run stays with the number that it began with.
    """

    def __init__(
        self, family: TaskFamily, settings: FitSettings, generator: torch.Generator, ahead: int, device: torch.device
    ):
        self.family, self.settings, self.generator, self.device = family, settings, generator, device
        self.ahead = ahead
        self.used = ahead  # batches of the block
        self._before = generator.get_state()  # what the block was drawn from

    def following(self) -> tuple[Block, int]:
        """The block that the next batch is in, and its place there."""
        if self.used == self.ahead:
            self._draw()
        return self._block, self.used

    def _draw(self) -> None:
        if self.ahead > 1:
            self._before = self.generator.get_state()
        settings = self.settings
        counts = settings.support_counts
        choice = 0 if len(counts) == 1 else int(torch.randint(len(counts), (), generator=self.generator))
        tasks = settings.tasks_per_batch * self.ahead
        batch = self.family.sample(tasks, counts[choice], settings.query, self.generator)
        self._block, self.used = Block(batch.to(self.device), self.ahead), 0

    def state(self) -> tuple[Tensor, int]:
        """The generator's state, and how many of the batches drawn from there are used."""
        return (self.generator.get_state(), 0) if self.used == self.ahead else (self._before, self.used)

    def load_state(self, generator: Tensor, used: int) -> None:
        """Go on from what `state` returned."""
        self.generator.set_state(generator)
        self.used = self.ahead
        if used:
            self._draw()
            self.used = used


def batches_ahead(family: TaskFamily, settings: FitSettings) -> int:
    """How many batches of a new run are drawn at once: more than one where the family says so (`draws_ahead`)."""
    if not _draws_ahead(family) or len(settings.support_counts) > 1:
        return 1
    points = settings.tasks_per_batch * (settings.support_counts[0] + settings.query)
    return max(1, min(MOST_AHEAD, POINTS_AHEAD // points))


def _draws_ahead(family: TaskFamily) -> bool:
    """What the class whose `sample` it is says: a subclass with a `sample` of its own says so for itself."""
    of_its_own = (kind for kind in type(family).__mro__ if vars(kind).keys() & {"draws_ahead", "sample"})
    return bool(vars(next(of_its_own, object)).get("draws_ahead", False))

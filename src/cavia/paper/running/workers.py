"""Where cells run: all that the runner asks of this machine, or of a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from cavia.errors import CaviaError
from cavia.paper.experiment import Cell
from cavia.paper.running.orders import Order
from cavia.training.progress import Progress

INTERRUPTED = 130  # exit code of a worker that was asked to stop
Message: TypeAlias = Progress | CaviaError | str  # where it stands, why it gives up, a line to show


class Worker(ABC):
    """One cell at work. When it has ended, all that it wrote is in the order's folder."""

    def __init__(self, order: Order, cell: Cell):
        self.order, self.cell = order, cell
        self.failure: CaviaError | None = None  # what it says before it gives up

    @property
    def name(self) -> str:
        return f"{self.order.experiment}/{self.cell.name}"

    @property
    @abstractmethod
    def exitcode(self) -> int | None:
        """How its process ended; None as long as it runs."""

    @abstractmethod
    def news(self) -> list[Message]:
        """What it said since the last call; does not wait."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to write its checkpoint and end."""

    @abstractmethod
    def join(self) -> None:
        """Wait until it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once, if it has not ended."""


class Workers(ABC):
    """Starts workers: on the cores of this machine, or on a cluster."""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many cells may be at work at the same time, as things are."""

    @abstractmethod
    def start(self, order: Order, cell: Cell) -> Worker:
        """Set a worker to a cell, which goes on from its checkpoint in the order's folder."""

    @abstractmethod
    def wait(self, workers: Sequence[Worker], seconds: float) -> None:
        """Wait for news of any of these, for so many seconds at most."""

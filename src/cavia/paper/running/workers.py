"""The contract of workers, which run cells: on this machine or on a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from cavia.errors import CaviaError
from cavia.paper.experiment import Cell
from cavia.paper.running.orders import Order
from cavia.training.progress import Progress

INTERRUPTED = 130  # exit code of a worker that was asked to stop
Message: TypeAlias = Progress | CaviaError | str  # its progress, why it gives up, a line to show


class Worker(ABC):
    """A running cell. Once it has ended, all of its files are in the order's folder."""

    def __init__(self, order: Order, cell: Cell):
        self.order, self.cell = order, cell
        self.failure: CaviaError | None = None  # why it gave up

    @property
    def name(self) -> str:
        return f"{self.order.experiment}/{self.cell.name}"

    @property
    @abstractmethod
    def exitcode(self) -> int | None:
        """The exit code of its process; None while it runs."""

    @abstractmethod
    def news(self) -> list[Message]:
        """Its messages since the last call; does not wait."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to write its checkpoint and exit."""

    @abstractmethod
    def join(self) -> None:
        """Wait until it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it, if it has not ended."""


class Workers(ABC):
    """Starts workers: on the cores of this machine, or on a cluster."""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many cells may currently run at the same time."""

    @abstractmethod
    def start(self, order: Order, cell: Cell) -> Worker:
        """Start a worker on a cell, which resumes from its checkpoint in the order's folder."""

    @abstractmethod
    def wait(self, workers: Sequence[Worker], seconds: float) -> None:
        """Wait for news from any of these workers, at most `seconds`."""

"""Cells on the cores of this machine, one process each."""

import time
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any

from cavia.errors import shown
from cavia.machine import require_memory, threads_each
from cavia.paper.experiment import Cell
from cavia.paper.running.orders import Order
from cavia.paper.running.processes import start_process
from cavia.paper.running.work import work
from cavia.paper.running.workers import Message, Worker, Workers

MEMORY = 2**28  # bytes that a process takes before training, roughly


class LocalWorker(Worker):
    """A cell in a process on this machine."""

    def __init__(self, order: Order, cell: Cell, threads: int):
        super().__init__(order, cell)
        self.process, self.messages = start_process(work, order, cell, threads)

    @property
    def exitcode(self) -> int | None:
        return self.process.exitcode

    def news(self) -> list[Message]:
        return received(self.messages)

    def stop(self) -> None:
        self.process.terminate()

    def join(self) -> None:
        self.process.join()

    def kill(self) -> None:
        self.process.kill()


class LocalWorkers(Workers):
    """`jobs` processes at a time that share the cores."""

    def __init__(self, jobs: int):
        require_memory(jobs * MEMORY, f"{shown(jobs)} cells at a time (--jobs)")
        self.jobs, self.threads = jobs, threads_each(jobs)

    @property
    def room(self) -> int:
        return self.jobs

    def start(self, order: Order, cell: Cell) -> Worker:
        return LocalWorker(order, cell, self.threads)

    def wait(self, workers: Sequence[Worker], seconds: float) -> None:
        ours = [worker for worker in workers if isinstance(worker, LocalWorker)]
        if not ours:
            time.sleep(min(seconds, 0.1))
        connection.wait([one.messages for one in ours] + [one.process.sentinel for one in ours], timeout=seconds)


def received(messages: Any) -> list[Message]:
    """All messages that a process has sent since the last call."""
    sent: list[Message] = []
    try:
        while messages.poll():
            sent.append(messages.recv())
    except (EOFError, OSError):  # the second: it was killed in the middle of a message
        pass
    return sent

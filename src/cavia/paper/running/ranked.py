"""Cells on the cores of this machine, each trained by several processes ("ranks") together."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import connection
from typing import Any

import torch

from cavia.errors import CaviaError, shown
from cavia.machine import cores, require_memory, threads_each
from cavia.paper.experiment import Cell
from cavia.paper.running.local import MEMORY, received
from cavia.paper.running.orders import Order
from cavia.paper.running.processes import start_process
from cavia.paper.running.work import follow, work
from cavia.paper.running.workers import Message, Worker, Workers
from cavia.training.launching import MeetingPoint

GRACE = 5.0  # seconds for the other ranks to end by themselves after one has ended


class RankedWorker(Worker):
    """A cell in several processes on this machine: the first trains, measures, writes and reports; the others help."""

    def __init__(self, order: Order, cell: Cell, ranks: int, threads: int):
        super().__init__(order, cell)
        self._place = MeetingPoint(ranks)
        started = [
            start_process(_as_rank, self._place.environment(rank), work if rank == 0 else follow, own, cell, threads)
            for rank, own in enumerate(_on_devices(order, ranks))
        ]
        self.processes = [process for process, _ in started]
        self.messages, *self._unheard = [messages for _, messages in started]
        self._ended_at: float | None = None

    @property
    def exitcode(self) -> int | None:
        """The first rank's, once all have ended; if one dies, the others are ended."""
        codes = [process.exitcode for process in self.processes]
        if self._ended_at is None and (codes[0] is not None or any(codes)):
            self._ended_at = time.monotonic()
        if None in codes and self._ended_at is not None and time.monotonic() > self._ended_at + GRACE:
            gone = next((rank for rank, code in enumerate(codes) if code), 0)
            if codes[gone]:  # the others may be compiling for minutes before they notice
                self.failure = CaviaError(
                    f"rank {gone} of {len(codes)} ended with code {codes[gone]} (killed, or out of memory?); run the "
                    "same command again to resume"
                )
            self.kill()
        return None if None in codes else codes[0]

    def news(self) -> list[Message]:
        return received(self.messages)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()

    def join(self) -> None:
        while self.exitcode is None:
            connection.wait([process.sentinel for process in self.processes if process.exitcode is None], timeout=0.5)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


class RankedWorkers(Workers):
    """`jobs` cells at a time with `ranks` processes each, which share the cores."""

    def __init__(self, jobs: int, ranks: int):
        self.jobs, self.ranks, self.threads = jobs, ranks, threads_each(jobs * ranks)
        what = f"cells at a time (--jobs {shown(jobs)}) on several ranks (--ranks {shown(ranks)})"
        require_memory(jobs * ranks * MEMORY, what)

    @property
    def room(self) -> int:
        return self.jobs

    def start(self, order: Order, cell: Cell) -> Worker:
        return RankedWorker(order, cell, self.ranks, self.threads)

    def wait(self, workers: Sequence[Worker], seconds: float) -> None:
        ours = [worker for worker in workers if isinstance(worker, RankedWorker)]
        if not ours:
            time.sleep(min(seconds, 0.1))
        processes = [process for one in ours for process in one.processes if process.exitcode is None]
        connection.wait([one.messages for one in ours] + [one.sentinel for one in processes], timeout=seconds)


def too_many(jobs: int, ranks: int) -> str | None:
    """A warning if there are more processes than cores."""
    if jobs * ranks <= cores():
        return None
    fix = f"--ranks {cores()}" if ranks > cores() else f"--jobs {cores() // ranks}"
    return (
        f"{jobs} cells at a time on {ranks} ranks each are {jobs * ranks} processes for {cores()} cores, which is "
        f"slower; try {fix}"
    )


def _as_rank(environment: dict[str, str], target: Callable[..., None], *arguments: Any) -> None:
    os.environ.update(environment)
    target(*arguments)


def _on_devices(order: Order, ranks: int) -> list[Order]:
    """The order of each rank: with several GPUs, each rank has its own."""
    gpus = torch.cuda.device_count() if order.device == "cuda" else 0
    return [replace(order, device=f"cuda:{rank % gpus}") if gpus else order for rank in range(ranks)]

"""Cells on a Ray cluster: each is an actor with its own core or GPU.

An actor trains in a folder of its node. Each checkpoint is sent to the driver, or put into shared storage; when a node
dies, its cells resume elsewhere from there.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from cavia.cluster.connection import Cluster, speaking
from cavia.cluster.nodes import versions
from cavia.cluster.storage import Storage
from cavia.errors import Busy, CaviaError
from cavia.paper.experiment import Cell
from cavia.paper.running.on_node import FILES, CellOnNode, News, Task, folders_of
from cavia.paper.running.orders import Order
from cavia.paper.running.workers import INTERRUPTED, Message, Worker, Workers
from cavia.training.checkpoint import RunFolder

INTERVAL = 0.5  # seconds between reports of a cell
LONG = 15.0  # seconds after which a cell reports that it waits for a node
KILLED = 255  # exit code of a process that was killed together with the server that started it
DEATHS = 5  # of a cell's workers in a row without a new checkpoint, after which the cell gives up


class RayWorkers(Workers):
    """Actors of a cluster: `jobs`, or as many as it currently has cores (or GPUs, if cells need one).

    storage: where checkpoints are kept; None: they are sent to the driver.
    """

    def __init__(self, cluster: Cluster, jobs: int | None = None, storage: str | None = None, device: str = "cpu"):
        self.cluster, self.jobs = cluster, jobs
        self.storage = Storage(storage).address if storage else None
        self.needs = {"num_cpus": 1} | ({"num_gpus": 1} if device.startswith("cuda") else {})
        self.resource = "GPU" if "num_gpus" in self.needs else "CPU"
        self.word = Storage(storage).sign() if storage else ""
        self.versions = versions()

    def close(self) -> None:
        """Remove everything of ours from the storage, except the run folders."""
        if self.storage:
            Storage(self.storage).forget(self.word)

    @property
    def room(self) -> int:
        there = int(self.cluster.resources().get(self.resource, 0))
        return self.jobs or there + 1  # one waits, so that a cluster with autoscaling grows

    def start(self, order: Order, cell: Cell) -> Worker:
        return RayWorker(self, order, cell)

    def wait(self, workers: Sequence[Worker], seconds: float) -> None:
        self.cluster.resources()  # raises if the head is gone
        pending = [one.pending for one in workers if isinstance(one, RayWorker) and one.pending is not None]
        if not pending:
            time.sleep(min(seconds, 0.1))
            return
        with speaking():
            self.cluster.ray.wait(pending, num_returns=1, timeout=seconds)


class RayWorker(Worker):
    """A cell on a node of the cluster."""

    pending: Any = None  # the answer it waits for
    _exitcode: int | None = None

    def __init__(self, where: RayWorkers, order: Order, cell: Cell):
        super().__init__(order, cell)
        self._where, self._ray = where, where.cluster.ray
        self._home = Storage(str(order.out.absolute().parent))
        self._within = order.out.absolute().parent.name
        self._kept = Storage(f"{where.storage}/{self._within}") if where.storage else None
        self._said: list[Message] = []
        self._deaths, self._is_stopping, self._has_begun = 0, False, False
        self._lock = ExitStack()
        try:
            self._lock.enter_context(RunFolder(order.folder(cell), events=False).lock())
            if self._kept and not self._kept.find(folders_of(cell), FILES):
                self._kept.write(self._home.find(folders_of(cell), FILES))
            self._begin()
        except Busy as error:
            self._end([error], 2)

    @property
    def exitcode(self) -> int | None:
        return self._exitcode

    def news(self) -> list[Message]:
        self._take()
        said, self._said = self._said, []
        return said

    def stop(self) -> None:
        self._is_stopping = True
        if self._has_begun and self._exitcode is None:
            self._actor.stop.remote()
        else:
            self.kill()

    def join(self) -> None:
        while self._exitcode is None:
            self._where.wait([self], INTERVAL)
            self._take()

    def kill(self) -> None:
        if self._exitcode is None:
            self._end([], INTERRUPTED)

    def _begin(self) -> None:
        """Request a node, and resume there from the kept files."""
        where = self._where
        device = "cuda" if "num_gpus" in where.needs else self.order.device  # the GPU that Ray assigns
        data = replace(self.order.data, root=self.order.data.root.absolute())
        order = replace(self.order, device=device, data=data, out=self.order.out.absolute())
        task = Task(order, self.cell, 1, where.versions)
        if self._kept:
            task = replace(task, storage=where.storage, within=self._within, word=where.word)
        else:
            task = replace(task, files=self._home.find(folders_of(self.cell), FILES))
        with speaking():
            self._actor = self._ray.remote(max_restarts=0, **where.needs)(CellOnNode).remote()
            self.pending = self._actor.begin.remote(task)
        self._has_begun, self._patient_until = False, time.monotonic() + LONG

    def _take(self) -> None:
        """Process the node's answer, if there is one."""
        if self.pending is None:
            return
        gone = self._ray.exceptions.RayActorError
        with speaking():
            if not self._ray.wait([self.pending], timeout=0)[0]:
                self._say_that_it_waits()
                return
            try:
                news: News = self._ray.get(self.pending)
            except gone as error:
                self._lose("its node died", error)
                return
        self._has_begun = True
        if news.files:
            self._home.write(news.files)
            self._deaths = 0
        if news.exitcode is None:
            self._said += news.messages
            self.pending = self._actor.news.remote(INTERVAL)
            return
        if news.exitcode < 0 or news.exitcode == KILLED:  # its node may be about to die
            self._ray.kill(self._actor)
            self._lose("its process was killed")
            return
        if self._kept:
            self._home.write(self._kept.find(f"{self.order.out.name}/cells/{self.cell.name}", FILES))
        self._end(news.messages, news.exitcode)

    def _say_that_it_waits(self) -> None:
        """Report once that the cell waits, if the cluster lacks the resource."""
        where = self._where
        if self._has_begun or time.monotonic() < self._patient_until or where.cluster.resources().get(where.resource):
            return
        self._patient_until = math.inf
        self._said.append(f"waits for a node with a free {where.resource}; the cluster has none")

    def _lose(self, what: str, error: Exception | None = None) -> None:
        """Handle the death of the node, the actor or its process; what: which one, in words."""
        if "ModuleNotFoundError" in str(error):
            self._end([CaviaError("a node cannot import cavia; install the same version on all nodes")], 2)
        elif self._is_stopping:
            self._end([], INTERRUPTED)
        elif self._deaths == DEATHS:
            why = f"{what} {DEATHS + 1} times before it wrote a checkpoint (out of memory?)"
            self._end([CaviaError(f"{why}; run the same command again to resume")], 2)
        else:
            self._deaths += 1
            self._said.append(f"{what}; it resumes elsewhere from its last checkpoint")
            self._begin()

    def _end(self, messages: list[Message], exitcode: int) -> None:
        self._said += messages
        self._exitcode, self.pending = exitcode, None
        self._lock.close()
        if actor := getattr(self, "_actor", None):
            self._ray.kill(actor)

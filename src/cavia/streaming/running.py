"""A job over all parts of a data set: one after another on this machine, or as tasks of a Ray cluster."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from cavia.cluster.connection import Cluster, speaking
from cavia.cluster.nodes import require_same_versions, this_node, versions
from cavia.cluster.storage import Storage
from cavia.errors import CaviaError
from cavia.streaming.files import Part
from cavia.streaming.jobs import Done, Job

DEATHS = 10  # of workers under one part, after which it is given up
AHEAD = 2  # parts that wait for each core
EVERY = 10.0  # seconds between lines


class Progress:
    """Reports a job's progress every few seconds."""

    def __init__(self, parts: int):
        self.parts, self.finished, self.done = parts, 0, Done()
        self.begin = self.said = time.perf_counter()

    def add(self, done: Done) -> None:
        """One more part is finished."""
        self.done, self.finished = self.done.plus(done), self.finished + 1
        now = time.perf_counter()
        if now - self.said > EVERY:
            self.said = now
            pace = self.done.tasks / (now - self.begin)
            print(
                f"{self.finished} of {self.parts} parts: {self.done.tasks:,} tasks, {pace:,.0f} a second",
                file=sys.stderr,
                flush=True,
            )


def run_here(job: Job, parts: Sequence[Part]) -> Done:
    """Do all parts in this process, one after another."""
    progress = Progress(len(parts))
    for part in parts:
        progress.add(job.do(part))
    return progress.done


def run_on(cluster: Cluster, job: Job, parts: Sequence[Part], seen: Callable[[Part], None] | None = None) -> Done:
    """Do all parts as tasks of the cluster; those of workers and nodes that die are done again elsewhere.

    seen: is called with each part that is finished.
    """
    ray, progress = cluster.ray, Progress(len(parts))
    word = Storage(job.out).sign() if job.out else ""
    with speaking():
        given = ray.put((job, versions(), word))
    task = ray.remote(num_cpus=1, max_retries=DEATHS, retry_exceptions=False)(_on_node)
    waiting = list(reversed(parts))
    running: dict[Any, Part] = {}
    try:
        while waiting or running:
            room = AHEAD * max(1, int(cluster.resources().get("CPU", 0)))  # more when nodes come
            with speaking():
                while waiting and len(running) < room:
                    part = waiting.pop()
                    running[task.remote(given, part)] = part
                ready, _ = ray.wait(list(running), num_returns=1, timeout=1.0)
                for one in ready:
                    progress.add(_result(ray, one))
                    part = running.pop(one)
                    if seen:
                        seen(part)
    finally:
        for one in running:
            ray.cancel(one, force=True)
        if job.out:
            Storage(job.out).forget(word)
    return progress.done


def _result(ray: Any, reference: Any) -> Done:
    try:
        result = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if "ModuleNotFoundError" in str(error):
            raise CaviaError("a node cannot import cavia; install the same version on all nodes") from None
        raise
    except ray.exceptions.WorkerCrashedError:
        raise CaviaError(
            f"workers died {DEATHS + 1} times at the same part (out of memory?); the same command resumes"
        ) from None
    if isinstance(result, CaviaError):
        raise result
    return result


def _on_node(given: tuple[Job, dict[str, str], str], part: Part) -> Done | CaviaError:
    """Do one part; returns the error if it fails."""
    import torch

    job, theirs, word = given
    try:
        torch.set_num_threads(1)
        require_same_versions(theirs)
        if job.out:
            Storage(job.out).require_signed(word)
        return job.do(part)
    except CaviaError as error:
        return CaviaError(f"on node {this_node()}: {error}")

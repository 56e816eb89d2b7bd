"""Distributes the cells of an experiment over workers, one process each.

A cell that dies does not affect the others, and its memory is freed.
"""

import math
import time
from collections.abc import Sequence

from cavia.errors import Busy, CaviaError, Interrupted
from cavia.paper.experiment import Cell
from cavia.paper.running.display import Display
from cavia.paper.running.orders import Order, read_result
from cavia.paper.running.workers import INTERRUPTED, Worker, Workers
from cavia.paper.schema import CellResult
from cavia.training.interrupt import stop_requests
from cavia.training.progress import Progress

PATIENCE = 5.0  # seconds between checks of a cell that another process is training


def run_cells(cells: Sequence[tuple[Order, Cell]], where: Workers, display: Display, until: float = math.inf) -> None:
    """Keep the workers busy until all cells are finished; wait for cells that other processes are training.

    until: the time, by time.monotonic(), at which all workers are asked to write their checkpoints and stop.
    """
    waiting = [(0.0, order, cell) for order, cell in cells]  # when to try each
    workers: list[Worker] = []
    with stop_requests() as stop:
        try:
            while waiting or workers:
                ready = [entry for entry in waiting if entry[0] <= time.monotonic()]
                for entry in ready[: max(where.room - len(workers), 0)] if ready else []:
                    waiting.remove(entry)
                    workers.append(where.start(*entry[1:]))
                where.wait(workers, 0.5)
                for worker in workers:
                    _show(worker, display)
                if stop.made:
                    display.say("stopping; every cell writes a checkpoint first (Ctrl-C again: at once)")
                    raise Interrupted(_RESUME)
                if time.monotonic() >= until:
                    return
                for worker in [worker for worker in workers if worker.exitcode is not None]:
                    workers.remove(worker)
                    _show(worker, display)
                    worker.join()
                    if isinstance(worker.failure, Busy):
                        waiting.append((time.monotonic() + PATIENCE, worker.order, worker.cell))
                    else:
                        display.finished(worker.name, _result(worker))
        finally:
            _stop(workers)


_RESUME = "stopped; finished cells are kept, run the same command again to resume"


def _show(worker: Worker, display: Display) -> None:
    """Show the worker's messages."""
    for message in worker.news():
        if isinstance(message, Progress):
            display.progress(worker.name, message)
        elif isinstance(message, CaviaError):
            worker.failure = message
        else:
            display.say(f"{worker.name}: {message}")


def _result(worker: Worker) -> CellResult:
    """The worker's result; raises if it ended without one."""
    if worker.exitcode == INTERRUPTED:
        raise Interrupted(_RESUME)
    if worker.failure:
        raise CaviaError(f"{worker.name}: {worker.failure}")
    result = read_result(worker.order, worker.cell)
    if result is None:
        raise CaviaError(
            f"{worker.name}: its process ended with code {worker.exitcode} before it was finished "
            "(killed, or out of memory?); run the same command again to resume"
        )
    return result


def _stop(workers: list[Worker]) -> None:
    """Ask every worker to write its checkpoint and exit, and wait for it; a second Ctrl-C ends them at once."""
    for worker in workers:
        worker.stop()
    try:
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.kill()

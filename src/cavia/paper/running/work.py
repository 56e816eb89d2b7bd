"""The work of a cell's process, wherever it runs."""

import os
import signal
import warnings
from typing import Any

import torch

from cavia.errors import Busy, CaviaError, Diverged
from cavia.paper.catalogue import find
from cavia.paper.experiment import Cell, Place
from cavia.paper.running.orders import Order, read_result
from cavia.paper.running.workers import INTERRUPTED, Message
from cavia.paper.training import follow_cell, run_cell
from cavia.tensor_file import write_json


def work(order: Order, cell: Cell, threads: int, messages: Any) -> None:
    """Train one cell, in its own process."""

    def send(message: Message) -> None:
        try:
            messages.send(message)
        except OSError:  # the runner has died: stop as if asked to
            os.kill(os.getpid(), signal.SIGTERM)

    torch.set_num_threads(threads)
    experiment, settings, folder = find(order.experiment), order.settings, order.folder(cell)
    try:
        result = read_result(order, cell)
        if result and (result.diverged or not order.remeasure):
            return  # another process was faster, or nothing needs measuring
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message="the meta-step could not be compiled")
            warnings.showwarning = lambda message, *_, **__: send(str(message))
            result = run_cell(experiment, settings, cell, Place(folder, order.device, send, order.data))
        write_json(folder / "result.json", result.as_json())
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except (CaviaError, Diverged, OSError, RuntimeError, MemoryError, OverflowError) as error:
        what = (str(error).strip() or type(error).__name__).splitlines()[0]
        send(Busy(what) if isinstance(error, Busy) else CaviaError(what))
        raise SystemExit(2) from None


def follow(order: Order, cell: Cell, threads: int, messages: Any) -> None:
    """Help to train one cell, as a rank other than the first, which reports, measures and writes everything."""
    torch.set_num_threads(threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            follow_cell(find(order.experiment), order.settings, cell, order.device, order.data)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except Diverged:
        return  # divergence is a result, which the first rank writes
    except (CaviaError, OSError, RuntimeError, MemoryError, OverflowError):
        raise SystemExit(2) from None

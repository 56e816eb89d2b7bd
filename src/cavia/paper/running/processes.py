"""Processes for the cells, forked from a server that has imported PyTorch.

Nothing heavy is imported here: the command line starts the server first of all, and it imports while the runner does.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from cavia.errors import CaviaError

SAFE_PATH = "PYTHONSAFEPATH"  # modules of the folder that the user is in are not for the server


def start_server(compiles: bool = False) -> bool:
    """Let the server import what the cells need, and the compiler if it `compiles`; nothing if there is one already.

    Returns whether there is a server. There is none where PyTorch is not safe to fork (macOS), processes do not fork
    (Windows) or the folder for temporary files takes no sockets (its name may be too long).
    """
    if sys.platform != "linux":
        return False
    from multiprocessing.forkserver import ensure_running

    compiler = "torch._inductor.compile_fx" if compiles else "torch._dynamo"  # which the first gradient imports
    context = get_context("forkserver")
    context.set_forkserver_preload(["cavia.paper.running.server", "cavia.paper.running.work", compiler])
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        ensure_running()
    except OSError:
        return False
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
    return True


def start_process(target: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
    """Start target(*arguments, send) in a process of its own; returns it, and the connection that `send` speaks to."""
    context: Any = get_context("forkserver" if start_server() else "spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_begin, args=(dict(os.environ), target, *arguments, send), daemon=True)
    try:
        if context.get_start_method() == "spawn":
            with _deaf_to_interrupts():
                process.start()
        else:
            process.start()  # may wait for the server's imports
    except (EOFError, ConnectionError):
        raise CaviaError(
            "the server that starts the cells' processes has died (out of memory?); run the same command again"
        ) from None
    send.close()
    return process, receive


def _begin(environment: dict[str, str], target: Callable[..., None], *arguments: Any) -> None:
    os.environ.clear()  # the server's, which may be older than what the runner has by now
    os.environ.update(environment)
    target(*arguments)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started here inherits that it ignores Ctrl-C, which is the runner's to handle."""
    if threading.current_thread() is not threading.main_thread():  # where signals cannot be set
        yield
        return
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heard)

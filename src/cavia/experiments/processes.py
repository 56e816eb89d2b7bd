"""Processes for the cells, forked from a server that has imported PyTorch.

Nothing heavy is imported here: the command line starts the server first of all, and it imports while the runner does.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_all_start_methods, get_context
from typing import Any

METHOD = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"  # not on Windows
CONTEXT: Any = get_context(METHOD)


def start_server(compiles: bool = False) -> None:
    """Let the server import what the cells need, and the compiler if it `compiles`; later calls change nothing."""
    if METHOD == "forkserver":
        from multiprocessing.forkserver import ensure_running

        compiler = ["torch._inductor.compile_fx"] if compiles else []
        CONTEXT.set_forkserver_preload(["cavia.experiments.server", "cavia.experiments.workers", *compiler])
        with _deaf_to_interrupts():
            ensure_running()


def start_process(target: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
    """Start target(*arguments, send) in a process of its own; returns it, and the connection that `send` speaks to."""
    start_server()
    receive, send = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_begin, args=(dict(os.environ), target, *arguments, send), daemon=True)
    with _deaf_to_interrupts():
        process.start()
    send.close()
    return process, receive


def _begin(environment: dict[str, str], target: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # what the server imported is no garbage
    gc.enable()
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

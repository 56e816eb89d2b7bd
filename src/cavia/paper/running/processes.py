"""Processes for the cells, forked from a server that has imported PyTorch.

This module imports nothing heavy: the command line starts the server first, so that both import at the same time.
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

SAFE_PATH = "PYTHONSAFEPATH"  # keeps modules in the user's folder out of the server
_starting = threading.Lock()  # two threads that set this variable and take it back would leave it wrong


def start_server(compiles: bool = False) -> bool:
    """Start a server that imports what the cells need, and the compiler if it `compiles`; does nothing if it runs.

    Returns whether there is a server. There is none where forking is unsafe for PyTorch (macOS) or impossible
    (Windows), or where the temporary folder cannot hold sockets (its name may be too long).
    """
    if sys.platform != "linux":
        return False
    from multiprocessing.forkserver import ensure_running

    compiler = "torch._inductor.compile_fx" if compiles else "torch._dynamo"  # imported by the first gradient
    context = get_context("forkserver")
    context.set_forkserver_preload(["cavia.paper.running.server", "cavia.paper.running.work", compiler])
    with _starting:
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
    """Start target(*arguments, send) in a new process; returns the process, and the receiving end of `send`."""
    context: Any = get_context("forkserver" if start_server() else "spawn")
    receive, send = context.Pipe(duplex=False)
    with _starting:  # not while the server's variable is set
        environment = dict(os.environ)
    process = context.Process(target=_begin, args=(environment, target, *arguments, send), daemon=True)
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
    os.environ.clear()  # the server's variables may be outdated
    os.environ.update(environment)
    target(*arguments)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C, which the runner handles."""
    if threading.current_thread() is not threading.main_thread():  # cannot set signal handlers
        yield
        return
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heard)

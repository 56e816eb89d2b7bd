"""Ctrl-C and SIGTERM as a request to stop after the current step."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether the run was asked to stop."""

    made = False
    at = 0.0  # by time.monotonic()


@contextmanager
def stop_requests(deaf_for: float = 0.0) -> Iterator[StopRequest]:
    """Collect requests to stop; a second one interrupts at once. Only the main thread receives them.

    deaf_for: seconds after the first request during which another one counts as the same, received twice.

    A signal that is ignored, as Ctrl-C is in a job started with `&` in a script, stays ignored; so does one whose
    handler was not set from Python, because it could not be restored.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if not request.made:
            request.made, request.at = True, time.monotonic()
        elif time.monotonic() >= request.at + deaf_for:
            raise KeyboardInterrupt

    heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

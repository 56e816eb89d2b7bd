"""Ctrl-C and SIGTERM as a request to stop after the current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether somebody has asked the run to stop."""

    made = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Collect requests to stop; a second one interrupts at once. Other threads than the main one get none.

    A signal that is ignored, as Ctrl-C is in a job started with `&` in a script, stays ignored; so does one that
    was not set up from Python, since nobody could put it back.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if request.made:
            raise KeyboardInterrupt
        request.made = True

    heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

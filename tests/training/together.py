"""Functions on several ranks, each a process on this machine."""

import os
import sys
import threading
import time
import traceback
from contextlib import contextmanager

import torch

from cavia.paper.running.processes import start_process
from cavia.training.launching import MeetingPoint


class Failed(Exception):
    """A rank ended by an exception: its class, and what it says."""


def _say_where(send, seconds):
    """After that time, what each thread is at, instead of an answer."""
    time.sleep(seconds)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames().items()
    stacks = [f"{names.get(thread)}:\n{''.join(traceback.format_stack(frame))}" for thread, frame in frames]
    send.send(("failed", f"no answer within {seconds} s", "\n".join(stacks)))


def _work(environment, function, arguments, send):
    os.environ.update(environment)
    torch.set_num_threads(1)
    threading.Thread(target=_say_where, args=[send, 500], daemon=True).start()
    try:
        send.send(("result", function(*arguments)))
    except BaseException as error:
        known = type(error).__name__ in ("CaviaError", "Diverged", "Interrupted", "Busy")
        send.send(("failed", type(error).__name__, str(error) if known else traceback.format_exc()))


@contextmanager
def started(count, function, *arguments):
    """A process for each rank, at function(*arguments), and the connections over which they say what they found."""
    place = MeetingPoint(count)
    workers = [start_process(_work, place.environment(rank), function, arguments) for rank in range(count)]
    try:
        yield [process for process, _ in workers], [receive for _, receive in workers]
    finally:
        for process, _ in workers:
            process.kill()
            process.join()


def answers(receivers, seconds=600.0):
    """What each rank found, or `Failed`; None: it ended without a word."""
    until, replies = time.monotonic() + seconds, []
    for receive in receivers:
        assert receive.poll(max(0.0, until - time.monotonic())), f"no answer within {seconds} s"
        try:
            kind, *rest = receive.recv()
            replies.append(rest[0] if kind == "result" else Failed(*rest))
        except EOFError:
            replies.append(None)
    return replies


def on_ranks(count, function, *arguments):
    """What function(*arguments) finds on each rank."""
    with started(count, function, *arguments) as (_, receivers):
        answered = answers(receivers)
    failed = [one for one in answered if isinstance(one, Failed) or one is None]
    assert not failed, failed
    return answered

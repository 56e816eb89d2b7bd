"""Requests that arrive within a few milliseconds become one batch, which a separate thread answers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from cavia.serving.limits import Limits
from cavia.serving.service import Reply, Request, refusal

MOST = 256  # requests in a batch


class Waiting(NamedTuple):
    request: Request
    reply: asyncio.Future[Reply]
    since: float


class Batcher:
    """Collects requests on the event loop and has them answered by `answer` in one thread, a batch at a time.

    seconds: how long the first request of a batch waits for others while the thread is idle; 0: one request at a time.
    seen:    is told the size of every batch.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Request]], list[Reply]],
        limits: Limits,
        seconds: float,
        seen: Callable[[int], None] = lambda size: None,
    ):
        self.answer, self.limits, self.seconds, self.seen = answer, limits, seconds, seen
        self.most = MOST if seconds else 1
        self.waiting: list[Waiting] = []
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None
        self.thread = ThreadPoolExecutor(1, "cavia-model")

    async def submit(self, request: Request) -> Reply:
        """The reply, when its batch is done."""
        if len(self.waiting) >= self.limits.waiting:
            return refusal(429, f"{self.limits.waiting} requests are waiting already, the most there may be; try later")
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Reply] = loop.create_future()
        self.waiting.append(Waiting(request, reply, time.monotonic()))
        if self.busy:
            pass  # its batch begins when this one is done
        elif len(self.waiting) >= self.most:
            self._begin()
        elif self.timer is None:
            self.timer = loop.call_later(self.seconds, self._begin)
        return await reply

    def _begin(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        batch: list[Waiting] = []
        while self.waiting and not batch:
            now, self.waiting = self.waiting[: self.most], self.waiting[self.most :]
            batch = [one for one in now if self._is_in_time(one)]
        if batch:
            self.busy = True
            self.seen(len(batch))
            loop = asyncio.get_running_loop()
            done = self.thread.submit(self._work, [one.request for one in batch])
            done.add_done_callback(lambda future: loop.call_soon_threadsafe(self._end, batch, future.result()))

    def _is_in_time(self, one: Waiting) -> bool:
        """Whether somebody still waits for the reply, and has not waited too long."""
        if one.reply.done():  # who asked is gone
            return False
        if time.monotonic() - one.since <= self.limits.seconds:
            return True
        what = f"the request waited for more than {self.limits.seconds:g} s, the limit; send fewer at a time"
        one.reply.set_result(refusal(429, what))
        return False

    def _work(self, requests: Sequence[Request]) -> list[Reply]:
        try:
            return self.answer(requests)
        except Exception as error:  # whatever happens, who waits is told
            return [refusal(500, f"{type(error).__name__}: {error}")] * len(requests)

    def _end(self, batch: Sequence[Waiting], replies: Sequence[Reply]) -> None:
        for one, reply in zip(batch, replies, strict=True):
            if not one.reply.done():
                one.reply.set_result(reply)
        self.busy = False
        if self.waiting:
            self._begin()

    def close(self) -> None:
        """Wait for the running batch."""
        self.thread.shutdown(wait=True)

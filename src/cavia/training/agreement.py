"""Agreement between the ranks of a run on time and stop requests, although each has its own clock and signals."""

import time
import zlib

import torch

from cavia.errors import CaviaError
from cavia.training.feed import Feed
from cavia.training.interrupt import StopRequest
from cavia.training.progress import Clock
from cavia.training.ranks import Ranks

OFTEN = 0.1  # seconds between two exchanges, roughly: the longest that a stop request waits


class Agreement:
    """The run's time, and whether it was asked to stop: equal on all ranks.

    Ranks exchange this every few steps; at each exchange the first rank schedules the next. The time is the CPU time of
    all ranks, or the first rank's clock where a run is timed by wall clock. Each exchange also checks that all ranks
    draw the same random numbers: otherwise each would train on different tasks.
    """

    def __init__(self, ranks: Ranks, clock: Clock, begun: float, feed: Feed, stop: StopRequest):
        """begun: the clock's reading at the start."""
        self.ranks, self._clock, self._feed, self._stop = ranks, clock, feed, stop
        self._begun = self._seconds = begun
        self._stops = False
        self._next = self._last = 0  # iterations
        self._spoke = time.perf_counter()

    @property
    def stops(self) -> bool:
        """Whether any rank was asked to stop."""
        return self._stop.made if self.ranks.alone else self._stops

    def seconds(self, iteration: int, now: bool = False) -> float:
        """The run's time so far; with several ranks, as of their last exchange.

        now: exchange in any case; ranks that arrive early wait.
        """
        if self.ranks.alone:
            return self._clock.seconds()
        if now or iteration >= self._next:
            self._speak(iteration)
        return self._seconds

    def _speak(self, iteration: int) -> None:
        counts = self.ranks.is_first or not self._feed.waits
        passed = self._clock.seconds() - self._begun if counts else 0.0
        drawn = zlib.crc32(self._feed.generator.get_state().numpy().data)
        steps = self._steps(iteration) if self.ranks.is_first else 0
        said = torch.tensor([passed, self._stop.made, steps, drawn], dtype=torch.float64)
        passed, stops, steps, total = self.ranks.sum(said).tolist()
        if total != self.ranks.count * drawn:
            raise CaviaError(
                f"the ranks have drawn different random numbers by iteration {iteration}: what draws from the "
                "generator (tasks, starts, actions) must draw as many numbers whatever their values"
            )
        self._seconds, self._stops, self._next = self._begun + passed, stops > 0, iteration + int(steps)

    def _steps(self, iteration: int) -> int:
        """How many steps to take until the next exchange: as many as fit into `OFTEN` at the pace of the last ones."""
        now = time.perf_counter()
        taken, passed = iteration - self._last, now - self._spoke
        self._last, self._spoke = iteration, now
        return max(1, min(2 * taken, int(taken * OFTEN / max(passed, 1e-6))))

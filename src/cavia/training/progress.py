"""Progress of a run: a bar in a terminal, plain lines elsewhere, or the caller's function."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from cavia.errors import call_of_user


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    iteration: int
    iterations: int
    metrics: Mapping[str, float]  # of the last step: "loss", or "return_after", "kl", …
    score: float | None  # of the last validation
    per_second: float
    seconds_left: float
    share: float  # how much of the run is done

    def __str__(self) -> str:
        done = "".join(f"  {name.replace('_', ' ')} {value:.4g}" for name, value in self.metrics.items())
        score = "" if self.score is None else f"  validation {self.score:.4f}"
        pace = f"  {self.per_second:.3g} it/s  {clock(self.seconds_left)} left" if self.per_second else ""
        return f"iteration {self.iteration}/{self.iterations}{done}{score}{pace}"


class Clock:
    """The time that a run has taken, over all its sessions, and how often to show it.

    On a CPU, the CPU time of all cores: neither the machine's load nor the number of cores changes how much work fits
    into a minute. Elsewhere (`waits`), wall-clock time.
    """

    def __init__(self, seconds: float, waits: bool = False, between: float = 0.2):
        self._now = time.perf_counter if waits else time.process_time
        self._zero = self._now() - seconds
        self._between = between
        self._next = time.perf_counter()
        self._first: tuple[int, float, float] | None = None  # after the first step, which may have compiled

    def seconds(self) -> float:
        """Seconds since the run first started, without the pauses between sessions."""
        return self._now() - self._zero

    def time_to_show(self) -> bool:
        """True a few times a second."""
        if time.perf_counter() < self._next:
            return False
        self._next = time.perf_counter() + self._between
        return True

    def progress(
        self, iteration: int, iterations: int, metrics: Mapping[str, float], score: float | None, share: float
    ) -> Progress:
        """The run's progress, with the wall-clock speed since this session's first step."""
        now = time.perf_counter()
        if self._first is None:
            self._first = (iteration, share, now)
        done, gained, took = iteration - self._first[0], share - self._first[1], now - self._first[2]
        per_second = done / took if took > 0 and done else 0.0
        left = max(1 - share, 0.0) * took / gained if gained > 0 else float("nan")
        return Progress(iteration, iterations, metrics, score, per_second, left, share)


Show: TypeAlias = Callable[[Progress], None]


def clock(seconds: float) -> str:
    """Seconds as 1:05 or 2:03:07."""
    if not math.isfinite(seconds):
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@contextmanager
def showing(progress: bool | Show, title: str) -> Iterator[Show]:
    """The function that shows progress, for the duration of a run."""
    if callable(progress):
        yield partial(call_of_user, "progress", progress)
    elif not progress:
        yield lambda state: None
    elif sys.stderr.isatty():
        with _bar(title) as show:
            yield show
    else:
        yield _lines(title)


@contextmanager
def _bar(title: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bars, TextColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}")]
    with Bars(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(title, text="starting")

        def show(state: Progress) -> None:
            bars.update(bar, total=1.0, completed=state.share, text=str(state))

        yield show


def _lines(title: str) -> Show:
    """About ten lines in all, so that a log stays readable."""
    last = [-1]

    def show(state: Progress) -> None:
        tenth = int(10 * state.share)
        if tenth > last[0]:
            last[0] = tenth
            print(f"{title}: {state}", file=sys.stderr, flush=True)

    return show

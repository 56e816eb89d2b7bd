"""Shows a running experiment: bars in a terminal; elsewhere lines when a cell starts, every minute, and at its end."""

import math
import sys
import time
from typing import Any

from cavia.paper.schema import CellResult
from cavia.training.progress import Progress, clock


class Display:
    """Shows the cells of one experiment while they run."""

    def __init__(self, experiment: str, total: int, finished: int):
        self._experiment, self._total, self._finished = experiment, total, finished
        self._started = time.perf_counter()
        self._bars: Any = None
        self._rows: dict[str, Any] = {}
        self._shown: dict[str, float] = {}

    def __enter__(self) -> "Display":
        if self._finished:
            self.say(f"{self._experiment}: {self._finished} of {self._total} cells are finished already")
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress as Bars, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[text]}"))
            self._bars = Bars(*columns, console=Console(stderr=True))
            self._bars.start()
            self._all = self._bars.add_task(self._experiment, total=self._total, completed=self._finished, text="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars:
            self._bars.stop()

    def say(self, line: str) -> None:
        """Print a permanent line."""
        if self._bars:
            self._bars.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def progress(self, cell: str, state: Progress) -> None:
        """Show a cell's progress; without a terminal, when it starts and then once a minute."""
        if self._bars:
            if cell not in self._rows:
                self._rows[cell] = self._bars.add_task(f"  {cell}", text="")
            self._bars.update(self._rows[cell], total=1.0, completed=state.share, text=str(state))
        elif time.perf_counter() - self._shown.get(cell, -math.inf) > 60:
            self._shown[cell] = time.perf_counter()
            self.say(f"  {cell}: {state}")

    def finished(self, cell: str, result: CellResult) -> None:
        """Show that a cell is finished."""
        self._finished += 1
        if self._bars:
            if cell in self._rows:
                self._bars.remove_task(self._rows.pop(cell))
            self._bars.update(self._all, completed=self._finished)
        score = result.validation
        outcome = "diverged" if result.diverged else "trained" if score is None else f"validation {score:.4f}"
        passed = clock(time.perf_counter() - self._started)
        self.say(f"[{self._finished}/{self._total}, {passed}] {cell}: {outcome}")

"""How the time and the memory of a CAVIA step on sine curves grow, with fitted exponents.

    python benchmarks/growth.py [--rounds 5] [--largest 4096] [--json FILE]

One axis at a time: tasks, inner steps, context size and width; the others stay at 25 tasks, 1 step, 5 context
parameters and width 40. The step is not compiled, all tasks at a time. All sizes of an axis are timed in turns, and
each size's peak memory is taken in a process of its own.
"""

import argparse
import math
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import linear_regression
from typing import Any

import torch

import cavia
from cavia.allocator import keep_freed_memory
from cavia.tensor_file import write_json
from cavia.training.step import MetaStep
from interleaved import CLIP, LR, in_turns, milliseconds, raised_peak, until
from peers.work import sine_batch, sine_model
from steps import one_core

DEFAULTS = {"tasks": 25, "inner steps": 1, "context": 5, "width": 40}
LARGEST = {"tasks": 4096, "inner steps": 32, "context": 1024, "width": 1024}
FACTOR = 4  # between sizes; inner steps go by two


def sizes(axis: str, largest: int) -> list[int]:
    """1, 4, 16, … up to the largest; the width begins at 16."""
    factor = 2 if axis == "inner steps" else FACTOR
    start = 16 if axis == "width" else 1
    end = min(largest, LARGEST[axis])
    return [start * factor**i for i in range(1 + int(round(math.log(max(end, start) / start, factor), 6)))]


def step_of(axis: str, size: int) -> Callable[[], object]:
    """One meta-step with this size of one axis, as an action."""
    settings = DEFAULTS | {axis: size}
    torch.manual_seed(0)
    model = sine_model(settings["context"], settings["width"])
    # The rate is small, so that 32 steps and 1024 context parameters stay finite.
    learner = cavia.CAVIA(model, "mse", inner_lr=0.01, inner_steps=settings["inner steps"])
    return partial(MetaStep(learner, LR, CLIP), sine_batch(0, settings["tasks"]))


def peak_memory(axis: str, size: int) -> float:
    """MB by which the step raises the peak of a new process."""
    one_core()
    step_of("tasks", 1)()  # whatever is loaded or allocated only once
    return raised_peak(step_of(axis, size))


def exponent(by_size: Mapping[int, float]) -> float | None:
    """The slope of the upper half of the sizes, where overhead no longer hides the growth, in a log-log plot."""
    points = [(math.log(size), math.log(value)) for size, value in by_size.items() if value > 0]
    upper = points[len(points) // 2 :] if len(points) > 3 else points
    if len(upper) < 2:
        return None
    x, y = zip(*upper, strict=True)
    return round(linear_regression(x, y).slope, 2)


def measure(axis: str, rounds: int, largest: int, seconds: float, pool: Any) -> dict[str, Any]:
    """Milliseconds and MB by size, and the exponents of both."""
    tried = sizes(axis, largest)
    memory = {size: pool.submit(peak_memory, axis, size).result() for size in tried}
    times = in_turns({str(size): until(step_of(axis, size), 1, seconds) for size in tried}, rounds)
    by_size = {size: milliseconds(times[str(size)]) for size in tried}
    return {
        "sizes": tried,
        "milliseconds": list(by_size.values()),
        "peak_memory_mb": list(memory.values()),
        "time_exponent": exponent(by_size),
        "memory_exponent": exponent(memory),
    }


def draw(result: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Time and memory against each axis, both logarithmic."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure = Figure(figsize=(2.1 * len(result) + 0.5, 4.4), layout="constrained")
    axes = figure.subplots(2, len(result), squeeze=False, sharex="col", sharey="row")
    rows: Sequence[tuple[str, str, str]] = (
        ("milliseconds", "time_exponent", "ms a step"),
        ("peak_memory_mb", "memory_exponent", "MB of peak memory"),
    )
    for column, (axis, part) in enumerate(result.items()):
        for row, (values, slope, label) in enumerate(rows):
            panel = axes[row][column]
            shown = [(size, value) for size, value in zip(part["sizes"], part[values], strict=True) if value > 0]
            if shown:
                panel.loglog(*zip(*shown, strict=True), marker="o", markersize=4, color="#0072b2")
            for scale in (panel.xaxis, panel.yaxis):
                scale.set_major_formatter(StrMethodFormatter("{x:g}"))
                scale.set_minor_formatter(NullFormatter())
            if row == 0:  # times span less than memory
                panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            name = "–" if part[slope] is None else f"∝ {axis}^{part[slope]:g}"
            panel.set_title(f"{'time' if row == 0 else 'memory'} {name}", fontsize=9)
            panel.grid(alpha=0.3)
            if column == 0:
                panel.set_ylabel(label)
            if row == 1:
                panel.set_xlabel(axis)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="time of each size in each round")
    parser.add_argument("--largest", type=int, default=4096, help="no size beyond this one")
    parser.add_argument("--axes", nargs="*", default=list(DEFAULTS), choices=list(DEFAULTS))
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    # Memory first: a process inherits the peak of the one that starts it.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        one_core()
        keep_freed_memory()
        result = {axis: measure(axis, options.rounds, options.largest, options.seconds, pool) for axis in options.axes}
    for axis, part in result.items():
        print(f"{axis}: time ~ size^{part['time_exponent']}, memory ~ size^{part['memory_exponent']}", part)
    if options.json:
        write_json(options.json, {"axes": result})


if __name__ == "__main__":
    main()

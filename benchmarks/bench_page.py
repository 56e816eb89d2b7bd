"""The page of `benchmarks/all.py`, from what it measured."""

from statistics import median
from typing import Any

from peers import BF16, COMPILED, EAGER, LOOPING


def markdown(result: dict[str, Any]) -> str:
    """bench.json as a page."""
    load, cores = result["machine"]["load"], result["machine"]["cores"]
    busy = "busy with other work" if load > 1.5 else "otherwise idle"
    absent = result["missing_peers"]
    left_out = f" Not installed, so left out: {', '.join(absent)}." if absent else ""
    flag = " --quick" if result["quick"] else ""
    steps = "\n".join(_steps(name, part) for name, part in result["steps"].items())
    return f"""# Where the speed stands

`python benchmarks/all.py{flag}`, {result["date"]}; {cores} cores, {busy} (load {load:.1f} at the start), one core for
each entrant, processor time. Entrants take turns in every round: compare the ratios, not the times. Before anything is
timed, all must reach the same weights from the same start.{left_out}
How it is done: [docs/performance.md](../../docs/performance.md).

“Slower than ours” is an entrant's time over that of our fastest step in float32 in the same round: the median, and the
range of all rounds. “Difference” is the largest of any weight to the recipe's after two steps.

The peak is that of a product of two 1024×1024 matrices in the same rounds; the fraction of it counts the
floating-point operations of the matrix products and convolutions of our step, for all entrants alike.

{steps}
{_adapting(result["adapting"])}
{_growth(result["growth"])}
{_startup(result["startup"])}"""


def _steps(name: str, part: dict[str, Any]) -> str:
    times = part["times"]
    ours = min((one for one in (EAGER, COMPILED, LOOPING) if one in times), key=lambda one: median(times[one]))

    def beside_ours(entrant: str) -> str:
        if entrant == ours:
            return "1× |"
        ratios = [theirs / own for theirs, own in zip(times[entrant], times[ours], strict=True)]
        return f"{median(ratios):.3g}× | {min(ratios):.3g}× … {max(ratios):.3g}×"

    rows = "\n".join(
        f"| {entrant} | {row['milliseconds']:.4g} | {_count(row['tasks_per_second'])} "
        f"| {row['times_faster_than_recipe']['median']:.3g}× | {beside_ours(entrant)} "
        f"| {row['fraction_of_peak']:.1%} | {row['largest_difference']:.0e} |"
        for entrant, row in part["entrants"].items()
    )
    peak = part["peak_giga_operations_per_second"]["median"]
    errors = part.get("gradient_errors")
    rounding = ", ".join(f"{name} {error:.1e}" for name, error in errors.items()) if errors else ""
    exact = "float32" if errors and BF16 in errors else "float64"
    apart = f"\nDistance of a meta-gradient to that in {exact}, of its length: {rounding}." if errors else ""
    few = "".join(f"\n“{entrant}” takes {count} at a time." for entrant, count in part["tasks_at_a_time"].items())
    return f"""## One meta-step: {name}

{part["tasks"]} tasks, {part["mega_operations"]:g} · 10⁶ operations, peak {peak:g} · 10⁹ a second;
medians of {part["rounds"]} rounds, load {part["machine"]["load"]:.1f} at the end.{part["data"]}{few}{apart}

| entrant | ms | tasks/s | faster than the recipe | slower than ours | in single rounds | of the peak | difference |
|---|---|---|---|---|---|---|---|
{rows}
"""


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _adapting(part: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {int(tasks):,} | {name} | {row['milliseconds']:.3g} | {row['tasks_per_second']:,} "
        f"| {_with_range(row['times_faster_than_recipe'])} | {_with_range(row['times_faster_than_before'])} |"
        for tasks, by_name in part["tasks"].items()
        for name, row in by_name.items()
    )
    return f"""## Test time: adapt to new sine curves and predict

Ten known points and ten new ones of each, one inner step, in one call; the recipe takes one task after another, at most
a hundred of them. “cavia at 3587be9” takes the inner gradient by a transform of PyTorch; “cavia, compiled” is
`cavia.compiled(learner)`.

| tasks | entrant | ms | tasks a second | faster than the recipe | than at 3587be9 |
|---|---|---|---|---|---|
{rows}
"""


def _with_range(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.3g}× ({ratio['worst']:.3g} … {ratio['best']:.3g})"


def _growth(axes: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {axis} | {part['sizes'][0]} … {part['sizes'][-1]} "
        f"| {part['milliseconds'][0]:.3g} … {part['milliseconds'][-1]:.3g} | {_slope(part['time_exponent'])} "
        f"| {part['peak_memory_mb'][0]:.3g} … {part['peak_memory_mb'][-1]:.3g} | {_slope(part['memory_exponent'])} |"
        for axis, part in axes.items()
    )
    return f"""## Growth of an uncompiled CAVIA step on sine curves

One axis at a time from 25 tasks, 1 inner step, 5 context parameters, width 40. The exponent is the slope of the upper
half of the sizes in the log-log plot.

| axis | sizes | ms | exponent | MB | exponent |
|---|---|---|---|---|---|
{rows}

![Time and memory against tasks, inner steps, context size and width](bench.png)
"""


def _slope(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _startup(part: dict[str, Any]) -> str:
    lazily, wholly = part["imports"]["cavia_over_torch"], part["imports"]["all_over_torch"]
    warm = "".join(
        f"- `cavia run {run['experiment']}` to the end of its first iteration: {run['seconds']} s"
        f" ({'compiled' if run['compiled'] else 'not compiled'}).\n"
        for run in part["runs"]
    )
    tables = "\n".join(_first_steps(work, rows) for work, rows in part["first_steps"].items())
    return f"""## Start-up

- `import cavia` takes {lazily["median"]}× the time of `import torch`, which it leaves to the first use;
  with all its names imported at once {wholly["median"]}× (worst round {wholly["worst"]}×).
{warm}
{tables}"""


def _first_steps(work: str, rows: dict[str, Any]) -> str:
    lines = "\n".join(
        f"| {name} | {row['seconds_to_first_step']} | {row['first_step_seconds']} "
        f"| {row['warm']['seconds_to_first_step'] if 'warm' in row else '–'} "
        f"| {row['peak_memory_mb']} | {row['raised_by_step_mb']} |"
        for name, row in rows.items()
    )
    return f"""**{work}**: the first step in a new process.

Seconds from the start of the process, and of the step with its compiling; MB of the process, and of the step.

| entrant | from start | step | from start, cache warm | MB | MB of the step |
|---|---|---|---|---|---|
{lines}
"""

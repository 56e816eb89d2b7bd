"""The same meta-step by all entrants: checked to be equal, then timed in turns.

    python benchmarks/steps.py --work "sine, CAVIA" [--rounds 9] [--seconds 0.2] [--json FILE]

One process on one core, timed by the processor's clock, so that what others do on the machine does
not count. Freed memory is kept for all entrants alike, as `cavia.fit` has it for itself.
"""

import argparse
import os
import platform
import statistics
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.allocator import keep_freed_memory
from cavia.tensor_file import write_json
from interleaved import SIDE, count_operations, in_turns, matrix_product, milliseconds, spread, until
from peers import BEFORE, BF16, COMPILED, EAGER, RECIPE, entrants
from peers.before import Before
from peers.entrant import Entrant, flat
from peers.ours import Ours
from peers.work import WORK, Work

CHECKED = 2  # steps before the entrants' weights are compared
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
BF16_GRADIENT = 0.05  # how far a meta-gradient in bf16 may be from that in float32, of its length


def check(work: Work, made: Mapping[str, Entrant]) -> dict[str, float]:
    """Entrant → the largest difference of any of its weights to the recipe's after a few steps.

    Adam makes steps of one length of any gradient, so for bf16 the gradients themselves are compared before.
    """
    batches = work.batches(CHECKED)
    for entrant in made.values():
        entrant.prepare(batches)()
    vectors = {name: entrant.parameters() for name, entrant in made.items()}
    differences = {name: (vector - vectors[RECIPE]).abs().max().item() for name, vector in vectors.items()}
    tolerance = TOLERANCE[work.dtype]
    wrong = {name: value for name, value in differences.items() if name != BF16 and not value <= tolerance}
    if wrong:
        raise SystemExit(f"these entrants disagree with the recipe, nothing was timed: {wrong}")
    return differences


def bf16_error(work: Work) -> float:
    """How far the meta-gradient in bf16 is from that in float32, of its length."""
    batch = work.batches(1)[0]
    exact, rounded = (Ours(work, precision=precision).gradient(batch) for precision in ("float32", "bf16"))
    error = ((rounded - exact).norm() / exact.norm()).item()
    if not error <= BF16_GRADIENT:
        raise SystemExit(
            f"the meta-gradient in bf16 is off by {error:.1%} of its length, more than {BF16_GRADIENT:.0%}"
        )
    return error


def gradient_errors(work: Work) -> dict[str, float]:
    """How far a task's meta-gradient in single precision is from that in double, the median over tasks.

    Ours, and that of the commit before. Rounding decides what some max-pools take, more often in some tasks than in
    others, so the weights of two entrants part in single precision.
    """
    ours, before, exact = Ours(work), Before(work), Before(work)
    exact.weights = [weight.detach().double().requires_grad_() for weight in exact.weights]
    errors: dict[str, list[float]] = {EAGER: [], BEFORE: []}
    for task in work.batches(1)[0].split(1):
        double = cavia.TaskBatch(task.support_x.double(), task.support_y, task.query_x.double(), task.query_y)
        expected = flat(exact.gradients(double))
        for name, gradient in {EAGER: ours.gradient(task), BEFORE: flat(before.gradients(task))}.items():
            errors[name].append(((gradient - expected).norm() / expected.norm()).item())
    medians = {name: statistics.median(values) for name, values in errors.items()}
    if not medians[EAGER] <= max(medians[BEFORE], 0.05):
        raise SystemExit(f"our meta-gradient is further from double precision than before: {medians}")
    return medians


def measure(work: Work, rounds: int, seconds: float, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Times, ratios and fractions of the machine's peak for one work; each entrant runs `seconds` in each round."""
    makers = {name: make for name, make in entrants(work).items() if name not in without}
    torch.set_default_dtype(work.dtype)
    try:
        made = {name: make() for name, make in makers.items()}
        differences = check(work, made)
    finally:
        torch.set_default_dtype(torch.float32)
    errors = {BF16: bf16_error(work)} if BF16 in made else {}
    if work.dtype != torch.float32:
        errors = gradient_errors(work)
        made = {name: make() for name, make in makers.items()}
    batches = work.batches(20 if work.loss == "mse" and work.inner_steps == 1 else 1)
    actions = {name: until(entrant.prepare(batches), len(batches), seconds) for name, entrant in made.items()}
    operations = count_operations(entrants(work)["cavia"]().prepare(batches[:1]))
    times = in_turns(actions | {"matrix product": matrix_product()}, rounds)
    peak = [2 * SIDE**3 / one for one in times.pop("matrix product")]  # operations per second
    rows = {
        name: {
            "milliseconds": milliseconds(values),
            "tasks_per_second": round(len(batches[0]) / statistics.median(values), 2),
            "times_faster_than_recipe": spread([r / t for r, t in zip(times[RECIPE], values, strict=True)], 2),
            "fraction_of_peak": round(
                statistics.median(operations / t / p for t, p in zip(values, peak, strict=True)), 4
            ),
            "largest_difference": differences[name],
        }
        for name, values in times.items()
    }
    chunks = {EAGER: work.chunk} | dict.fromkeys((COMPILED, BF16, BEFORE), work.compiled_chunk)
    return {
        "tasks": len(batches[0]),
        "data": work.data(),
        "tasks_at_a_time": {name: chunk for name, chunk in chunks.items() if chunk is not None and name in rows},
        "rounds": rounds,
        "mega_operations": round(operations / 1e6, 2),
        "peak_giga_operations_per_second": spread([value / 1e9 for value in peak], 1),
        "entrants": rows,
        "gradient_errors": errors,
        "times": times,
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and how busy it was."""
    return {"cores": os.cpu_count(), "load": os.getloadavg()[0], "architecture": platform.machine()}


def one_core() -> None:
    """Hold the process to one core: JAX has no other way to use one thread."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", choices=list(WORK), default="sine, CAVIA")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="time of each entrant in each round")
    parser.add_argument("--without", nargs="*", default=[], help="entrants to leave out")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # the peers' own
    one_core()
    keep_freed_memory()
    result = measure(WORK[options.work], options.rounds, options.seconds, tuple(options.without)) | {
        "machine": machine()
    }
    if options.json:
        write_json(options.json, result)
    for name, row in result["entrants"].items():
        ratio = row["times_faster_than_recipe"]
        print(f"{name:24} {row['milliseconds']:10.3f} ms  {ratio['median']:6.2f}× ({ratio['worst']} … {ratio['best']})")


if __name__ == "__main__":
    main()

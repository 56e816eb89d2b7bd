"""A completion meta-step against the paper's task-by-task recipe: ratios of times measured interleaved in one run.

    python benchmarks/completion.py [--rounds 5] [--compiled] [--out results/benchmarks]

25 pictures, 5 inner steps, MLP 5×128, 128 context parameters, one thread; with 10 and 1000 known pixels, and all 1024
pixels or 256 of them in the query. All contestants start from the same weights, see the same batches, and must produce
the same parameters before anything is timed. --compiled adds the compiled step; compiling takes minutes.
"""

import argparse
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.pictures.faces import synthetic_faces
from cavia.training.step import MetaStep
from interleaved import (
    CLIP,
    LR,
    SIDE,
    check,
    contestants,
    count_operations,
    in_turns,
    keeping_memory,
    matrix_product,
    milliseconds,
    publish,
    raised_peak,
    repeated,
    returning_memory,
    spread,
    times_faster,
)

PICTURES, INNER_STEPS, CONTEXT, HIDDEN = 25, 5, 128, (128,) * 5
CASES = ((10, 1024), (10, 256), (1000, 1024))  # known pixels and query pixels
BATCHES = {10: 3, 1000: 1}  # steps in one round, by known pixels
CHECKED = 2  # steps before the contestants' parameters are compared
CHUNKS = (PICTURES, 5, 1)


def new_model() -> cavia.MLP:
    torch.manual_seed(0)
    return cavia.MLP(2, 3, hidden=HIDDEN, context=CONTEXT)


def faces() -> cavia.Completion:
    return cavia.Completion(synthetic_faces(train=200, val=1, test=1))


def measure(known: int, query: int, rounds: int, compiled: bool) -> dict[str, Any]:
    """Times, ratios and fractions of the peak for one number of known pixels and one of query pixels."""
    family, generator = faces(), torch.Generator().manual_seed(0)
    batches = [family.sample(PICTURES, known, query, generator) for _ in range(max(CHECKED, BATCHES[known]))]
    steps = contestants(new_model(), INNER_STEPS, compiled)
    difference = check(steps, batches[:CHECKED])
    operations = {name: count_operations(partial(steps[name].step, batches[0])) for name in ("recipe", "eager")}
    actions = {name: repeated(one.step, batches[: BATCHES[known]]) for name, one in steps.items()}
    kept = {
        name: ((returning_memory if name == "recipe" else keeping_memory)(action), units)
        for name, (action, units) in actions.items()
    }
    times = in_turns(
        {
            **kept,
            "recipe, memory kept": (keeping_memory(actions["recipe"][0]), actions["recipe"][1]),
            "matrix product": matrix_product(),
            "sampling": (lambda: [family.sample(PICTURES, known, query, generator) for _ in range(20)], 20),
        },
        rounds,
        warm=[*kept.keys() - {"recipe"}, "recipe, memory kept"],
    )
    peak = [2 * SIDE**3 / seconds for seconds in times["matrix product"]]  # operations per second

    def of_peak(name: str) -> dict[str, float]:
        count = operations["recipe" if name.startswith("recipe") else "eager"]
        return spread([count / t / p for t, p in zip(times[name], peak, strict=True)], 3)

    fastest = "compiled" if compiled else "eager"
    sampling = [s / t for s, t in zip(times["sampling"], times[fastest], strict=True)]
    return {
        "largest_difference_of_parameters": difference,
        "milliseconds": {name: milliseconds(values) for name, values in times.items()},
        "times_faster_than_recipe": times_faster(times, [*steps, "recipe, memory kept"]),
        "giga_operations": {name: round(count / 1e9, 2) for name, count in operations.items()},
        "peak_giga_operations_per_second": spread([value / 1e9 for value in peak], 1),
        "fraction_of_peak": {name: of_peak(name) for name in (*steps, "recipe, memory kept")},
        "times_faster_at_peak": round(
            statistics.median(t * p / operations["eager"] for t, p in zip(times["recipe"], peak, strict=True)), 1
        ),
        "sampling_fraction_of_step": {"of": fastest, "median": round(statistics.median(sampling), 4)},
    }


def peak_memory(known: int, chunk: int) -> float:
    """By how many MB a step raises the peak memory of the process, which must be a new one."""
    torch.set_num_threads(1)
    family, generator = faces(), torch.Generator().manual_seed(0)
    step = MetaStep(cavia.CAVIA(new_model(), "mse", inner_steps=INNER_STEPS), LR, CLIP, chunk)
    step(family.sample(2, 1, 1, generator))  # whatever is loaded or allocated only once
    batch = family.sample(PICTURES, known, 0, generator)
    return raised_peak(partial(step, batch))


def peak_memories() -> dict[str, dict[str, float]]:
    """Known pixels → chunk → MB. To be measured first: a process inherits the peak of the one that starts it."""
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, processes, max_tasks_per_child=1) as pool:
        return {
            str(known): {str(chunk): pool.submit(peak_memory, known, chunk).result() for chunk in CHUNKS}
            for known in BATCHES
        }


def markdown(facts: dict[str, Any]) -> str:
    flag = " --compiled" if facts["compiled"] else ""
    sections = "\n".join(_section(case, part) for case, part in facts["cases"].items())
    memory = "\n".join(
        f"| {known} | " + " | ".join(f"{part[str(chunk)]:g}" for chunk in CHUNKS) + " |"
        for known, part in facts["peak_memory_mb"].items()
    )
    return f"""# Completion meta-step: how much faster than the task-by-task recipe

`python benchmarks/completion.py --rounds {facts["rounds"]}{flag}`: {PICTURES} pictures,
{INNER_STEPS} inner steps, MLP 5×128, {CONTEXT} context parameters, one thread; medians of {facts["rounds"]} interleaved
rounds. Compare the ratios, not the times: the machine is shared. The peak is that of a product of two {SIDE}×{SIDE}
matrices in the same round; the operations are those of the matrix products, counted on the uncompiled step. Our steps
keep freed memory for the next tensor, as `cavia.fit` does; the recipe is timed as it is, and with memory kept, too.

{sections}
## Peak memory of an uncompiled step, in MB

| known pixels | {" | ".join(f"chunk = {chunk}" for chunk in CHUNKS)} |
|---|{"---|" * len(CHUNKS)}
{memory}

How far one step raises the peak of a new process.
"""


def _section(case: str, part: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {part['milliseconds'][name]} | {ratio['median']}× | {ratio['worst']}× … {ratio['best']}× "
        f"| {part['fraction_of_peak'][name]['median']:.0%} |"
        for name, ratio in part["times_faster_than_recipe"].items()
    )
    operations, sampling = part["giga_operations"], part["sampling_fraction_of_step"]
    return f"""## {case}

| step | ms | faster than the recipe | worst … best round | of the matrix-multiply peak |
|---|---|---|---|---|
{rows}

- Largest difference of any parameter after {CHECKED} steps: {part["largest_difference_of_parameters"]:.1e}.
- Floating-point operations of a step: {operations["eager"]} · 10⁹, of the recipe {operations["recipe"]} · 10⁹; peak
  {part["peak_giga_operations_per_second"]["median"]} · 10⁹ per second.
- If every operation ran at that peak, a step would be {part["times_faster_at_peak"]}× as fast as the recipe: the
  most that any implementation of it can reach.
- Sampling a batch takes {sampling["median"]:.2%} of a step ({sampling["of"]}).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compiled", action="store_true", help="time the compiled step too")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    memory = peak_memories()
    result = {
        "rounds": options.rounds,
        "compiled": options.compiled,
        "cases": {
            f"{known} known pixels, {query} query pixels": measure(known, query, options.rounds, options.compiled)
            for known, query in CASES
        },
        "peak_memory_mb": memory,
    }
    publish(options.out / "completion", result, markdown(result))


if __name__ == "__main__":
    main()

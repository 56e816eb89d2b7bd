"""A sine meta-step against the paper's task-by-task recipe: ratios of times measured interleaved in one run.

    python benchmarks/sine.py [--rounds 15] [--out results/benchmarks]

25 tasks, 10 + 10 points, 5 context parameters, one inner step, one thread. All contestants start from the same
weights, see the same batches, and must produce the same parameters before anything is timed.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import cavia
from interleaved import Step, check, contestants, in_turns, milliseconds, publish, repeated, times_faster

TASKS, POINTS, CONTEXT = 25, 10, 5


def measure(rounds: int) -> dict[str, object]:
    family, generator = cavia.Sine(), torch.Generator().manual_seed(0)
    batches = [family.sample(TASKS, POINTS, POINTS, generator) for _ in range(20)]
    torch.manual_seed(0)
    steps = contestants(cavia.MLP(1, 1, context=CONTEXT), inner_steps=1, compiled=True)
    difference = check(steps, batches[:10])
    passes = {"recipe": 1, "eager": 5, "compiled": 20}  # over the batches in one round
    times = in_turns({name: repeated(one.step, batches, passes[name]) for name, one in steps.items()}, rounds)
    return {
        "largest_difference_of_parameters": difference,
        "milliseconds": {name: milliseconds(values) for name, values in times.items()},
        "times_faster_than_recipe": times_faster(times, list(steps)),
        "rounds": rounds,
        "peak_memory_growth_mb_over_5000_steps": memory_growth(steps["compiled"].step, batches),
        "iteration_of_fit_over_compiled_step": fit_over_step(repeated(steps["compiled"].step, batches, 50)),
        "evaluate_1000_tasks_ms": evaluation_time(),
    }


def fit_over_step(steps: tuple[Callable[[], object], int]) -> float:
    """An iteration of a compiled `cavia.fit`, with its batch and its books, over a step with a batch that is there."""

    def iteration() -> float:
        """Seconds, without the start of the run, by what `fit` shows of itself."""
        seen: list[tuple[int, float]] = []
        learner = cavia.CAVIA(cavia.MLP(1, 1, context=CONTEXT), "mse")
        cavia.fit(
            learner,
            cavia.Sine(),
            iterations=5000,
            outer=cavia.Adam(compile=True),
            validation=cavia.Validation(tasks=0),
            progress=lambda progress: seen.append((progress.iteration, time.process_time())),
        )
        (first, begin), (last, end) = next(one for one in seen if one[0] >= 500), seen[-1]
        return (end - begin) / (last - first)

    return round(statistics.median(iteration() / in_turns({"step": steps}, 1)["step"][0] for _ in range(5)), 2)


def memory_growth(step: Step, batches: list[cavia.TaskBatch]) -> float:
    """How far the process's peak memory grows over 5,000 more compiled steps."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(250):
        for batch in batches:
            step(batch)
    return round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 2)


def evaluation_time() -> float:
    """Adapting to 1000 tasks and scoring 100 points of each, in one batched call."""
    learner = cavia.CAVIA(cavia.MLP(1, 1, context=CONTEXT), "mse")
    times = []
    for _ in range(10):
        start = time.perf_counter()
        cavia.evaluate(learner, cavia.Sine(), tasks=1000)
        times.append(time.perf_counter() - start)
    return round(1e3 * statistics.median(times), 2)


def markdown(result: dict) -> str:
    rows = "\n".join(
        f"| {name} | {result['milliseconds'][name]} | {r['median']}× | {r['worst']}× … {r['best']}× |"
        for name, r in result["times_faster_than_recipe"].items()
    )
    return f"""# Sine meta-step: how much faster than the task-by-task recipe

`python benchmarks/sine.py --rounds {result["rounds"]}`: 25 tasks, 10 + 10 points, 5 context parameters, one thread;
medians of {result["rounds"]} interleaved rounds. Compare the ratios, not the times: the machine is shared.

| step | ms | faster than the recipe | worst … best round |
|---|---|---|---|
{rows}

- Largest difference of any parameter after 10 steps: {result["largest_difference_of_parameters"]:.1e}.
- Peak memory grew by {result["peak_memory_growth_mb_over_5000_steps"]} MB over 5,000 compiled steps.
- An iteration of `cavia.fit`, which also draws the batch and reads the loss and the clock:
  {result["iteration_of_fit_over_compiled_step"]}× a compiled step.
- Evaluating 1000 tasks (adapt on 10 points, score 100, steps 0 and 1) in one batched call:
  {result["evaluate_1000_tasks_ms"]} ms.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = measure(options.rounds)
    publish(options.out / "sine", result, markdown(result))


if __name__ == "__main__":
    main()

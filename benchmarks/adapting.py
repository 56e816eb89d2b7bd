"""Test time: adapting to new sine curves and predicting, for 1, 100 and 10,000 tasks in one call.

    python benchmarks/adapting.py [--rounds 9] [--json FILE] [--without "cavia, compiled"]

Ten known points and ten new ones of each curve, one inner step, 5 context parameters, one core. Beside it the
task-by-task recipe, on at most a hundred tasks, and what cavia did before it took the gradient by cheaper means.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import cavia
from cavia.allocator import keep_freed_memory
from cavia.tensor_file import write_json
from interleaved import RecipeNetwork, in_turns, milliseconds, spread, until
from peers import COMPILED, EAGER, RECIPE
from peers.work import sine_batch, sine_model
from steps import machine, one_core

TASKS = (1, 100, 10_000)
MOST_BY_RECIPE = 100
BEFORE = "cavia at 3587be9"


def recipe(network: RecipeNetwork, batch: cavia.TaskBatch) -> Tensor:
    """Adapt to each task on its own and predict its query points: [T, Q, 1]."""
    predictions = []
    for task in range(len(batch)):
        network.reset_context()
        loss = nn.functional.mse_loss(network(batch.support_x[task]), batch.support_y[task])
        network.context = network.context - torch.autograd.grad(loss, network.context)[0]
        predictions.append(network(batch.query_x[task]).detach())
    return torch.stack(predictions)


def before(model: cavia.MLP, batch: cavia.TaskBatch) -> Tensor:
    """The same for all tasks at once as at commit 3587be9, without its checks: the gradient by a transform."""
    with torch.no_grad():
        features = model.stem(batch.support_x)

        def loss(fast: dict[str, Tensor]) -> Tensor:
            errors = (model.head(features, fast["context"]) - batch.support_y).square()
            return errors.flatten(2).mean(-1).mean(1).sum()

        start = {"context": torch.zeros(model.context).expand(len(batch), -1)}
        gradient = torch.func.grad(loss)(start)
        fast = {name: value - 1.0 * gradient[name] for name, value in start.items()}
        return model.head(model.stem(batch.query_x), fast["context"])


def ours(learner: cavia.Learner, batch: cavia.TaskBatch) -> Tensor:
    """The same by the library."""
    fast = learner.adapt(batch.support_x, batch.support_y)
    with torch.no_grad():
        return learner.predict(batch.query_x, fast)


def entrants(without: Sequence[str]) -> dict[str, Callable[[cavia.TaskBatch], Tensor]]:
    """Name → batch → predictions [T, Q, 1], all of the same network."""
    torch.manual_seed(0)
    model = sine_model(5)
    learner = cavia.CAVIA(model, "mse")
    runs = {
        RECIPE: partial(recipe, RecipeNetwork(model)),
        BEFORE: partial(before, model),
        EAGER: partial(ours, learner),
        COMPILED: partial(ours, cavia.compiled(learner)),
    }
    return {name: run for name, run in runs.items() if name not in without}


def measure(rounds: int, seconds: float, without: Sequence[str] = ()) -> dict[str, Any]:
    racing = entrants(without)
    return {
        "tasks": {str(tasks): _race(racing, sine_batch(0, tasks), rounds, seconds) for tasks in TASKS},
        "rounds": rounds,
        "machine": machine(),
    }


def _race(
    racing: dict[str, Callable[[cavia.TaskBatch], Tensor]], batch: cavia.TaskBatch, rounds: int, seconds: float
) -> dict[str, Any]:
    """Entrant → its time, and how many times faster than the recipe and than before it is, round by round."""
    part = next(batch.split(min(len(batch), MOST_BY_RECIPE)))
    expected = racing[RECIPE](part)
    differences = {name: (run(part) - expected).abs().max().item() for name, run in racing.items()}
    wrong = {name: value for name, value in differences.items() if value > 1e-5}
    if wrong:
        raise SystemExit(f"these predictions differ from the recipe's, nothing was timed: {wrong}")
    given = {name: part if name == RECIPE else batch for name in racing}
    actions = {name: until(partial(run, given[name]), len(given[name]), seconds) for name, run in racing.items()}
    times = in_turns(actions, rounds)  # seconds a task

    def ratios(name: str, to: str) -> dict[str, float]:
        return spread([theirs / own for theirs, own in zip(times[to], times[name], strict=True)], 2)

    return {
        name: {
            "milliseconds": milliseconds([len(batch) * one for one in values]),
            "tasks_per_second": round(1 / statistics.median(values)),
            "times_faster_than_recipe": ratios(name, RECIPE),
            "times_faster_than_before": ratios(name, BEFORE),
            "largest_difference": differences[name],
        }
        for name, values in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--without", nargs="*", default=[], help="entrants to leave out")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    one_core()
    keep_freed_memory()
    measured = measure(options.rounds, options.seconds, options.without)
    for tasks, rows in measured["tasks"].items():
        for name, row in rows.items():
            recipes, befores = (row[f"times_faster_than_{other}"]["median"] for other in ("recipe", "before"))
            print(f"{tasks:>6} {name:18} {row['milliseconds']:9.3f} ms  {recipes}× the recipe, {befores}× before")
    if options.json:
        write_json(options.json, measured)


if __name__ == "__main__":
    main()

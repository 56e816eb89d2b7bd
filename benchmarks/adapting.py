"""Test time: adapting to new sine curves and predicting, for 1, 100 and 10,000 tasks in one call.

    python benchmarks/adapting.py [--rounds 9] [--json FILE]

Ten known points and ten new ones of each curve, one inner step, 5 context parameters, one core. Beside it the
task-by-task recipe, on at most a hundred tasks.
"""

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import cavia
from cavia.allocator import keep_freed_memory
from cavia.tensor_file import write_json
from interleaved import RecipeNetwork, in_turns, milliseconds, spread, until
from peers.work import sine_batch, sine_model
from steps import machine, one_core

TASKS = (1, 100, 10_000)
MOST_BY_RECIPE = 100


def recipe(network: RecipeNetwork, batch: cavia.TaskBatch) -> Tensor:
    """Adapt to each task on its own and predict its query points: [T, Q, 1]."""
    found = []
    for task in range(len(batch)):
        network.reset_context()
        loss = nn.functional.mse_loss(network(batch.support_x[task]), batch.support_y[task])
        network.context = network.context - torch.autograd.grad(loss, network.context)[0]
        found.append(network(batch.query_x[task]).detach())
    return torch.stack(found)


def ours(learner: cavia.CAVIA, batch: cavia.TaskBatch) -> Tensor:
    """The same for all tasks at once."""
    fast = learner.adapt(batch.support_x, batch.support_y)
    with torch.no_grad():
        return learner.predict(batch.query_x, fast)


def measure(rounds: int, seconds: float) -> dict[str, Any]:
    torch.manual_seed(0)
    learner = cavia.CAVIA(sine_model(5), "mse")
    assert isinstance(learner.model, cavia.MLP)
    network, found = RecipeNetwork(learner.model), {}
    for tasks in TASKS:
        batch = sine_batch(0, tasks)
        part = next(batch.split(min(tasks, MOST_BY_RECIPE)))
        difference = (ours(learner, part) - recipe(network, part)).abs().max().item()
        if difference > 1e-5:
            raise SystemExit(f"our predictions differ from the recipe's by {difference:.1e}; nothing was timed")
        times = in_turns(
            {
                "recipe": until(partial(recipe, network, part), len(part), seconds),
                "cavia": until(partial(ours, learner, batch), tasks, seconds),
            },
            rounds,
        )
        found[str(tasks)] = {
            "milliseconds": milliseconds([tasks * one for one in times["cavia"]]),
            "tasks_per_second": {name: round(1 / statistics.median(one)) for name, one in times.items()},
            "times_faster_than_recipe": spread(
                [r / t for r, t in zip(times["recipe"], times["cavia"], strict=True)], 1
            ),
            "largest_difference": difference,
        }
    return {"tasks": found, "rounds": rounds, "machine": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    one_core()
    keep_freed_memory()
    found = measure(options.rounds, options.seconds)
    print(found)
    if options.json:
        write_json(options.json, found)


if __name__ == "__main__":
    main()

"""A sine meta-step against the paper's task-by-task recipe: ratios of times measured interleaved in one run.

    python benchmarks/sine.py [--rounds 15] [--out results/benchmarks]

25 tasks, 10 + 10 points, 5 context parameters, one inner step, one thread. All contestants start from the same
weights, see the same batches, and must produce the same parameters before anything is timed.
"""

import argparse
import copy
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import cavia
from cavia.tensor_file import write_atomically, write_json
from cavia.training.step import MetaStep

TASKS, POINTS, CONTEXT, CLIP, LR = 25, 10, 5, 10.0, 1e-3


class RecipeNetwork(nn.Module):
    """The network of the paper's appendix: the context is state of the module, concatenated to the input."""

    def __init__(self, like: cavia.MLP):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(w.shape[1], w.shape[0]) for w in like.parameters() if w.ndim == 2)
        self.load_state_dict(like.state_dict())
        self.reset_context()

    def reset_context(self) -> None:
        self.context = torch.zeros(CONTEXT, requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:  # x [N, 1]
        h = torch.cat((x, self.context.expand(x.shape[0], -1)), dim=1)
        for layer in self.layers[:-1]:
            h = torch.relu(layer(h))
        return self.layers[-1](h)


class Recipe:
    """One meta-iteration as the paper's appendix tells it: a Python loop over tasks."""

    def __init__(self, model: cavia.MLP):
        self.network = RecipeNetwork(model)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=LR)

    def __call__(self, batch: cavia.TaskBatch) -> None:
        network, parameters = self.network, list(self.network.parameters())
        total = [torch.zeros_like(p) for p in parameters]
        for i in range(len(batch)):
            network.reset_context()
            inner = nn.functional.mse_loss(network(batch.support_x[i]), batch.support_y[i])
            gradient = torch.autograd.grad(inner, network.context, create_graph=True)[0]
            network.context = network.context - 1.0 * gradient
            outer = nn.functional.mse_loss(network(batch.query_x[i]), batch.query_y[i])
            for sum_, part in zip(total, torch.autograd.grad(outer, parameters), strict=True):
                sum_ += part / len(batch)
        self.optimiser.zero_grad()
        for parameter, gradient in zip(parameters, total, strict=True):
            parameter.grad = gradient.clamp(-CLIP, CLIP)
        self.optimiser.step()


def contestants() -> dict[str, tuple[Callable[[cavia.TaskBatch], object], nn.Module]]:
    """Name → (one meta-step, the network that it trains), all from the same weights."""
    torch.manual_seed(0)
    model = cavia.MLP(1, 1, context=CONTEXT)
    recipe = Recipe(model)
    found: dict[str, tuple[Callable[[cavia.TaskBatch], object], nn.Module]] = {"recipe": (recipe, recipe.network)}
    for name, compiled in (("eager", False), ("compiled", True)):
        learner = cavia.CAVIA(copy.deepcopy(model), "mse", inner_lr=1.0)
        found[name] = (MetaStep(learner, LR, CLIP, compiled=compiled), learner.model)
    return found


def check(steps: dict[str, tuple[Callable[[cavia.TaskBatch], object], nn.Module]], batches: list) -> float:
    """The largest difference between any contestant's parameters and the recipe's after a few steps."""
    for batch in batches[:10]:
        for step, _ in steps.values():
            step(batch)
    vectors = {name: nn.utils.parameters_to_vector(network.parameters()) for name, (_, network) in steps.items()}
    worst = max((vector - vectors["recipe"]).abs().max().item() for vector in vectors.values())
    if worst > 1e-4:
        raise SystemExit(f"the contestants disagree by {worst:.1e}; nothing was timed")
    return worst


def measure(rounds: int) -> dict[str, object]:
    family, generator = cavia.Sine(), torch.Generator().manual_seed(0)
    batches = [family.sample(TASKS, POINTS, POINTS, generator) for _ in range(20)]
    steps = contestants()
    difference = check(steps, batches)
    repeats = {"recipe": 1, "eager": 5, "compiled": 20}  # passes over the batches in one round
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, (step, _network) in steps.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                for batch in batches:
                    step(batch)
            times[name].append((time.perf_counter() - start) / repeats[name] / len(batches))
    ratios = {name: [r / t for r, t in zip(times["recipe"], times[name], strict=True)] for name in times}
    return {
        "largest_difference_of_parameters": difference,
        "milliseconds": {name: round(1e3 * statistics.median(values), 3) for name, values in times.items()},
        "times_faster_than_recipe": {
            name: {"median": round(statistics.median(v), 1), "worst": round(min(v), 1), "best": round(max(v), 1)}
            for name, v in ratios.items()
        },
        "rounds": rounds,
        "peak_memory_growth_mb_over_5000_steps": memory_growth(steps["compiled"][0], batches),
        "evaluate_1000_tasks_ms": evaluation_time(),
    }


def memory_growth(step: Callable[[cavia.TaskBatch], object], batches: list) -> float:
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


def markdown(found: dict) -> str:
    rows = "\n".join(
        f"| {name} | {found['milliseconds'][name]} | {r['median']}× | {r['worst']}× … {r['best']}× |"
        for name, r in found["times_faster_than_recipe"].items()
    )
    return f"""# Sine meta-step: how much faster than the task-by-task recipe

`python benchmarks/sine.py --rounds {found["rounds"]}`: 25 tasks, 10 + 10 points, 5 context parameters, one thread;
medians of {found["rounds"]} interleaved rounds. Compare the ratios, not the times: the machine is shared.

| step | ms | faster than the recipe | worst … best round |
|---|---|---|---|
{rows}

- Largest difference of any parameter after 10 steps: {found["largest_difference_of_parameters"]:.1e}.
- Peak memory grew by {found["peak_memory_growth_mb_over_5000_steps"]} MB over 5,000 compiled steps.
- Evaluating 1000 tasks (adapt on 10 points, score 100, steps 0 and 1) in one batched call:
  {found["evaluate_1000_tasks_ms"]} ms.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options.rounds)
    write_json(options.out / "sine.json", found)
    write_atomically(options.out / "sine.md", markdown(found).encode())
    print(markdown(found))


if __name__ == "__main__":
    main()

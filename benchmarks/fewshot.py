"""A few-shot meta-step against the task-by-task recipe: ratios of times measured interleaved in one run.

    python benchmarks/fewshot.py [--rounds 5] [--out results/benchmarks]

CAVIA on 84×84 pictures, 5 ways, 15 queries of each class, 2 inner steps, 32 filters, one thread; 4 tasks with 1 shot, 2
tasks with 5. The recipe adapts one task after another with tensors in PyTorch's usual layout. Both must find the same
meta-gradient before anything is timed. What wider networks and first order cost: fewshot_memory.py.
"""

import argparse
import copy
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import cavia
from cavia.kernels.choice import using
from cavia.training.step import MetaStep
from interleaved import (
    CLIP,
    LR,
    SIDE,
    count_operations,
    in_turns,
    keeping_memory,
    matrix_product,
    milliseconds,
    publish,
    returning_memory,
    spread,
    times_faster,
)

WAYS, QUERIES, INNER_STEPS, INNER_LR = 5, 15, 2, 0.1
CASES = ((1, 4), (5, 2))  # shots and tasks
KEPT = "recipe, memory kept"


def pictures(shots: int, tasks: int) -> cavia.TaskBatch:
    """A batch as `Episodes` makes it, of noise."""
    generator = torch.Generator().manual_seed(0)

    def points(each: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(tasks, WAYS * each, 84, 84, 3, generator=generator).permute(0, 1, 4, 2, 3)
        return x, torch.arange(WAYS).repeat_interleave(each).repeat(tasks, 1)

    return cavia.TaskBatch(*points(shots), *points(QUERIES))


def new_model(filters: int) -> cavia.ConvNet:
    torch.manual_seed(0)
    return cavia.ConvNet(WAYS, filters)


class Recipe:
    """The meta-gradient as the paper's appendix tells it: a Python loop over tasks, in PyTorch's usual layout."""

    def __init__(self, model: cavia.ConvNet):
        self.weights = {
            name: value.detach().contiguous(memory_format=torch.contiguous_format).requires_grad_()
            for name, value in copy.deepcopy(model).named_parameters()
        }

    def forward(self, x: Tensor, context: Tensor | None) -> Tensor:  # x [N, 3, 84, 84] → [N, ways]
        weights = self.weights
        for block in range(4):
            x = functional.conv2d(x, weights[f"convolutions.{block}.weight"], padding=1)
            scale, shift = weights[f"norms.{block}.weight"], weights[f"norms.{block}.bias"]
            x = functional.max_pool2d(functional.batch_norm(x, None, None, scale, shift, training=True), 2)
            if block == 2 and context is not None:
                film = functional.linear(context, weights["films.2.to_film.weight"], weights["films.2.to_film.bias"])
                gamma, beta = film.chunk(2)
                x = x * gamma[:, None, None] + beta[:, None, None]
            x = x.relu()
        return functional.linear(x.flatten(1), weights["linear.weight"], weights["linear.bias"])

    def task_loss(self, batch: cavia.TaskBatch, task: int) -> Tensor:
        """The query loss of one task after its inner steps."""
        context = torch.zeros(100, requires_grad=True)
        for _ in range(INNER_STEPS):
            loss = functional.cross_entropy(self.forward(batch.support_x[task], context), batch.support_y[task])
            context = context - INNER_LR * torch.autograd.grad(loss, context, create_graph=True)[0]
        return functional.cross_entropy(self.forward(batch.query_x[task], context), batch.query_y[task])

    def gradient(self, batch: cavia.TaskBatch) -> Tensor:
        """The meta-gradient, one vector."""
        total = [torch.zeros_like(value) for value in self.weights.values()]
        for task in range(len(batch)):
            gradients = torch.autograd.grad(self.task_loss(batch, task), list(self.weights.values()))
            for sum_, part in zip(total, gradients, strict=True):
                sum_ += part / len(batch)
        return nn.utils.parameters_to_vector(total)


def learner(filters: int, first_order: bool = False) -> cavia.CAVIA:
    return cavia.CAVIA(new_model(filters), "cross_entropy", INNER_LR, INNER_STEPS, first_order)


def our_gradient(step: MetaStep, batch: cavia.TaskBatch, chunk: int = 1) -> Tensor:
    """What a step with chunk=1 does before Adam."""
    parts = [step.gradient(part)[0] * len(part) / len(batch) for part in batch.split(chunk)]
    return torch.stack(parts).sum(0)


def plain_pass(batch: cavia.TaskBatch) -> Callable[[], object]:
    """One pass over the batch's pictures and back by PyTorch's operations, task by task, with nothing adapted."""
    model = new_model(32)

    @using("plain")
    def run() -> None:
        for part in batch.split(1):
            context = torch.zeros(len(part), 100)
            loss = model(part.support_x, context).sum() + model(part.query_x, context).sum()
            torch.autograd.grad(loss, list(model.parameters()))

    return run


def check(batch: cavia.TaskBatch) -> tuple[float, float]:
    """Relative distance of our meta-gradient to the recipe's, and of the first-order one to ours, on one task.

    In double precision: in single, rounding decides which of two equal pixels a max-pool takes.
    """
    one = next(batch.split(1))
    one = cavia.TaskBatch(one.support_x.double(), one.support_y, one.query_x.double(), one.query_y)
    torch.set_default_dtype(torch.float64)
    try:
        expected = Recipe(new_model(32)).gradient(one)
        ours, other = (our_gradient(MetaStep(learner(32, first), LR), one) for first in (False, True))
    finally:
        torch.set_default_dtype(torch.float32)
    difference = ((ours - expected).norm() / expected.norm()).item()
    if difference > 1e-9:
        raise SystemExit(f"the meta-gradients differ by {difference:.1e}; nothing was timed")
    return difference, ((other - ours).norm() / ours.norm()).item()


def measure(shots: int, tasks: int, rounds: int) -> dict[str, Any]:
    """Times, ratios and fractions of the peak for one kind of task."""
    batch = pictures(shots, tasks)
    # The recipe's own layout; a copy for it is not part of its time.
    usual = cavia.TaskBatch(batch.support_x.contiguous(), batch.support_y, batch.query_x.contiguous(), batch.query_y)
    recipe, step = Recipe(new_model(32)), MetaStep(learner(32), LR, CLIP)
    first_order = MetaStep(learner(32, first_order=True), LR, CLIP)
    difference, change = check(batch)
    operations = {
        "recipe": count_operations(partial(recipe.gradient, usual)),
        "ours": count_operations(partial(our_gradient, step, batch)),
    }
    times = in_turns(
        {
            "recipe": (returning_memory(partial(recipe.gradient, usual)), 1),
            KEPT: (keeping_memory(partial(recipe.gradient, usual)), 1),
            "ours": (keeping_memory(partial(our_gradient, step, batch)), 1),
            "ours, first order": (keeping_memory(partial(our_gradient, first_order, batch)), 1),
            "plain forward and backward": (keeping_memory(plain_pass(batch)), 1),
            "matrix product": matrix_product(),
        },
        rounds + 1,
        warm=[KEPT],
    )
    times = {name: values[1:] for name, values in times.items()}  # the first round is for warming up
    peak = [2 * SIDE**3 / seconds for seconds in times["matrix product"]]
    return {
        "relative_difference_of_gradients": difference,
        "first_order_changes_gradient_by": change,
        "milliseconds": {name: milliseconds(values) for name, values in times.items()},
        "times_faster_than_recipe": times_faster(times, [name for name in times if name != "matrix product"]),
        "giga_operations": {name: round(count / 1e9, 1) for name, count in operations.items()},
        "peak_giga_operations_per_second": spread([value / 1e9 for value in peak], 1),
        "fraction_of_peak": spread([operations["ours"] / t / p for t, p in zip(times["ours"], peak, strict=True)], 3),
        "floor_ms": round(1e3 * statistics.median(operations["ours"] / p for p in peak), 1),
    }


def markdown(result: dict[str, Any]) -> str:
    sections = "\n".join(_section(case, part) for case, part in result["cases"].items())
    return f"""# Few-shot meta-step: how much faster than the task-by-task recipe

`python benchmarks/fewshot.py --rounds {result["rounds"]}`: CAVIA, 84×84 pictures,
5 ways, 15 queries of each class, 2 inner steps, 32 filters, one thread; medians of {result["rounds"]} interleaved
rounds. Compare the ratios, not the times: the machine is shared. Our step takes one task at a time, channels last, and
keeps freed memory for the next tensor, as `cavia.fit` does; the recipe is timed as it is, and with memory kept.
The peak is that of a product of two {SIDE}×{SIDE} matrices in the same round.

{sections}
"""


def _section(case: str, part: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {part['milliseconds'][name]:.0f} | {ratio['median']}× | {ratio['worst']}× … {ratio['best']}× |"
        for name, ratio in part["times_faster_than_recipe"].items()
    )
    operations = part["giga_operations"]
    return f"""## {case}

| step | ms | faster than the recipe | worst … best round |
|---|---|---|---|
{rows}

- Relative difference of the meta-gradients, in double precision:
  {part["relative_difference_of_gradients"]:.1e}; first order changes it
  by {part["first_order_changes_gradient_by"]:.0%}.
- Floating-point operations: {operations["ours"]} · 10⁹, of the recipe {operations["recipe"]} · 10⁹; peak
  {part["peak_giga_operations_per_second"]["median"]} · 10⁹ per second.
- If every operation ran at that peak the step would take {part["floor_ms"]} ms; it runs at
  {part["fraction_of_peak"]["median"]:.0%} of the peak.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = {f"{shots}-shot, {tasks} tasks": measure(shots, tasks, options.rounds) for shots, tasks in CASES}
    result = {"rounds": options.rounds, "cases": cases}
    publish(options.out / "fewshot", result, markdown(result))


if __name__ == "__main__":
    main()

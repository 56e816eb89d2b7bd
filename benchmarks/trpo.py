"""A TRPO step through the inner update against the task-by-task recipe: times measured interleaved in one run.

    python benchmarks/trpo.py [--rounds 5] [--out results/benchmarks]

Navigation as in the paper: 20 tasks × 20 episodes × 100 steps, network 100-100, one inner update, 10 iterations of
conjugate gradients. The recipe is the published implementation's: a Python loop over tasks in the surrogate, in the KL
divergence and in each Hessian-vector product, which differentiates the KL divergence twice anew. "graph kept" spares it
building that graph for each product. "by autograd" is our step as it was at commit 3587be9, but for one graph that
gradient and products share. Before anything is timed, all must take the same step, up to rounding.
"""

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import linear, relu

import cavia
from cavia.allocator import keep_freed_memory
from cavia.envs import Navigation
from cavia.learners.acting import MetaBatch, adapt_in
from cavia.training.trpo import TRPO, TRPOStep, conjugate_gradients
from interleaved import in_turns, milliseconds, publish, spread

TASKS, ROLLOUTS, CONTEXT = 20, 20, 5
RATES = {"CAVIA": 1.0, "MAML": 0.1}
OURS = {
    "ours, exact": TRPO(chunk=5),
    "ours, every 9th step in the products": TRPO(chunk=5, hvp_every=9),
}
BY_AUTOGRAD = "ours, exact, by autograd"
Weights = dict[str, Tensor]


def actions_at(x: Tensor, weights: Weights, context: Tensor) -> Normal:
    """The recipe's policy for the observations x [N, observations] of one task."""
    h = torch.cat([x, context.expand(len(x), -1)], 1)
    for layer in range(3):
        h = linear(h, weights[f"mlp.layers.{layer}.weight"], weights[f"mlp.layers.{layer}.bias"])
        h = relu(h) if layer < 2 else h
    return Normal(h, weights["log_std"].exp())


def adapted(method: str, x: Tensor, y: Tensor, weights: Weights, context: int, rate: float) -> tuple[Weights, Tensor]:
    """Weights and context after one inner step on the points of one task, x [N, observations] and y [N, A + 1]."""
    start = torch.zeros(context, requires_grad=True)
    loss = -(actions_at(x, weights, start).log_prob(y[:, :-1]).sum(1) * y[:, -1]).mean()
    if method == "CAVIA":
        (gradient,) = torch.autograd.grad(loss, start, create_graph=True)
        return weights, start - rate * gradient
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    pairs = zip(weights.items(), gradients, strict=True)
    return {name: value - rate * gradient for (name, value), gradient in pairs}, start


class Recipe:
    """The same step, one task at a time, by plain autograd."""

    def __init__(self, method: str, learner: Any, batch: MetaBatch, keeps_graph: bool):
        self.method, self.keeps_graph, self.tasks = method, keeps_graph, len(batch)
        self.context, self.rate = learner.model.context, learner.inner_lr
        self.support, self.query = (
            [(points.x[task][points.mask[task]], points.y[task][points.mask[task]]) for task in range(self.tasks)]
            for points in (batch.support[0], batch.query)
        )
        self.start = {name: value.detach().clone() for name, value in learner.model.named_parameters()}

    def adapted(self, task: int, weights: Weights) -> Normal:
        (x, y), (query, _) = self.support[task], self.query[task]
        return actions_at(query, *adapted(self.method, x, y, weights, self.context, self.rate))

    def means(self, weights: Weights, old: list[Normal]) -> tuple[Tensor, Tensor]:
        """Surrogate and KL divergence, means over tasks."""
        loss, kl = torch.zeros(()), torch.zeros(())
        for task in range(self.tasks):
            new, (_, y) = self.adapted(task, weights), self.query[task]
            ratio = (new.log_prob(y[:, :-1]) - old[task].log_prob(y[:, :-1])).sum(1).exp()
            loss = loss - (ratio * y[:, -1]).mean() / self.tasks
            kl = kl + kl_divergence(old[task], new).sum(1).mean() / self.tasks
        return loss, kl

    def step(self) -> Tensor:
        """The parameters [P] after the step."""
        region = TRPO()
        weights = {name: value.clone().requires_grad_() for name, value in self.start.items()}
        leaves = list(weights.values())

        def flat(loss: Tensor, create_graph: bool = False, retain_graph: bool | None = None) -> Tensor:
            gradients = torch.autograd.grad(loss, leaves, create_graph=create_graph, retain_graph=retain_graph)
            return torch.cat([gradient.flatten() for gradient in gradients])

        old = [self.adapted(task, weights) for task in range(self.tasks)]
        old = [Normal(one.mean.detach(), one.stddev.detach()) for one in old]
        loss, _ = self.means(weights, old)
        gradient, before = flat(loss), loss.item()
        kept = flat(self.means(weights, old)[1], create_graph=True) if self.keeps_graph else None

        def product(vector: Tensor) -> Tensor:
            slope = flat(self.means(weights, old)[1], create_graph=True) if kept is None else kept
            return flat(slope @ vector, retain_graph=True) + region.damping * vector

        direction, image = conjugate_gradients(product, gradient, region.cg_iterations)
        full = (2 * region.max_kl / (direction @ image)).sqrt() * direction
        start = torch.cat([value.detach().flatten() for value in leaves])
        for attempt in range(region.backtracks):
            moved = start - region.shrink**attempt * full
            parts = moved.split([value.numel() for value in leaves])
            trial = {n: p.view_as(v).requires_grad_() for (n, v), p in zip(weights.items(), parts, strict=True)}
            surrogate, kl = (value.item() for value in self.means(trial, old))
            if surrogate < before and kl <= region.max_kl:
                return moved
        return start


def our_step(learner: Any, region: TRPO, batch: MetaBatch, closed_form: bool = True) -> Callable[[], Tensor]:
    """The parameters [P] after a step of ours from the same start."""
    start = copy.deepcopy(learner.state_dict())

    def step() -> Tensor:
        learner.load_state_dict(start)
        TRPOStep(learner, region, closed_form)(batch)
        return torch.cat([value.detach().flatten() for value in learner.model.parameters()])

    return step


def problem(method: str) -> tuple[Any, MetaBatch]:
    """A learner after a few iterations, and a batch of episodes."""
    torch.manual_seed(0)
    env, generator = Navigation(), torch.Generator().manual_seed(0)
    policy = cavia.GaussianPolicy(2, 2, context=CONTEXT if method == "CAVIA" else 0)
    learner = getattr(cavia, method)(policy, policy.loss, inner_lr=RATES[method])
    cavia.fit(learner, env, 3, outer=OURS["ours, every 9th step in the products"], progress=False)
    stages = adapt_in(learner, env, env.sample_tasks(TASKS, generator), ROLLOUTS, 1, generator)
    return learner, MetaBatch([stages[0].points], stages[1].points)


def measure(method: str, rounds: int) -> dict[str, Any]:
    learner, batch = problem(method)
    steps: dict[str, Callable[[], Tensor]] = {
        "recipe": Recipe(method, learner, batch, keeps_graph=False).step,
        "recipe, graph kept": Recipe(method, learner, batch, keeps_graph=True).step,
    }
    start = torch.cat([value.detach().flatten() for value in learner.model.parameters()])
    steps |= {name: our_step(learner, region, batch) for name, region in OURS.items()}
    steps[BY_AUTOGRAD] = our_step(learner, OURS["ours, exact"], batch, closed_form=False)
    moved = {name: step() - start for name, step in steps.items()}
    same = {name: torch.cosine_similarity(moved["recipe"], moved[name], 0).item() for name in steps}
    for name in ("recipe, graph kept", "ours, exact", BY_AUTOGRAD):
        if same[name] < 0.99:
            raise SystemExit(f"{method}: the steps of the recipe and of {name!r} differ, cosine {same[name]:.4f}")
    times = in_turns({name: (step, 1) for name, step in steps.items()}, rounds)
    return {
        "milliseconds": {name: milliseconds(values) for name, values in times.items()},
        "times_faster_than_the_recipe": {
            name: spread([base / one for base, one in zip(times["recipe"], values, strict=True)], 2)
            for name, values in times.items()
        },
        "cosine_to_the_step_of_the_recipe": {name: round(value, 4) for name, value in same.items()},
    }


def markdown(result: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {method} | {name} | {one['milliseconds'][name]:.0f} | {r['median']}× | {r['worst']}× … {r['best']}× | "
        f"{one['cosine_to_the_step_of_the_recipe'][name]} |"
        for method, one in result["methods"].items()
        for name, r in one["times_faster_than_the_recipe"].items()
    )
    return f"""# TRPO: how much faster than task by task

`python benchmarks/trpo.py --rounds {result["rounds"]}`: one outer step of navigation, {TASKS} tasks × {ROLLOUTS}
episodes × 100 steps, one thread; medians of {result["rounds"]} interleaved rounds. Compare the ratios, not the times:
the machine is shared.

Cosine: between the change of the parameters and that of the recipe. Ten iterations of conjugate gradients in float32
amplify rounding, so it is not 1 to the last digit; gradient and products are compared in float64 by the tests.

| method | step | ms | faster than the recipe | worst … best round | cosine |
|---|---|---|---|---|---|
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    result = {"methods": {method: measure(method, options.rounds) for method in RATES}, "rounds": options.rounds}
    publish(options.out / "trpo", result, markdown(result))


if __name__ == "__main__":
    main()

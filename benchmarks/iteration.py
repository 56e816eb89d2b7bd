"""A whole meta-iteration with policies, its episodes included, against the task-by-task recipe, in one run.

    python benchmarks/iteration.py [--rounds 3] [--out results/benchmarks]

Navigation with 20 tasks × 20 episodes × 100 steps and cheetahs in two directions with 10 × 10 × 100; network 100-100,
one inner update, one TRPO step. The recipe plays one task after another, its episodes in Gymnasium's SyncVectorEnv, and
takes its step as in trpo.py. Random numbers are everyone's own: trpo.py compares the steps, simulator.py the motion.

Then the parts of our own iteration at the scale of the paper, cheetahs with 40 tasks × 20 episodes × 200 steps and
exact products: MuJoCo alone on the actions that were taken, the episodes, and the step, in closed form and by autograd.
"""

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

import cavia
from cavia.allocator import keep_freed_memory
from cavia.envs import CheetahDirection, Navigation
from cavia.envs.base import TaskEnv
from cavia.envs.rollouts import Rollouts
from cavia.learners.acting import MetaBatch, Points, adapt_in
from cavia.training.trpo import TRPO, TRPOStep
from interleaved import in_turns, milliseconds, publish, spread
from simulator import gymnasiums
from trpo import OURS, Recipe, Weights, actions_at, adapted

HORIZON = 100


class Goal(gymnasium.Env):
    """Navigation to `task`, as one Gymnasium environment of its own."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,))
    action_space = gymnasium.spaces.Box(-0.1, 0.1, (2,))
    task = np.zeros(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.position = np.zeros(2)
        return self.position.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position = self.position + np.clip(action, -0.1, 0.1)
        distance = float(np.linalg.norm(self.position - self.task))
        return self.position.astype(np.float32), -distance, distance <= 0.01, False, {}


def set_goal(env: Any, task: Tensor) -> None:
    env.task = task.numpy()


def set_direction(env: Any, task: Tensor) -> None:
    env._forward_reward_weight = task.item()
    env._ctrl_cost_weight = 0.05


@dataclass(frozen=True)
class Problem:
    """What is raced: our environment, and Gymnasium's for the episodes of one task."""

    env: TaskEnv
    theirs: Any
    set_task: Callable[[Any, Tensor], None]
    tasks: int
    rollouts: int
    context: int
    rates: dict[str, float]


def problems() -> dict[str, Problem]:
    goals = gymnasium.vector.SyncVectorEnv([Goal] * 20)
    cheetahs = CheetahDirection(HORIZON, observation="gymnasium", threads=1)
    return {
        "navigation": Problem(Navigation(HORIZON), goals, set_goal, 20, 20, 5, {"CAVIA": 1.0, "MAML": 0.1}),
        "cheetah": Problem(cheetahs, gymnasiums(10), set_direction, 10, 10, 50, {"CAVIA": 10.0, "MAML": 0.1}),
    }


def play(problem: Problem, task: Tensor, weights: Weights, context: Tensor) -> Points:
    """The recipe's episodes of one task."""
    envs, bound = problem.theirs, problem.env.bound  # type: ignore[attr-defined]
    for env in envs.envs:
        problem.set_task(env.unwrapped, task)
    observation, running = envs.reset()[0], np.ones(problem.rollouts, dtype=bool)
    steps = []
    with torch.no_grad():
        for _ in range(HORIZON):
            x = torch.as_tensor(observation, dtype=torch.float32)
            action = actions_at(x, weights, context).sample()
            observation, reward, ended, _, _ = envs.step(action.clamp(-bound, bound).numpy())
            steps.append((x, action, torch.as_tensor(reward, dtype=torch.float32), torch.from_numpy(running.copy())))
            running &= ~ended
    return Points.of(Rollouts(*(torch.stack(part, 1)[None] for part in zip(*steps, strict=True))), 0.95, 1.0)


def their_episodes(method: str, learner: Any, problem: Problem, generator: torch.Generator) -> MetaBatch:
    """One task after another, before and after the inner step."""
    weights = {name: value.detach().requires_grad_() for name, value in learner.model.named_parameters()}
    episodes = []
    for task in problem.env.sample_tasks(problem.tasks, generator):
        before = play(problem, task, weights, torch.zeros(learner.model.context))
        x, y = before.x[0][before.mask[0]], before.y[0][before.mask[0]]
        moved = adapted(method, x, y, weights, learner.model.context, learner.inner_lr)
        episodes.append((before, play(problem, task, *moved)))
    support, query = (
        Points(*(torch.cat(part) for part in zip(*map(_parts, side), strict=True)))
        for side in zip(*episodes, strict=True)
    )
    return MetaBatch([support], query)


def _parts(points: Points) -> tuple[Tensor, Tensor, Tensor]:
    return points.x, points.y, points.mask


def our_episodes(learner: Any, problem: Problem, generator: torch.Generator) -> MetaBatch:
    tasks = problem.env.sample_tasks(problem.tasks, generator)
    before, after = adapt_in(learner, problem.env, tasks, problem.rollouts, 1, generator)
    return MetaBatch([before.points], after.points)


def entrants(method: str, problem: Problem) -> dict[str, Callable[[], object]]:
    """Name → one iteration, or only its episodes, always from the same weights."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    context = problem.context if method == "CAVIA" else 0
    policy = cavia.GaussianPolicy(problem.env.observations, problem.env.actions, context=context)
    learner = getattr(cavia, method)(policy, policy.loss, inner_lr=problem.rates[method])
    start = copy.deepcopy(learner.state_dict())
    theirs = partial(their_episodes, method, learner, problem, generator)
    ours = partial(our_episodes, learner, problem, generator)

    def our_iteration(region: TRPO) -> None:
        TRPOStep(learner, region)(ours())
        learner.load_state_dict(start)

    return {
        "recipe": lambda: Recipe(method, learner, theirs(), keeps_graph=False).step(),
        **{name: partial(our_iteration, region) for name, region in OURS.items()},
        "recipe, episodes only": theirs,
        "ours, episodes only": ours,
    }


def parts_at_full_scale(method: str, rounds: int) -> dict[str, Any]:
    """Seconds of the parts of an iteration, and of all but MuJoCo."""
    torch.manual_seed(0)
    env, generator = CheetahDirection(200, threads=1), torch.Generator().manual_seed(0)
    policy = cavia.GaussianPolicy(env.observations, env.actions, context=50 if method == "CAVIA" else 0, std=0.5)
    learner = getattr(cavia, method)(policy, policy.loss, inner_lr={"CAVIA": 10.0, "MAML": 0.1}[method])
    start = copy.deepcopy(learner.state_dict())
    tasks = env.sample_tasks(40, generator)
    stages = adapt_in(learner, env, tasks, 20, 1, generator)
    batch = MetaBatch([stages[0].points], stages[1].points)
    controls = [stage.episodes.actions.double().clamp(-env.bound, env.bound).permute(2, 0, 1, 3) for stage in stages]

    def simulate() -> None:
        for stage in controls:
            env.reset(tasks, 20, generator)
            for control in stage:
                env.simulator.step(control.flatten(0, 1).numpy())

    def step(closed_form: bool) -> None:
        TRPOStep(learner, TRPO(chunk=1), closed_form)(batch)
        learner.load_state_dict(start)

    actions: dict[str, Callable[[], object]] = {
        "MuJoCo": simulate,
        "episodes": lambda: adapt_in(learner, env, tasks, 20, 1, generator),
        "step": partial(step, True),
        "step, by autograd": partial(step, False),
    }
    times = in_turns({name: (action, 1) for name, action in actions.items()}, rounds)
    rows = list(zip(*times.values(), strict=True))
    outside = {
        "ours": [episodes - mujoco + step for mujoco, episodes, step, _ in rows],
        "with the step by autograd": [episodes - mujoco + step for mujoco, episodes, _, step in rows],
    }
    return {
        "seconds": {name: spread(values, 2) for name, values in times.items()},
        "seconds_outside_MuJoCo": {name: spread(values, 2) for name, values in outside.items()},
        "times_faster_outside_MuJoCo": spread([b / a for a, b in zip(*outside.values(), strict=True)], 2),
    }


def measure(method: str, problem: Problem, rounds: int) -> dict[str, Any]:
    times = in_turns({name: (step, 1) for name, step in entrants(method, problem).items()}, rounds)
    return {
        name: {
            "milliseconds": milliseconds(values),
            "times_faster": spread([base / one for base, one in zip(times[_baseline(name)], values, strict=True)], 2),
        }
        for name, values in times.items()
    }


def _baseline(name: str) -> str:
    return "recipe, episodes only" if name.endswith("episodes only") else "recipe"


def markdown(result: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {problem} | {method} | {name} | {row['milliseconds']:.0f} | {row['times_faster']['median']}× | "
        f"{row['times_faster']['worst']}× … {row['times_faster']['best']}× |"
        for problem, methods in result["problems"].items()
        for method, entries in methods.items()
        for name, row in entries.items()
    )
    parts = "\n".join(
        f"| {method} | {' | '.join(str(one['median']) for one in row['seconds'].values())} | "
        f"{row['seconds_outside_MuJoCo']['ours']['median']} | {row['times_faster_outside_MuJoCo']['median']}× |"
        for method, row in result["parts"].items()
    )
    return f"""# Policies: a whole meta-iteration against task by task

`python benchmarks/iteration.py --rounds {result["rounds"]}`: navigation, 20 tasks × 20 episodes × 100 steps; cheetah in
two directions, 10 × 10 × 100. One thread, processor time; medians of {result["rounds"]} interleaved rounds. Compare the
ratios, not the times. The recipe plays its episodes in Gymnasium's SyncVectorEnv, task after task.

| problem | method | iteration | ms | faster than the recipe | worst … best round |
|---|---|---|---|---|---|
{rows}

The parts of our own iteration at the scale of the paper, cheetah with 40 tasks × 20 episodes × 200 steps and exact
products, in seconds. "Outside MuJoCo" is what episodes and step take beyond MuJoCo alone on the same actions; the last
column compares it with the same iteration whose step is by autograd, as it was at commit 3587be9.

| method | MuJoCo | episodes | step | step by autograd | outside MuJoCo | faster there than by autograd |
|---|---|---|---|---|---|---|
{parts}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    raced = {
        name: {method: measure(method, problem, options.rounds) for method in problem.rates}
        for name, problem in problems().items()
    }
    parts = {method: parts_at_full_scale(method, max(1, options.rounds // 3)) for method in ("CAVIA", "MAML")}
    result = {"problems": raced, "parts": parts, "rounds": options.rounds}
    publish(options.out / "iteration", result, markdown(result))


if __name__ == "__main__":
    main()

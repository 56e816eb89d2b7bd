"""Steps of our cheetah against Gymnasium's SyncVectorEnv: ratios of times measured interleaved in one run.

    python benchmarks/simulator.py [--rounds 15] [--out results/benchmarks]

10 tasks × 4 rollouts, the same random actions for all; one unit of work is one control step (5 of MuJoCo's) of one
environment. Before anything is timed, both must simulate the same motion from the same state. envpool takes part if it
is installed (the extra `bench`); it draws its own first states and is not compared.
"""

import argparse
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from cavia.envs import CheetahDirection
from cavia.envs.simulator import warnings_of_mujoco
from interleaved import in_turns, publish, spread

TASKS, ROLLOUTS, STEPS = 10, 4, 10
BASELINE = "gymnasium"


def gymnasiums(count: int = TASKS * ROLLOUTS) -> Any:
    """Gymnasium's own vector of cheetahs, reset."""
    # Its HalfCheetah imports imageio, which is not among the packages of the extra `rl`, for its videos only.
    sys.modules.setdefault("imageio", types.ModuleType("imageio"))
    with warnings_of_mujoco():
        copies = [lambda: gymnasium.make("HalfCheetah-v5", max_episode_steps=10**9)] * count
        envs = gymnasium.vector.SyncVectorEnv(copies)
    envs.reset(seed=0)
    return envs


def envpools() -> Any:
    """envpool's vector of cheetahs on one thread, reset to states of its own."""
    import envpool

    envs = envpool.make_gymnasium("HalfCheetah-v5", num_envs=TASKS * ROLLOUTS, num_threads=1, max_episode_steps=10**9)
    envs.reset()
    return envs


def ours(**settings: Any) -> CheetahDirection:
    """Our cheetahs, reset, with episodes that outlast the benchmark."""
    env, generator = CheetahDirection(horizon=10**9, **settings), torch.Generator().manual_seed(0)
    env.reset(env.sample_tasks(TASKS, generator), ROLLOUTS, generator)
    return env


def check(actions: torch.Tensor) -> float:
    """The largest difference between the positions of Gymnasium's cheetahs and of ours, from the same state on."""
    theirs, env = gymnasiums(), ours(backend="list")
    for copy, other in enumerate(theirs.envs):
        other.unwrapped.set_state(env.simulator.positions[copy], env.simulator.velocities[copy])
    for action in actions:
        env.step(action)
        theirs.step(action.flatten(0, 1).numpy())
    reached = np.array([other.unwrapped.data.qpos for other in theirs.envs])
    worst = float(np.abs(reached - env.simulator.positions).max())
    if worst > 1e-6:
        raise SystemExit(f"the contestants disagree by {worst:.1e}; nothing was timed")
    return worst


def step_all(env: CheetahDirection, actions: torch.Tensor) -> None:
    """A step for each of the actions [STEPS, T, R, 6]."""
    for action in actions:
        env.step(action)


def contestants(actions: torch.Tensor) -> dict[str, tuple[Callable[[], object], int]]:
    """Name → an action for `in_turns`: STEPS control steps of every environment."""
    theirs, rows = gymnasiums(), actions.flatten(1, 2).double().numpy()
    envs = {
        "list, one core": ours(backend="list"),
        "rollout, one core": ours(threads=1),
        "rollout, two cores": ours(threads=2),
    }
    work: dict[str, Callable[[], object]] = {BASELINE: lambda: [theirs.step(row) for row in rows]}
    work |= {name: partial(step_all, env, actions) for name, env in envs.items()}
    if find_spec("envpool"):
        pool = envpools()
        work["envpool, one core"] = lambda: [pool.step(row) for row in rows]
    return {name: (action, STEPS * TASKS * ROLLOUTS) for name, action in work.items()}


def measure(rounds: int) -> dict[str, Any]:
    actions = torch.rand(STEPS, TASKS, ROLLOUTS, 6, generator=torch.Generator().manual_seed(0)) * 2 - 1
    difference = check(actions)
    times = in_turns(contestants(actions), rounds, time.perf_counter)  # some use two cores
    ratios = {
        name: spread([base / one for base, one in zip(times[BASELINE], values, strict=True)], 2)
        for name, values in times.items()
    }
    return {
        "largest_difference_of_positions": difference,
        "steps_per_second": {name: spread([1 / one for one in values], 0) for name, values in times.items()},
        "times_faster_than_gymnasium": ratios,
        "rounds": rounds,
    }


def markdown(result: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {result['steps_per_second'][name]['median']:.0f} | {r['median']}× | {r['worst']}× … {r['best']}× |"
        for name, r in result["times_faster_than_gymnasium"].items()
    )
    return f"""# Cheetah: how much faster than Gymnasium's SyncVectorEnv

`python benchmarks/simulator.py --rounds {result["rounds"]}`: {TASKS} tasks × {ROLLOUTS} rollouts, {STEPS} control steps
a round; medians of {result["rounds"]} interleaved rounds. Compare the ratios, not the times: the machine is shared.

| simulator | environment steps a second | faster than SyncVectorEnv | worst … best round |
|---|---|---|---|
{rows}

- Largest difference of any position of the list after {STEPS} steps from the same state:
  {result["largest_difference_of_positions"]:.1e}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = measure(options.rounds)
    publish(options.out / "simulator", result, markdown(result))


if __name__ == "__main__":
    main()

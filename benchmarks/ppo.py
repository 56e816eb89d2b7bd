"""CAVIA on 2D navigation, meta-trained with TRPO and with PPO: the return on validation goals as training goes on.

    python benchmarks/ppo.py --runs runs/ppo

Both start from the same weights and have equally many iterations, tasks and episodes. Runs that are finished are not
trained again, those that were stopped go on. Writes ppo.md, ppo.json and ppo.svg to results/benchmarks.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.paper.report.figures import figure_svg
from cavia.paper.schema import Lines, Series
from cavia.tensor_file import write_atomically
from interleaved import publish

TRPO = cavia.TRPO(
    max_kl=2e-2, chunk=5
)  # as in the paper: its limit of 1e-2 is a mean over the two numbers of an action
EVERY = 5  # iterations between validations


def train(outer: cavia.Outer, iterations: int, seed: int, folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of one run."""
    torch.manual_seed(seed)
    env = cavia.envs.Navigation()
    policy = cavia.GaussianPolicy(env.observations, env.actions, context=5, init="xavier")
    learner = cavia.CAVIA(policy, policy.loss, inner_lr=1.0)
    run = cavia.RunFolder(folder, events=False)
    cavia.fit(learner, env, iterations, outer=outer, validation=cavia.Validation(40, EVERY), seed=seed, run_dir=run)
    return run.read_metrics()


def summary(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Of several seeds: the curves, and where they end."""
    curves = [[line for line in lines if "validation" in line] for lines in runs]
    return {
        "iterations": [line["iteration"] for line in curves[0]],
        "validation": [[line["validation"] for line in curve] for curve in curves],
        "before": [[line["validation_before"] for line in curve] for curve in curves],
        "kl": round(statistics.mean(line["kl"] for lines in runs for line in lines), 4),
    }


def last(runs: Mapping[str, Any], curve: str = "validation") -> float:
    """The mean over seeds of the last three points of a curve."""
    return statistics.mean(statistics.mean(one[-3:]) for one in runs[curve])


def best(runs: Mapping[str, Any]) -> float:
    """The mean over seeds of the best validation, that of the model that `fit` keeps."""
    return statistics.mean(max(one) for one in runs["validation"])


def figure(chosen: Mapping[str, Mapping[str, Any]]) -> Lines:
    def series(label: str, x: list[float], curves: Sequence[Sequence[float]]) -> Series:
        points = list(zip(*curves, strict=True))
        reach = [(max(one) - min(one)) / 2 for one in points]
        return {"label": label, "x": x, "y": [(max(one) + min(one)) / 2 for one in points], "interval": [*reach]}

    return {
        "name": "ppo",
        "caption": "Return on validation goals before and after one update; bands: the range over seeds.",
        "kind": "lines",
        "x_label": "iterations",
        "y_label": "return",
        "x_scale": "linear",
        "y_scale": "linear",
        "series": [
            series(f"{name}, {when}", one["iterations"], one[curve])
            for name, one in chosen.items()
            for when, curve in (("after an update", "validation"), ("before", "before"))
        ],
    }


def markdown(result: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {last(one, 'before'):.1f} | {last(one):.1f} | {best(one):.1f} | {one['kl']} |"
        for name, one in result["outer_steps"].items()
    )
    order = f"python benchmarks/ppo.py --iterations {result['iterations']} --seeds {result['seeds']} --rates"
    order = " ".join([order, *(f"{rate:g}" for rate in result["rates"])])
    several = len(result["rates"]) > 1
    rates = "PPO's rate was chosen among these on the same goals" if several else "PPO has its default settings"
    seeds = f" and of {result['seeds']} seeds" if result["seeds"] > 1 else ""
    return f"""# PPO beside TRPO

    {order}

CAVIA on 2D navigation, 20 tasks × 20 episodes × 100 steps at each iteration, 5 context parameters, inner rate 1; with a
seed, all start from the same weights. Returns are those of 40 validation goals with random actions, before and after
one update: the mean of the last three validations{seeds}. {rates}; TRPO has one setting, the paper's.
So few iterations and seeds show that PPO learns, not which of the two is better.

| outer step | before an update | after it | after it, best validation | mean KL divergence of a step |
|---|---|---|---|---|
{rows}

![{result["caption"]}](ppo.svg)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3, 1e-2], help="of PPO")
    parser.add_argument("--runs", type=Path, default=Path("runs/ppo"))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    outer: dict[str, cavia.Outer] = {"TRPO": TRPO}
    outer |= {f"PPO, rate {lr:g}": cavia.PPO(lr=lr, chunk=5) for lr in options.rates}
    measured = {
        name: summary(
            [
                train(one, options.iterations, seed, options.runs / f"{name}-{seed}".replace(", rate ", "-"))
                for seed in range(options.seeds)
            ]
        )
        for name, one in outer.items()
    }
    chosen = max((name for name in measured if name != "TRPO"), key=lambda name: last(measured[name]))
    drawn = figure({"TRPO": measured["TRPO"], chosen: measured[chosen]})
    run = {"iterations": options.iterations, "seeds": options.seeds, "rates": options.rates}
    result = run | {"outer_steps": measured}
    write_atomically(options.out / "ppo.svg", figure_svg(drawn, "ppo").encode())
    publish(options.out / "ppo", result, markdown(result | {"caption": drawn["caption"]}))


if __name__ == "__main__":
    main()

"""Completion trained in bf16 against float32 at equal iterations, over seeds: does rounding cost accuracy?

    python benchmarks/precision.py --data-root DATA --runs FOLDER [--iterations 3000] [--known 100] [--query 256]

CAVIA with the settings of table2, one number of known pixels. A seed decides the first weights and the batches, so
that a seed's two runs differ in nothing but the precision. The run folders lie in --runs: a run that was broken off
goes on when the same command is given again. --data-root holds celeba/, as for `cavia run`.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.paper.catalogue import find
from cavia.paper.completion.training import Table2Settings
from cavia.paper.experiment import Cell, Data
from cavia.paper.training import fit_arguments, fit_settings
from cavia.training.adam import PRECISIONS
from interleaved import publish

CHUNK = 5  # pictures at a time: those fit the cache


def train(data: Data, settings: Table2Settings, seed: int, runs: Path) -> dict[str, float]:
    """One run, or what is left of it: its error on the test pictures, and the core's seconds."""
    table2, known = find("table2"), settings.shots[0]
    cell = Cell({"method": "CAVIA", "order": "random", "known": known, "seed": seed})
    family = table2.tasks(settings, cell, data)
    torch.manual_seed(seed)
    learner = table2.learner(settings, cell, family)
    arguments = fit_arguments(fit_settings(table2, settings, cell) | {"compile": True})
    folder = runs / f"{settings.precision}-{known}-{settings.query}-{settings.iterations}-seed{seed}"
    ended = cavia.fit(learner, family, run_dir=cavia.RunFolder(folder, events=False), **arguments)
    scores = table2.measure(learner, family, settings, cell)["scores"]["mse"][-1]
    return {
        "mse": statistics.mean(scores),
        "validation": ended.best_score or float("nan"),
        "seconds": round(ended.seconds, 1),
    }


def compared(runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """The difference that bf16 makes, beside the difference that the seed makes."""
    pairs = list(zip(runs["float32"], runs["bf16"], strict=True))
    exact = [one["mse"] for one in runs["float32"]]
    mean = statistics.mean(exact)
    differences = [(rounded["mse"] - one["mse"]) / mean for one, rounded in pairs]
    difference, spread = statistics.mean(differences), (max(exact) - min(exact)) / mean
    return {
        "differences": differences,
        "mean_difference": difference,
        "spread_of_seeds_in_float32": spread,
        "inside_the_spread": abs(difference) <= spread,
        "times_faster": round(statistics.mean(one["seconds"] / rounded["seconds"] for one, rounded in pairs), 2),
    }


def markdown(facts: dict[str, Any]) -> str:
    result = facts["compared"]
    rows = "\n".join(
        f"| {seed} | {a['mse']:.5f} | {b['mse']:.5f} | {difference:+.2%} |"
        for seed, (a, b, difference) in enumerate(
            zip(facts["runs"]["float32"], facts["runs"]["bf16"], result["differences"], strict=True)
        )
    )
    where = "inside" if result["inside_the_spread"] else "outside"
    return f"""# Completion in bf16 against float32

`python benchmarks/precision.py --known {facts["known"]} --query {facts["query"]} --iterations {facts["iterations"]} \
--seeds {facts["seeds"]}`: CAVIA on {facts["data"]}, {facts["known"]} known pixels, {facts["query"]} query
pixels, {facts["iterations"]} iterations. A seed's two runs have the same first weights and the same batches.

| seed | MSE on test pictures, float32 | bf16 | difference |
|---|---|---|---|
{rows}

- Mean difference: {result["mean_difference"]:+.2%}, {where} the spread of the seeds in float32
  ({result["spread_of_seeds_in_float32"]:.2%} from the best to the worst).
- Training in bf16 was {result["times_faster"]}× as fast, validation included.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--known", type=int, default=100, help="pixels")
    parser.add_argument("--query", type=int, default=256, help="pixels to train on")
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--synthetic", action="store_true", help="drawn faces in place of CelebA")
    parser.add_argument("--runs", type=Path, default=Path("runs/precision"), help="where the run folders lie")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Data(options.data_root, options.synthetic)
    settings = replace(
        Table2Settings(init="he"),
        iterations=options.iterations,
        shots=(options.known,),
        query=options.query,
        chunk=CHUNK,
    )
    runs: dict[str, list[dict[str, float]]] = {precision: [] for precision in PRECISIONS}
    for seed in range(options.seeds):
        for precision in PRECISIONS:
            runs[precision].append(train(data, replace(settings, precision=precision), seed, options.runs))
    result = {
        "known": options.known,
        "query": options.query,
        "iterations": options.iterations,
        "seeds": options.seeds,
        "data": "drawn faces" if options.synthetic else "CelebA",
        "runs": runs,
    }
    result["compared"] = compared(runs)
    publish(options.out / "precision", result, markdown(result))


if __name__ == "__main__":
    main()

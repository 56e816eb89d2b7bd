"""Training on our own kernels and on PyTorch's operations: do both learn the same, and how long do they take?

    python benchmarks/kernels.py [--iterations 300] [--data-root data] [--folder runs/kernels] [--out FOLDER]

CAVIA and MAML on 84×84 pictures, 5 ways, 1 shot, 4 tasks a batch, 32 filters, by `cavia.fit`, one thread. Without
miniimagenet/ under the data root the pictures are drawn glyphs. A third run in double precision says how much of the
distance between the two is rounding, and whose. With --folder the runs lie there, and one that was broken off goes on.
"""

import argparse
import statistics
import tempfile
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.kernels.choice import using
from cavia.pictures.datasets import MINI_IMAGENET
from cavia.training.checkpoint import RunFolder
from interleaved import publish

RUNS = ("fused", "plain", "double")
VALIDATION_TASKS, INTERVALS = 50, 12


class InDouble(cavia.TaskFamily):
    """The tasks of a family with pictures in double precision."""

    def __init__(self, family: cavia.Episodes):
        self.family, self.support, self.query = family, family.support, family.query

    @property
    def settings(self) -> dict[str, Any]:
        return self.family.settings

    def sample(self, *arguments: Any) -> cavia.TaskBatch:
        batch = self.family.sample(*arguments)
        return cavia.TaskBatch(batch.support_x.double(), batch.support_y, batch.query_x.double(), batch.query_y)


def learner(method: str) -> cavia.Learner:
    torch.manual_seed(0)
    if method == "CAVIA":
        return cavia.CAVIA(cavia.ConvNet(5, 32), "cross_entropy", 0.1, 2)
    return cavia.MAML(cavia.ConvNet(5, 32, context=0), "cross_entropy", 0.01, 2)


def curve(method: str, run: str, family: cavia.Episodes, iterations: int, folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of one run."""
    is_double = run == "double"
    with using("fused" if run == "fused" else "plain"):
        cavia.fit(
            learner(method).to(torch.float64 if is_double else torch.float32),
            InDouble(family) if is_double else family,
            iterations,
            tasks_per_batch=4,
            outer=cavia.Adam(chunk=1),
            validation=cavia.Validation(VALIDATION_TASKS, max(iterations // INTERVALS, 1)),
            run_dir=RunFolder(folder, events=False),
            progress=False,
        )
    return RunFolder(folder).read_metrics()


def measure(family: cavia.Episodes, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    curves = {
        method: {
            run: curve(method, run, family, options.iterations, folder / f"{method}-{run}") for run in options.runs
        }
        for method in options.methods
    }
    return {"iterations": options.iterations, "images": family.images.settings, "curves": curves}


def apart(one: list[dict[str, Any]], other: list[dict[str, Any]], name: str) -> float:
    """The mean distance of two curves."""
    return statistics.mean(abs(a[name] - b[name]) for a, b in zip(one, other, strict=True))


def markdown(result: dict[str, Any]) -> str:
    sections = "\n".join(_section(method, curves) for method, curves in result["curves"].items())
    options = (
        f"--iterations {result['iterations']} --methods {' '.join(result['curves'])} --runs {' '.join(_runs(result))}"
    )
    return f"""# Training on our own kernels and on PyTorch's operations

`python benchmarks/kernels.py {options}`:
{result["images"]["source"]}, 84×84, 5 ways, 1 shot, 4 tasks a batch, 32 filters, `cavia.fit` on one thread.
All runs start from the same weights and see the same tasks. “Fused” are our kernels, “plain” PyTorch's operations, both
in single precision; “double”, if it was run, are PyTorch's operations in double precision. Rounding decides what some
max-pools take, and training amplifies it. Loss is the mean over the interval; accuracy that on {VALIDATION_TASKS} tasks
of the validation classes.

{sections}"""


def _runs(result: dict[str, Any]) -> list[str]:
    return list(next(iter(result["curves"].values())))


def _section(method: str, curves: dict[str, list[dict[str, Any]]]) -> str:
    rows = "\n".join(
        f"| {line[0]['iteration']} | "
        + " | ".join(f"{one['loss']:.3f} | {one['validation']:.1%}" for one in line)
        + " |"
        for line in zip(*curves.values(), strict=True)
    )
    heads = " | ".join(f"loss, {run} | accuracy" for run in curves)
    distances = "\n".join(
        f"| {one} and {other} | {apart(curves[one], curves[other], 'loss'):.4f} "
        f"| {apart(curves[one], curves[other], 'validation'):.1%} |"
        for one, other in combinations(curves, 2)
    )
    seconds = ", ".join(f"{run} {lines[-1]['seconds']:.0f}" for run, lines in curves.items())
    return f"""## {method}

| iteration | {heads} |
|---|{"---|" * 2 * len(curves)}
{rows}

| mean distance of | losses | accuracies |
|---|---|---|
{distances}

Seconds of one core, validation included: {seconds}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--methods", nargs="*", default=["CAVIA", "MAML"], choices=["CAVIA", "MAML"])
    parser.add_argument("--runs", nargs="*", default=RUNS, choices=RUNS, help="double takes longest")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--folder", type=Path, default=None, help="where the runs lie, to go on")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    is_there = (options.data_root / MINI_IMAGENET.folder).is_dir()
    images = MINI_IMAGENET.open(options.data_root, synthetic=not is_there)
    family = cavia.Episodes(images, ways=5, shots=1, queries=15, channels=3)
    with nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory() as folder:
        result = measure(family, options, Path(folder))
    publish(options.out / "kernels", result, markdown(result))


if __name__ == "__main__":
    main()

"""How often intervals of unseen groups hold the truth, on real tables.

    python benchmarks/tables_coverage.py      # writes results/benchmarks/tables_coverage.json and .md

The rule, written before the run. Groups are divided into five folds as in tables.py (of larger tables 600 groups with
25 rows each); each fold is once unseen, and the model is the default of `cavia fit` with 300 iterations. Unseen groups
adapt on half, all and twice the usual number of known rows; the coverage of a table is the share of all other rows of
all folds within their intervals. Three kinds are compared: "conformal" are errors of held-out groups by number of known
rows; "Laplace" are Gaussian quantiles of the posterior's deviation, with the noise as it was trained; "both", what
`predict(X, interval=…)` gives, are held-out errors in units of that deviation. A table passes if both levels, 0.8 and
0.9, are within 2 points.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cavia
import tables_data
from cavia.commit import this_commit
from cavia.tables.fitting import train_table
from cavia.tables.intervals import known_counts
from cavia.tables.posterior import Posterior
from cavia.tasks.batch import seeded_generator

LEVELS = (0.8, 0.9)
TABLES = ("nlswork", "InstEval", "LaborSupply", "Snmesp", "movielens", "dropouts")
KINDS = ("conformal", "Laplace", "both")


def errors(learner: Posterior, family: cavia.Tasks, known: int, split: str) -> tuple[Tensor, Tensor]:
    """|y − f| and the deviation of each row of the split's groups, [rows]."""
    generator = seeded_generator(0, f"coverage {split} {known}")
    batch = family.sample(len(family.splits[split]), known, family.query, generator, split)
    adapted = learner.adapt(batch.support_x, batch.support_y, batch.support_mask)
    mask = torch.ones(batch.query_y.shape[:2], dtype=torch.bool) if batch.query_mask is None else batch.query_mask
    left = (batch.query_y - learner.predict(batch.query_x, adapted)).abs()
    return left[mask][:, 0], learner.deviation(batch.query_x, adapted)[mask][:, 0]


def quantile(values: Tensor, level: float) -> float:
    """Split conformal: the smallest that a share `level` of n + 1 are within."""
    place = min(math.ceil(level * (len(values) + 1)), len(values))
    return float(values.sort().values[place - 1])


def measure(name: str, fold: int, table: Any) -> list[dict[str, Any]]:
    """Rows within their intervals, of how many, for each number of known rows, level and kind."""
    family = tables_data.family_of(name, table, fold)
    model, _ = train_table(family, iterations=300, progress=False)
    learner = model.learner
    assert isinstance(learner, Posterior)
    assert model.intervals
    rows = []
    for known in known_counts(family.support):
        left, deviation = errors(learner, family, known, "test")
        held_out = errors(learner, family, known, "val")[0]
        for level in LEVELS:
            factor = model.intervals.factors(level)[0]
            gaussian = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
            halves = {
                "conformal": torch.full_like(left, quantile(held_out, level)),
                "Laplace": gaussian * deviation,
                "both": factor * deviation,
            }
            for kind, half in halves.items():
                about = {"table": name, "fold": fold, "known": known, "level": level, "kind": kind, "rows": len(left)}
                rows.append(about | {"within": int((left <= half).sum()), "width": float(2 * half.mean())})
    return rows


def page(rows_of_all: list[dict[str, Any]]) -> str:
    lines = [
        "# Coverage of intervals",
        "",
        f"`python benchmarks/tables_coverage.py`, at commit {this_commit()}; the rule is written there. Share of the "
        "rows of unseen groups within their intervals, over all finished folds; in brackets from the fewest and "
        "from the most known rows; width in standard deviations of the target.",
        "",
        "| table | folds | level | conformal | Laplace | both | width: conformal | Laplace | both | within 2 points |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(one["table"] for one in rows_of_all):
        for level in LEVELS:
            rows = [one for one in rows_of_all if one["table"] == name and one["level"] == level]
            folds = len({one["fold"] for one in rows})
            cells, widths, held = [], [], {}
            for kind in KINDS:
                own = [one for one in rows if one["kind"] == kind]
                held[kind] = _share(own)
                counts = sorted({one["known"] for one in own})
                ends = [_share([one for one in own if one["known"] == count]) for count in (counts[0], counts[-1])]
                cells.append(f"{held[kind]:.3f} ({ends[0]:.3f}, {ends[1]:.3f})")
                widths.append(f"{sum(one['width'] * one['rows'] for one in own) / sum(one['rows'] for one in own):.2f}")
            gap = 100 * (held["both"] - level)
            verdict = "yes" if abs(gap) <= 2 else f"no, {gap:+.1f}"
            lines.append(f"| {name} | {folds} | {level} | {' | '.join(cells)} | {' | '.join(widths)} | {verdict} |")
    return "\n".join([*lines, ""])


def _share(ones: list[dict[str, Any]]) -> float:
    return sum(one["within"] for one in ones) / sum(one["rows"] for one in ones)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many CPU minutes")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/tables_coverage.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = json.loads(options.out.read_text()) if options.out.exists() else []
    begin = time.process_time()
    for fold in range(tables_data.FOLDS):
        for name in options.tables:
            done = any(one["table"] == name and one["fold"] == fold for one in measured)
            if done or time.process_time() - begin > 60 * options.minutes:
                continue
            measured += measure(name, fold, tables_data.load(name, most_groups=600))
            print(f"{name} {fold}: {measured[-1]['within'] / measured[-1]['rows']:.3f} of {LEVELS[-1]}", flush=True)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(measured) + "\n")
    options.out.with_suffix(".md").write_text(page(measured))


if __name__ == "__main__":
    main()

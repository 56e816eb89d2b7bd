"""CAVIA beside tuned mixed effects, GPBoost and LightGBM, for unseen groups of eleven real tables.

    python benchmarks/tables.py                        # everything; goes on where it stopped
    python benchmarks/tables.py --minutes 10           # stop after so many CPU minutes
    python benchmarks/tables.py --tables Cigar Wages --splits 0 1

The rule. Groups are divided into five folds; each fold is once unseen, the next one
validates, three train. Of larger tables 300 random groups with 25 random rows each are taken. Every method sees the
same inputs, and of each unseen group the same few known rows; the other rows are predicted. Every setting of a
method's grid (tables_methods.py; CAVIA has none, it takes its defaults) is fitted on the training groups, and the one
with the lowest error on the validation groups answers for the unseen ones, which choose nothing. The score of a split
is the root mean squared error over all predicted rows, or the log loss for classes. A method is better or worse than
CAVIA on a table if the 95 % interval of the paired difference over the five splits (Student, 4 degrees of freedom)
excludes 0; otherwise they are level.

What was seen before: how a split is scored was written down before the first run. CAVIA's defaults were settled while
splits 0 and 1 of Cigar, Wages, LaborSupply, dropouts, Snmesp and nlswork were looked at; splits 2 to 4, and the other
tables, had no part in it. After first scores the tables were cut from 400 groups of 40 rows to 300 of 25, CAVIA's grid
to its defaults, the mixed model's grid was extended and GPBoost's replaced. Files of split 0 are partly of earlier
commits.

Needs the extra `bench`. One JSON file per table, method and split is kept in results/benchmarks/tables/.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.commit import this_commit
from cavia.tasks.batch import seeded_generator
from tables_data import FOLDS, SOURCES, family_of, load
from tables_methods import METHODS, Answer, applies, classes_of
from tables_page import write_page

OUT = Path("results/benchmarks")


def score(answer: Answer, family: cavia.Tasks, split: str) -> float:
    """RMSE over all rows in the target's unit, or log loss; the same known rows for every method."""
    generator = seeded_generator(0, f"tables {split}")
    batch = family.sample(len(family.splits[split]), family.support, family.query, generator, split)
    mask = torch.ones(batch.query_y.shape[:2], dtype=torch.bool) if batch.query_mask is None else batch.query_mask
    answered = answer(batch)[mask].double()
    truth = batch.query_y[mask]
    assert family.encoding
    if family.encoding.is_classification:
        return float(-answered.clamp(min=1e-6).log().gather(1, truth[:, None]).mean())
    return float((answered - truth).square().mean().sqrt()) * family.encoding.target.scale  # type: ignore[union-attr]


def measure(family: cavia.Tasks, method: str) -> dict[str, Any]:
    """The method's scores on a fold's unseen groups: of the settings that validation chose, and of its first ones."""
    build, settings = METHODS[method]
    begin, tried = time.process_time(), []
    for one in settings:
        try:
            answer = build(family, **one)
            tried.append((score(answer, family, "val"), one, score(answer, family, "test")))
        except Exception as error:  # an optimiser of another library that fails
            print(f"  {method} {one}: {type(error).__name__}: {str(error)[:100]}", flush=True)
    finite = [entry for entry in tried if entry[0] < float("inf")]
    if not finite:
        return {"score": None, "chosen": None, "tried": len(settings), "failed": len(settings)}
    best = min(finite, key=lambda entry: entry[0])
    return {
        "score": best[2],
        "chosen": best[1],
        "default": tried[0][2],
        "validation": best[0],
        "tried": len(settings),
        "failed": len(settings) - len(tried),
        "processor_seconds": round(time.process_time() - begin, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--splits", nargs="*", type=int, default=list(range(FOLDS)), choices=range(FOLDS))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many CPU minutes")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin, folder = time.process_time(), options.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    loaded: dict[str, Any] = {}
    for split in options.splits:  # all tables at one split before the next: what there is, is comparable
        for name in options.tables:
            for method in options.methods:
                path = folder / f"{name}-{method.replace(' ', '_')}-{split}.json"
                if path.exists() or time.process_time() - begin > 60 * options.minutes:
                    continue
                loaded[name] = loaded[name] if name in loaded else load(name)
                family = family_of(name, loaded[name], split)
                if not applies(method, classes_of(family)):
                    continue
                result = measure(family, method)
                counts = {part: len(chosen) for part, chosen in family.splits.items()}
                about = {"table": name, "method": method, "split": split, "groups": counts, "rows": len(family.x)}
                about |= {
                    "commit": this_commit(),
                    "known": family.support,
                    "order": family.order,
                    "classes": classes_of(family),
                }
                path.write_text(json.dumps(about | result, indent=1) + "\n")
                print(f"{name} {split} {method}: {result['score']} {result['chosen']}", flush=True)
    write_page(options.out)


if __name__ == "__main__":
    main()

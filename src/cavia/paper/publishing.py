"""Copy trained cells into the package, as `results/models.toml` says: python -m cavia.paper.publishing --runs runs"""

import argparse
import math
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError
from cavia.paper.schema import CellResult
from cavia.published.models import FOLDER
from cavia.tensor_file import read_json, write_json

LIST = Path("results/models.toml")
KEYS = {"experiment", "set", "cell", "about", "licence"}
LARGEST = 2 * 2**20  # bytes of a model
DEFAULTS = (1000, 40)  # default test tasks of `cavia evaluate`, for points and for policies


def publish_models(source: Path, runs: Path, out: Path) -> list[str]:
    """Copy the listed models whose cells are finished, each with a description; returns their names.

    A published model stays until its cell is finished again.
    """
    known = read_json(out / "models.json") if (out / "models.json").exists() else {}
    names = []
    for name, entry in tomllib.loads(source.read_text(encoding="utf-8")).items():
        if set(entry) != KEYS:
            raise CaviaError(f"{source}, {name} must have {', '.join(sorted(KEYS))}, got {', '.join(sorted(entry))}")
        candidates = list(_finished(runs / entry["set"] / entry["experiment"], entry["cell"]))
        if not candidates:
            continue
        cell, result = min(candidates, key=lambda candidate: _loss(candidate[1]))
        if (cell / "model.cavia").stat().st_size > LARGEST:
            raise CaviaError(f"{cell / 'model.cavia'} has more than {LARGEST} bytes")
        (out / name).mkdir(parents=True, exist_ok=True)
        for file in ("model.cavia", "config.json"):
            shutil.copy(cell / file, out / name / file)
        score, tasks = _score(result, read_json(cell / "config.json"))
        known[name] = {
            "about": entry["about"],
            "score": score,
            "command": f"cavia evaluate {name} --seed 0" + (f" --tasks {tasks}" if tasks not in DEFAULTS else ""),
            "source": f"{entry['experiment']} --{entry['set']}, {cell.name}, {' '.join(result.commits) or 'unknown'}",
            "licence": entry["licence"],
        }
        names.append(name)
    write_json(out / "models.json", known)
    return names


def _loss(result: CellResult) -> float:
    """The validation score as a loss: lower is better."""
    score = math.inf if result.validation is None else result.validation
    return score if "mse" in result.scores else -score


def _score(result: CellResult, config: Mapping[str, Any]) -> tuple[str, int]:
    """The test score after as many steps as in training, in words, and the number of test tasks."""
    measure, by_steps = next(iter(result.scores.items()))
    steps = config["learner"]["arguments"].get("inner_steps", 1)
    values = [value for value in by_steps[min(steps, len(by_steps) - 1)] if value is not None]  # or only the last
    policy = measure.startswith("sampled")  # followed by the later rate
    name, step = ("return", "update") if policy else ("MSE" if measure == "mse" else measure, "step")
    plural = "s" if steps != 1 else ""
    return f"{name} {sum(values) / len(values):.4g} after {steps} {step}{plural}, {len(values)} tasks", len(values)


def _finished(folder: Path, choices: Mapping[str, Any]) -> Iterator[tuple[Path, CellResult]]:
    """The finished cells of a run folder that have these choices."""
    for cell in sorted(folder.glob("cells/*")):
        if (cell / "result.json").exists() and (cell / "model.cavia").exists():
            result = CellResult.of(read_json(cell / "result.json"))
            if result and not result.diverged and choices.items() <= result.choices.items():
                yield cell, result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m cavia.paper.publishing")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--list", type=Path, default=LIST)
    options = parser.parse_args()
    print("published:", ", ".join(publish_models(options.list, options.runs, FOLDER)) or "nothing is finished")


if __name__ == "__main__":
    main()

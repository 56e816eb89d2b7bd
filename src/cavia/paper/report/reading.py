"""Finds the result files below some folders, checks them, and sorts them in the catalogue's order."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cavia.errors import CaviaError
from cavia.paper.catalogue import CATALOGUE
from cavia.paper.checking import first_problem, read_value
from cavia.paper.schema import Result

MOST_FOLDERS = 10_000  # to look for results in


def read_results(folders: Sequence[Path]) -> list[Result]:
    """Every experiment's `result.json` below the folders, in the catalogue's order: the paper's, then those beyond it.

    Full budgets come before quick ones; experiments unknown to this version come last, by name.

    Skips folders called `cells`, which hold the parts of an experiment, and files called `result.json` that are not an
    object with an "experiment". Raises for a file that has one but is not a valid result.
    """
    results = [result for path in _result_files(folders) if (result := _read(path))]
    if not results:
        places = ", ".join(map(str, folders)) or "(no folder given)"
        raise CaviaError(f"there is no cavia result.json in the folders {places}; make one: cavia run table1 --quick")
    return sorted(results, key=_rank)


def _result_files(folders: Sequence[Path]) -> Iterable[Path]:
    """The result files below the folders, each once."""
    seen: dict[str, Path] = {}
    for folder in folders:
        below = []
        for number, (place, inner, files) in enumerate(os.walk(folder)):
            if number == MOST_FOLDERS:
                raise CaviaError(f"there are more than {MOST_FOLDERS:,} folders in {folder}; name those with results")
            inner[:] = [name for name in inner if name != "cells"]
            below += [Path(place, name) for name in files if name == "result.json"]
        for path in sorted(below):
            seen.setdefault(os.path.realpath(path), path)
    return seen.values()


def _read(path: Path) -> Result | None:
    result = read_value(path)
    if not isinstance(result, dict) or "experiment" not in result:
        return None
    if problem := first_problem(result):
        raise CaviaError(f"{path} is not a result that this version can show: {problem}")
    return result  # type: ignore[return-value]  # first_problem has just checked it


def _rank(result: Result) -> tuple[int, str, bool]:
    name = result["experiment"]
    known = list(CATALOGUE)
    return known.index(name) if name in known else len(known), name, result["budget"] != "full"

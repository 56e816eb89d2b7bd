"""Cells to train, without processes, and results of cells to sum up."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cavia.paper.catalogue import find
from cavia.paper.experiment import Cell, Data, Place
from cavia.paper.schema import CellResult, Claim, Summary
from cavia.paper.training import run_cell

SYNTHETIC = Data(synthetic=True)


def folder_of(runs: Path, name: str, cell: Cell) -> Path:
    """Where a runner would train the cell."""
    return runs / name / "cells" / cell.name


def train(name: str, runs: Path, cell: Cell, data: Data = SYNTHETIC, **changes: Any) -> CellResult:
    """Train and measure a cell of the experiment with quick settings and these changes, in this process."""
    settings = replace(find(name).sets["quick"], **changes)
    place = Place(folder_of(runs, name, cell), "cpu", lambda progress: None, data)
    return run_cell(find(name), settings, cell, place)


def noise(mean: float, tasks: int = 50, seed: int = 0, scale: float = 0.1) -> list[float]:
    """Scores of tasks with exactly this mean. The same seed gives the same tasks: the easy and the hard ones."""
    drawn = np.random.default_rng(seed).normal(size=tasks)
    return (mean + scale * (drawn - drawn.mean())).tolist()


def result(choices: dict[str, Any], scores: dict[str, Sequence[Sequence[float | None]]], **more: Any) -> CellResult:
    """The result of a cell, as read from a file."""
    values = {"best_iteration": 50, "iterations": 100, "seconds": 200.0, "curve": [[50, 0.3, 90.0], [100, 0.2, 200.0]]}
    read = CellResult.of(CellResult({"seed": 0, **choices}, scores=scores, **values | more).as_json())
    assert read
    return read


def lost(choices: dict[str, Any]) -> CellResult:
    """The result of a cell that diverged."""
    return CellResult({"seed": 0, **choices}, diverged="the loss is nan")


def claims(summary: Summary, *words: str) -> list[bool]:
    """Whether the claims that have all these words hold."""
    return [claim["holds"] for claim in summary["claims"] if all(word in claim["claim"] for word in words)]


def claim(summary: Summary, *words: str) -> Claim:
    """The one claim that has all these words."""
    (match,) = (claim for claim in summary["claims"] if all(word in claim["claim"] for word in words))
    return match

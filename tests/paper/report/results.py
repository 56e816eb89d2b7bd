"""Small result files to report on."""

import json
from pathlib import Path
from typing import Any


def estimate(mean: float, interval: float | None = None) -> dict[str, Any]:
    return {"mean": mean, "interval": interval}


def table() -> dict[str, Any]:
    short = {"ours": estimate(0.987, 0.05), "paper": estimate(0.84, 0.06), "verdict": "short", "note": None}
    within = {"ours": estimate(0.213), "paper": estimate(0.21, 0.02), "verdict": "within", "note": "inner_lr 0.01"}
    unpublished = {"ours": estimate(0.191, 0.017), "paper": None, "verdict": None, "note": None}
    return {
        "caption": "Error on new curves",
        "metric": "MSE",
        "higher_is_better": False,
        "digits": 2,
        "column_title": "Extra inputs",
        "columns": ["0", "1", "2", "50"],
        "rows": [{"label": "CAVIA", "cells": [None, short, within, unpublished]}],
    }


def lines(name: str = "fig3b") -> dict[str, Any]:
    return {
        "name": name,
        "caption": "Error by inner rate",
        "kind": "lines",
        "x_label": "inner learning rate",
        "y_label": "MSE",
        "x_scale": "log",
        "y_scale": "log",
        "series": [
            {"label": "CAVIA", "x": [0.1, 1, 10], "y": [0.2, 0.2, 0.3], "interval": [0.02, 0.5, None]},
            {"label": "MAML", "x": [0.1, 1, 10], "y": [0.4, None, None], "interval": None},
        ],
    }


def scatter() -> dict[str, Any]:
    panel = {"title": "amplitude", "x": [0.0, 1.0], "y": [1.0, 0.0], "colour": [0.1, 5.0], "colour_label": "amplitude"}
    return {
        "name": "fig4",
        "caption": "Contexts of new tasks",
        "kind": "scatter",
        "x_label": "context parameter 1",
        "y_label": "context parameter 2",
        "panels": [panel, panel | {"title": "phase"}, panel | {"title": "both"}],
    }


def result(experiment: str = "table1", budget: str = "full", **changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "experiment": experiment,
        "title": f"Title of {experiment}",
        "reproduces": "Table 1: error on sine curves",
        "budget": budget,
        "command": f"cavia run {experiment} --{budget}",
        "settings": {"iterations": 50_000, "hidden": [40, 40]},
        "seeds": 3,
        "version": "0.1.0",
        "machine": {"python": "3.11.7", "cpus": 2},
        "seconds": 5025.0,
        "finished": "2026-11-15",
        **changes,
    }


def write(folder: Path, content: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path

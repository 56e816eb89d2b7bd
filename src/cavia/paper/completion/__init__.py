"""Table 2 and Figure 5: image completion from some of the pixels (Section 5.1.2)."""

from typing import Any

from cavia.paper.completion import summary, training
from cavia.paper.completion.training import FacesSettings, Table2Settings
from cavia.paper.experiment import Experiment

QUICK: dict[str, Any] = {
    "init": "he",
    "iterations": 150,
    "query": 128,
    "every": 75,
    "validation_tasks": 20,
    "shots": (10, 100),
}
TUNED: dict[str, Any] = {"init": "he", "lr": 2e-3, "cooldown": 0.6, "query": 256, "every": 1000}
COMMON: dict[str, Any] = {
    "cells": training.cells,
    "tasks": training.tasks,
    "learner": training.learner,
    "fit": training.fit,
    "chooses": ("methods", "orders", "shots"),
    "differs": "Weights use He initialisation. The outer rate is 0.002 and falls to zero over the last 60 % of the "
    "run. A training step predicts 256 random pixels of each picture instead of all 1024.",
}

EXPERIMENTS = (
    Experiment(
        id="table2",
        title="Image completion: errors",
        reproduces="Table 2: pixel MSE on CelebA by the number and order of known pixels",
        sets={
            "quick": Table2Settings(**QUICK, test_pictures=100),
            "full": Table2Settings(),
            "tuned": Table2Settings(**TUNED),
        },
        minutes={"quick": 3, "full": 9600, "tuned": 7000},
        measure=training.errors,
        summarise=summary.table2_summary,
        **COMMON,
    ),
    Experiment(
        id="fig5",
        title="Image completion: faces",
        reproduces="Figure 5: faces completed from some of their pixels",
        sets={"quick": FacesSettings(**QUICK), "full": FacesSettings(), "tuned": FacesSettings(**TUNED)},
        minutes={"quick": 2, "full": 4800, "tuned": 3500},
        measure=training.faces,
        summarise=summary.faces_summary,
        **COMMON,
    ),
)

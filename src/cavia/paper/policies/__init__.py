"""Figures 6 and 7: meta-reinforcement learning (Section 5.3)."""

from functools import partial
from typing import Any

from cavia.envs.cheetah import CheetahDirection, CheetahVelocity
from cavia.paper.experiment import Experiment
from cavia.paper.policies import summary, training
from cavia.paper.policies.training import EmbeddingSettings, RatesSettings, UpdatesSettings

CHEETAH: dict[str, Any] = {
    "tasks_per_batch": 40,
    "horizon": 200,
    "context": 50,
    "max_kl": 6e-2,
    "chunk": 1,
    "updates": 3,
    "validation_tasks": 10,
    "cavia_lrs": (10.0,),
    "maml_lrs": (0.1,),
}
QUICK: dict[str, Any] = {"iterations": 50, "every": 10, "validation_tasks": 10, "hvp_every": 9}
# With the paper's std and λ of 1, so small a batch is too noisy to learn from.
QUICK_CHEETAH: dict[str, Any] = CHEETAH | QUICK | {
    "std": 0.5, "trace": 0.9, "iterations": 60, "tasks_per_batch": 10, "rollouts": 10, "horizon": 100,
    "test_rollouts": 10, "test_tasks": 20, "updates": 2,
}  # fmt: skip
TUNED: dict[str, Any] = {"damping": 1e-9}
COMMON: dict[str, Any] = {
    "learner": training.learner,
    "chooses": ("methods", "cavia_lrs", "maml_lrs", "rates"),
}
ON_CHEETAH: dict[str, Any] = COMMON | {
    "sets": {"quick": UpdatesSettings(**QUICK_CHEETAH), "full": UpdatesSettings(**CHEETAH)},
    "minutes": {"quick": 4, "full": 480},
    "cells": training.updates_cells,
    "measure": training.returns,
}
NAVIGATION: dict[str, Any] = COMMON | {
    "tasks": training.navigation,
    "differs": "Conjugate gradients are damped by 1e-9 instead of 1e-5, so that training can compensate for small "
    "inner rates.",
}

EXPERIMENTS = (
    Experiment(
        id="fig6a",
        title="HalfCheetah: forward or backward",
        reproduces="Figure 6a: return by the number of updates, forward and backward",
        tasks=partial(training.cheetah, CheetahDirection),
        summarise=partial(summary.updates_summary, name="fig6a"),
        **ON_CHEETAH,
    ),
    Experiment(
        id="fig6b",
        title="HalfCheetah: running at a given velocity",
        reproduces="Figure 6b: return by the number of updates, unseen velocities",
        tasks=partial(training.cheetah, CheetahVelocity),
        summarise=partial(summary.updates_summary, name="fig6b"),
        **ON_CHEETAH,
    ),
    Experiment(
        id="fig7a",
        title="2D navigation: CAVIA and MAML",
        reproduces="Figure 7a: return by the number of updates, unseen goals",
        sets={"quick": UpdatesSettings(**QUICK), "full": UpdatesSettings(), "tuned": UpdatesSettings(**TUNED)},
        minutes={"quick": 2, "full": 60, "tuned": 60},
        cells=training.updates_cells,
        measure=training.returns,
        summarise=partial(summary.updates_summary, name="fig7a"),
        **NAVIGATION,
    ),
    Experiment(
        id="fig7b",
        title="2D navigation: sensitivity to the inner learning rate",
        reproduces="Figure 7b: return after the last update by inner learning rate",
        sets={
            "quick": RatesSettings(**QUICK, rates=(0.01, 0.1, 1.0)),
            "full": RatesSettings(),
            "tuned": RatesSettings(**TUNED),
        },
        minutes={"quick": 5, "full": 300, "tuned": 300},
        cells=training.rates_cells,
        measure=training.returns,
        summarise=summary.rates_summary,
        **NAVIGATION,
    ),
    Experiment(
        id="fig7c",
        title="2D navigation: what two context parameters encode",
        reproduces="Figure 7c: adapted contexts, coloured by the goal's position",
        sets={"quick": EmbeddingSettings(**QUICK), "full": EmbeddingSettings(), "tuned": EmbeddingSettings(**TUNED)},
        minutes={"quick": 1, "full": 20, "tuned": 20},
        cells=training.embedding_cells,
        measure=training.embedding,
        summarise=summary.embedding_summary,
        **NAVIGATION,
    ),
)

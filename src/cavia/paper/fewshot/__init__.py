"""Table 3 and Omniglot: few-shot classification of pictures (Section 5.2)."""

from functools import partial
from typing import Any

from cavia.paper.experiment import Experiment
from cavia.paper.fewshot import embeddings, summary, systems, training
from cavia.paper.fewshot.embeddings import UNTRAINED, EmbeddingsSettings
from cavia.paper.fewshot.training import FewShotSettings
from cavia.pictures.datasets import MINI_IMAGENET, OMNIGLOT

QUICK: dict[str, Any] = {
    "iterations": 100,
    "methods": ("CAVIA", "MAML", "ProtoNets"),
    "shots": (1,),
    "every": 50,
    "validation_tasks": 20,
    "test_tasks": 100,
}
ON_OMNIGLOT: dict[str, Any] = {"image": OMNIGLOT.size, "queries": 5}
EQUAL_TIME: dict[str, Any] = {
    **ON_OMNIGLOT,
    "methods": tuple(systems.TRIED),
    "shots": (1,),
    "iterations": 1_000_000,
    "minutes": 15.0,
    "tasks_per_batch": 16,
    "cooldown": 0.3,
    "lr_decay": 1.0,
    "every": 200,
    "chunk": 16,
}
QUICK_METHODS: dict[str, Any] = {"minutes": 1.0, "every": 50, "validation_tasks": 20, "test_tasks": 100}
COMMON: dict[str, Any] = {
    "cells": training.cells,
    "learner": training.learner,
    "fit": training.fit,
    "measure": training.accuracy,
    "chooses": ("methods", "filters", "ways", "shots"),
}

EXPERIMENTS = (
    Experiment(
        id="table3",
        title="Few-shot classification: Mini-ImageNet",
        reproduces="Table 3: few-shot accuracy on Mini-ImageNet",
        sets={
            "quick": FewShotSettings(**QUICK),
            "full": FewShotSettings(),
            "tuned": FewShotSettings(iterations=30_000, lr_decay=1.0, cooldown=0.5),
        },
        differs="30,000 iterations instead of 60,000, and the outer rate falls to zero over the second half.",
        minutes={"quick": 5, "full": 3000, "tuned": 1500},
        tasks=partial(training.tasks, MINI_IMAGENET),
        summarise=summary.table3_summary,
        **COMMON,
    ),
    Experiment(
        id="omniglot",
        title="Few-shot classification: Omniglot",
        reproduces="few-shot accuracy on Omniglot",
        beyond=True,
        sets={
            "quick": FewShotSettings(
                **QUICK | ON_OMNIGLOT | {"iterations": 300, "every": 150}, tasks_per_batch=8, chunk=8
            ),
            "full": FewShotSettings(
                **ON_OMNIGLOT,
                methods=("CAVIA", "MAML", "ProtoNets"),
                ways=(5, 20),
                iterations=20_000,
                tasks_per_batch=16,
                cooldown=0.3,
                lr_decay=1.0,
                chunk=16,
            ),
        },
        minutes={"quick": 5, "full": 2000},
        tasks=partial(training.tasks, OMNIGLOT),
        summarise=summary.omniglot_summary,
        **COMMON,
    ),
    Experiment(
        id="omniglot_methods",
        title="Few-shot classification: every method on Omniglot",
        reproduces="few-shot accuracy of every method after equal training time",
        beyond=True,
        sets={
            "quick": FewShotSettings(**EQUAL_TIME | QUICK_METHODS),
            "full": FewShotSettings(**EQUAL_TIME),
        },
        minutes={"quick": 20, "full": 200},
        tasks=partial(training.tasks, OMNIGLOT),
        summarise=systems.summarise,
        **COMMON | {"cells": systems.cells},
    ),
    Experiment(
        id="embeddings",
        title="Few-shot classification: every method on the same embeddings",
        reproduces="few-shot accuracy on Mini-ImageNet embeddings by our ProtoNets network",
        beyond=True,
        sets={
            "quick": EmbeddingsSettings(
                iterations=200, network=UNTRAINED, every=100, validation_tasks=20, test_tasks=100
            ),
            "full": EmbeddingsSettings(),
        },
        minutes={"quick": 10, "full": 200},
        tasks=embeddings.tasks,
        cells=embeddings.cells,
        learner=embeddings.learner,
        measure=embeddings.accuracy,
        chooses=("methods", "shots"),
        summarise=embeddings.summarise,
    ),
)

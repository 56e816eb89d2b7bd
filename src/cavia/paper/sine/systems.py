"""Sine regression beyond the paper: every method in equal time, and a hundred steps of each inner optimiser."""

from dataclasses import dataclass
from typing import Any, ClassVar

from cavia.evaluation.evaluate import evaluate
from cavia.learners.base import Learner
from cavia.models.mlp import MLP
from cavia.paper.experiment import Cell, cells_of
from cavia.paper.methods import METHODS
from cavia.paper.schema import CellResult, Claim, Row, Summary
from cavia.paper.showing import cell, curve, iterations, learning_curves, lines, several, table
from cavia.paper.sine.training import SineSettings
from cavia.paper.statistics import at_rates, best, estimate, finite, scores, text
from cavia.tasks.sine import Sine

# Method → the inner learning rates to try; the best on validation tasks is reported.
TRIED: dict[str, tuple[float, ...]] = {
    "CAVIA": (1.0,),
    "MAML": (0.003, 0.01),
    "ANIL": (0.01, 0.1),
    "Meta-SGD": (0.01,),
    "CAVIA + MAML": (1.0,),
    "Reptile": (0.01, 0.03),
    "MAML++": (0.003, 0.01),
    "iMAML": (0.003, 0.01),
    "MT-net": (0.003, 0.01),
    "Meta-LSTM": (0.003, 0.01),
    "CNP": (1.0,),
    "VERSA (regression)": (1.0,),
    "CAVIA, Gauss–Newton": (1.0,),
}
# The same for tests with a hundred steps.
WALKED: dict[str, tuple[float, ...]] = {
    "CAVIA": (0.1, 1.0),
    "CAVIA, momentum": (0.03, 0.1),
    "CAVIA, Adam": (0.03, 0.1),
    "CAVIA, Gauss–Newton": (1.0, 10.0),
    "MAML": (0.003, 0.01),
}
MSE = "mse"
LITTLE = 0.002  # the error that an optimiser should reach after a hundred steps


@dataclass(frozen=True)
class MethodsSettings(SineSettings):
    """Every method trained for the same time on one core."""

    known: ClassVar = {"methods": tuple(TRIED)}

    iterations: int = 1_000_000
    minutes: float = 10.0
    methods: tuple[str, ...] = tuple(TRIED)
    context: int = 5
    code: int = 40  # size of the task code of CNP and VERSA, and of VERSA's features
    steps: int = 1  # in training, too
    walked_steps: int = 5  # of methods that need many
    cooldown: float = 0.3
    every: int = 500


@dataclass(frozen=True)
class WalkSettings(SineSettings):
    """Trained for few steps, tested for many."""

    known: ClassVar = {"methods": tuple(WALKED)}

    methods: tuple[str, ...] = tuple(WALKED)
    hidden: tuple[int, ...] = (80, 80)
    context: int = 5
    inner_steps: int = 3
    steps: int = 100
    cooldown: float = 0.5


def methods_cells(settings: MethodsSettings, seeds: int) -> list[Cell]:
    return [one for method in settings.methods for one in cells_of(seeds, method, [settings.context], TRIED[method])]


def walk_cells(settings: WalkSettings, seeds: int) -> list[Cell]:
    return [one for method in settings.methods for one in cells_of(seeds, method, [settings.context], WALKED[method])]


def learner(settings: MethodsSettings | WalkSettings, cell: Cell, family: Sine) -> Learner:
    method, code = METHODS[cell["method"]], getattr(settings, "code", 1)
    context = cell["context"] if method.context else code if cell["method"] == "CNP" else 0
    model = MLP(1, 1 if method.head else code, settings.hidden, context)
    few = settings.inner_steps if isinstance(settings, WalkSettings) else settings.steps
    return method(
        model,
        "mse",
        inner_lr=cell["inner_lr"],
        inner_steps=getattr(settings, "walked_steps", few) if method.walks else few,
        inputs=1,
        outputs=1,
    )


def as_trained(learner: Learner, family: Sine, settings: MethodsSettings, cell: Cell) -> dict[str, Any]:
    """MSE on the test tasks before adaptation, and after as many steps as in training."""
    sizes = (settings.test_tasks, settings.support, settings.test_points)
    result = evaluate(learner, family, *sizes, learner.inner_steps, chunk=1000)
    return {"scores": {MSE: result.scores[[0, -1]].tolist()}}


def methods_summary(settings: MethodsSettings, results: list[CellResult]) -> Summary:
    groups = {method: best(at_rates(results, method).values()) for method in settings.methods}
    rows: list[Row] = [
        {"label": method, "cells": [cell(scores(group, MSE), None, 4, _how(group)) if group else None]}
        for method, group in groups.items()
    ]
    caption = (
        f"Test MSE of every method after {settings.minutes:g} minutes of training on one core, from {settings.support} "
        "known points. Notes name the inner rate, the best on validation tasks if several were tried."
    )
    runs = {method: group[0] for method, group in groups.items() if group and group[0].curve}
    words = "Validation MSE during training, seed 0."
    return {
        "tables": [table(caption, "MSE", 4, "Trained for", [f"{settings.minutes:g} minutes"], rows)],
        "figures": [learning_curves("sine-methods", words, "MSE", runs, log=True)] if runs else [],
    }


def _how(group: list[CellResult]) -> str:
    rate = f"inner rate {group[0]['inner_lr']:g}, " if METHODS[group[0]["method"]].has_rate else ""
    return rate + iterations(group)


def walk_summary(settings: WalkSettings, results: list[CellResult]) -> Summary:
    groups = {method: best(at_rates(results, method).values()) for method in settings.methods}
    shown = [step for step in range(settings.steps + 1) if step <= 10 or step % 10 == 0]
    series = [
        curve(f"{method} (rate {group[0]['inner_lr']:g})", shown, [finite(_after(group, step)) for step in shown])
        for method, group in groups.items()
        if group
    ]
    caption = (
        f"Test MSE after up to {several(settings.steps, 'step')} on the same {settings.support} points; training used "
        f"{settings.inner_steps}. Each optimiser's rate is the best on validation tasks after {settings.inner_steps}."
    )
    last = {method: _after(group, settings.steps) for method, group in groups.items() if group}
    trained = {method: _after(group, settings.inner_steps) for method, group in groups.items() if group}
    claims: list[Claim] = [
        {
            "claim": f"At least one inner optimiser reaches an error below {LITTLE:g} on unseen tasks after "
            f"{several(settings.steps, 'step')}: its whole interval is below.",
            "holds": any(one["mean"] + (one.get("interval") or 0.0) < LITTLE for one in last.values()),
            "evidence": "; ".join(f"{method} {text(one, 5)}" for method, one in last.items()),
        },
        *(
            Claim(
                claim=f"{method} is stable: its error after {several(settings.steps, 'step')} is no higher than after "
                f"{settings.inner_steps}.",
                holds=one["mean"] <= trained[method]["mean"],
                evidence=f"{text(trained[method], 5)}, then {text(one, 5)}",
            )
            for method, one in last.items()
        ),
    ]
    return {"figures": [lines("sine-steps", caption, ("steps", "MSE"), series, y_scale="log")], "claims": claims}


def _after(group: list[CellResult], step: int) -> Any:
    return estimate(scores(group, MSE, min(step, len(group[0].scores[MSE]) - 1)))

"""Summary of the experiment on many modes, by the rules of results/claims.md."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cavia.paper.meaning import meaning
from cavia.paper.modes.training import BOTH, CAVIA, MAML, ModesSettings
from cavia.paper.schema import CellResult, Claim, CurvePanel, Curves, Lines, ResultTable, Row, Summary
from cavia.paper.showing import cell, curve, lines, several, table
from cavia.paper.statistics import below, best, difference, estimate, finite, grouped, scores, text
from cavia.tasks.modes import Modes

Chosen = dict[tuple[str, int], list[CellResult]]  # method and inner steps → its seeds at the best learning rates


def summary(settings: ModesSettings, results: list[CellResult]) -> Summary:
    chosen: Chosen = {}
    for method in settings.methods:
        for steps in settings.inner_steps:
            groups = grouped(
                results, lambda one: (one["context_lr"], one["weights_lr"]), method=method, inner_steps=steps
            )
            chosen[method, steps] = best(groups.values())
    rows: list[Row] = [
        {"label": method, "cells": [_cell(chosen[method, steps]) for steps in settings.inner_steps]}
        for method in settings.methods
    ]
    columns = [several(steps, "step") for steps in settings.inner_steps]
    caption = f"Test MSE after as many gradient steps as in training, from {settings.support} known points. " + (
        "Notes give the inner rates, the best on validation tasks." if _tuned(settings) else ""
    )
    most = max(settings.inner_steps)
    with_context = {method: chosen[method, most] for method in (CAVIA, BOTH) if chosen.get((method, most))}
    return {
        "tables": [
            table(caption.strip(), "MSE", 3, "Inner steps", columns, rows),
            _by_kind(settings, chosen),
            *meaning(with_context, f" on sines, after {several(most, 'step')}"),
        ],
        "figures": [*_curves(settings, chosen), *_lines(settings, chosen)],
        "claims": [*_claims(settings, chosen)],
    }


def _tuned(settings: ModesSettings) -> bool:
    return len(settings.cavia_lrs) > 1 or len(settings.maml_lrs) > 1


def _curves(settings: ModesSettings, chosen: Chosen) -> Iterator[Curves]:
    """A test task of each kind, fitted by the best method on validation tasks after the most steps."""
    most = max(settings.inner_steps)
    one = next(iter(best(chosen[method, most] for method in settings.methods if chosen[method, most])), None)
    panels: list[CurvePanel] = [
        panel for panel in (one.probes.get("curves", []) if one else []) if None not in panel["before"] + panel["after"]
    ]
    if one and panels:
        caption = (
            f"An unseen curve of each kind, fitted by {one['method']}: {settings.support} known points, and "
            f"predictions before and after {several(most, 'gradient step')}."
        )
        yield {
            "name": "modes-curves", "caption": caption, "kind": "curves", "x_label": "x", "y_label": "y",
            "panels": panels,
        }  # fmt: skip


def _lines(settings: ModesSettings, chosen: Chosen) -> Iterator[Lines]:
    """The error by number of steps, if there are several."""
    steps = settings.inner_steps
    if len(steps) > 1:
        series = [curve(method, steps, [_estimate(chosen[method, n]) for n in steps]) for method in settings.methods]
        words = "Test MSE by number of gradient steps, the same in training and testing."
        yield lines("modes", words, ("gradient steps", "MSE"), series, y_scale="log")


def _cell(group: list[CellResult]) -> Any:
    if not group:
        return None
    rates = {"φ": group[0]["context_lr"], "weights": group[0]["weights_lr"]}
    note = "inner rate of " + ", of ".join(f"{name} {rate:g}" for name, rate in rates.items() if rate)
    return cell(scores(group, "mse"), None, 3, note)


def _estimate(group: list[CellResult]) -> Any:
    return finite(estimate(scores(group, "mse"))) if group else None


def _by_kind(settings: ModesSettings, chosen: Chosen) -> ResultTable:
    """The error on each kind of curve, with the most steps."""
    kinds, steps = Modes().kinds, max(settings.inner_steps)
    rows: list[Row] = []
    for method in settings.methods:
        errors = [[one.probes["of kinds"].get(kind) for one in chosen[method, steps]] for kind in kinds]
        whole = [None if not v or None in v else cell(np.array(v).reshape(-1, 1), None, 3) for v in errors]
        rows.append({"label": method, "cells": whole})
    caption = f"Test MSE on each kind of curve after {several(steps, 'step')}, mean over seeds."
    return table(caption, "MSE", 3, "Kind", list(kinds), rows, over="seeds")


def _claims(settings: ModesSettings, chosen: Chosen) -> Iterator[Claim]:
    for rival in (CAVIA, MAML):
        gaps = {
            steps: difference(scores(chosen[BOTH, steps], "mse"), scores(chosen[rival, steps], "mse"))
            for steps in settings.inner_steps
            if chosen.get((BOTH, steps)) and chosen.get((rival, steps))
        }
        if gaps:
            yield {
                "claim": f"With many modes, the error of {BOTH} is below that of {rival} at every number of steps.",
                "holds": len(gaps) == len(settings.inner_steps) and all(map(below, gaps.values())),
                "evidence": f"{BOTH} − {rival}: "
                + ", ".join(f"{several(n, 'step')}: {text(gap, 3)}" for n, gap in gaps.items()),
            }

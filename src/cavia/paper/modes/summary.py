"""What the experiment with many modes shows, by the rules of results/claims.md."""

from collections.abc import Iterator
from typing import Any

from cavia.paper.modes.training import BOTH, CAVIA, MAML, ModesSettings
from cavia.paper.schema import CellResult, Claim, Row, Summary
from cavia.paper.showing import cell, curve, lines, table
from cavia.paper.statistics import below, best, difference, estimate, finite, grouped, scores, text
from cavia.tasks.modes import Modes

Chosen = dict[tuple[str, int], list[CellResult]]  # method and inner steps → the seeds at its best rates


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
    caption = (
        f"Test MSE after as many gradient steps as in training, on {settings.support} known points. Rates are the "
        "ones that validate best, of as many for each method."
    )
    columns = [f"{steps} step{'s' * (steps > 1)}" for steps in settings.inner_steps]
    series = [
        curve(method, settings.inner_steps, [_estimate(chosen[method, steps]) for steps in settings.inner_steps])
        for method in settings.methods
    ]
    figure = lines("modes", "The same as a figure.", ("gradient steps", "MSE"), series, y_scale="log")
    return {
        "tables": [table(caption, "MSE", 3, "Inner steps", columns, rows), *_by_kind(settings, chosen)],
        "figures": [figure],
        "claims": [*_claims(settings, chosen)],
    }


def _cell(group: list[CellResult]) -> Any:
    if not group:
        return None
    rates = {"φ": group[0]["context_lr"], "weights": group[0]["weights_lr"]}
    note = "rate of " + ", of ".join(f"{name} {rate:g}" for name, rate in rates.items() if rate)
    return cell(scores(group, "mse"), None, 3, note)


def _estimate(group: list[CellResult]) -> Any:
    return finite(estimate(scores(group, "mse"))) if group else None


def _by_kind(settings: ModesSettings, chosen: Chosen) -> Iterator[Any]:
    """The error on each kind of curve, with the most steps."""
    kinds, steps = Modes().kinds, max(settings.inner_steps)
    rows: list[Row] = []
    for method in settings.methods:
        group = chosen[method, steps]
        found = {kind: [one.probes["of kinds"].get(kind) for one in group] for kind in kinds}
        means = [sum(v) / len(v) if v and None not in v else None for v in found.values()]
        cells: Any = [{"ours": None if m is None else {"mean": m, "interval": None}, "paper": None} for m in means]
        rows.append({"label": method, "cells": cells})
    yield table(f"Test MSE on each kind of curve after {steps} steps.", "MSE", 3, "Kind", list(kinds), rows)


def _claims(settings: ModesSettings, chosen: Chosen) -> Iterator[Claim]:
    for rival in (CAVIA, MAML):
        gaps = {
            steps: difference(scores(chosen[BOTH, steps], "mse"), scores(chosen[rival, steps], "mse"))
            for steps in settings.inner_steps
            if chosen.get((BOTH, steps)) and chosen.get((rival, steps))
        }
        if gaps:
            yield {
                "claim": f"With many modes, {BOTH} is ahead of {rival}: its error is below at every number of steps.",
                "holds": len(gaps) == len(settings.inner_steps) and all(map(below, gaps.values())),
                "evidence": f"{BOTH} − {rival}: " + ", ".join(f"{n}: {text(gap, 3)}" for n, gap in gaps.items()),
            }

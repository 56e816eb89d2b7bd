"""Summary of the experiment on sparse reward, by the rules of results/claims.md."""

from collections.abc import Iterator

from cavia.paper.exploration.training import CAVIA, EMAML, MAML, SAMPLED, ExplorationSettings
from cavia.paper.policies.summary import Updated
from cavia.paper.schema import CellResult, Claim, PathRow, Paths, Row, Summary
from cavia.paper.showing import cell, curve, lines, table
from cavia.paper.statistics import Scores, above, at_rates, difference, estimate, text


def summary(settings: ExplorationSettings, results: list[CellResult]) -> Summary:
    """Returns with sparse reward after 0, 1, … updates: each method at its best learning rates by validation."""
    methods: dict[str, Updated] = {}
    for name in settings.methods:
        tried = [Updated(group) for group in at_rates(results, name).values()]
        if tried:
            methods[name] = max(tried, key=lambda one: one.validated)
    updates = range(settings.updates + 1)
    rows: list[Row] = [
        {"label": name, "cells": [cell(method.after(n), None, 1, method.note) for n in updates]}
        for name, method in methods.items()
    ]
    reached: list[Row] = [
        {"label": name, "cells": [cell(_reached(method, n), None, 0, unit=100.0) for n in updates]}
        for name, method in methods.items()
    ]
    counts = f"{settings.test_tasks} unseen goals, {settings.test_rollouts} episodes per goal before each update"
    caption = f"Return with reward only within {settings.disk:g} of the goal; {counts}."
    share = f"Goals reached in at least one of {settings.test_rollouts} episodes (%)."
    series = [curve(name, updates, [estimate(one.after(n)) for n in updates]) for name, one in methods.items()]
    columns = [str(n) for n in updates]
    return {
        "tables": [
            table(caption, "return", 1, "Updates", columns, rows, higher=True),
            table(share, "goals, %", 0, "Updates", columns, reached, higher=True),
        ],
        "figures": [lines("exploration", caption, ("updates", "return"), series), *_paths(settings, methods)],
        "claims": [*_claims(methods, settings.updates)],
    }


def _reached(method: Updated, update: int) -> Scores:
    """Whether any episode reached the goal's disk, 0 or 1 [seeds, tasks]: only there is reward."""
    return (method.after(update) > 0).astype(float)


def _paths(settings: ExplorationSettings, methods: dict[str, Updated]) -> Iterator[Paths]:
    shown = sorted({0, 1, settings.updates})
    rows: list[PathRow] = []
    for name, method in methods.items():
        paths = method.group[0].probes["paths"]
        panels = [
            {"goal": paths["goal"], "radius": settings.disk, "paths": paths[method.later][update]} for update in shown
        ]
        rows.append({"label": name, "panels": panels})  # type: ignore[typeddict-item]
    if rows:
        yield {
            "name": "exploration-paths", "kind": "paths", "x_label": "", "y_label": "",
            "caption": "Episodes with an unseen goal, from the dot; only the disk gives reward. Seed 0.",
            "columns": ["before" if n == 0 else f"{n} update{'s' * (n > 1)}" for n in shown], "rows": rows,
        }  # fmt: skip


def _claims(methods: dict[str, Updated], updates: int) -> Iterator[Claim]:
    for rival in (CAVIA, MAML, EMAML):
        if SAMPLED in methods and rival in methods:
            gaps = [difference(methods[SAMPLED].after(n), methods[rival].after(n)) for n in range(1, updates + 1)]
            yield {
                "claim": f"Exploring by sampled contexts beats {rival}'s action noise: its return is higher after "
                "every number of updates.",
                "holds": all(map(above, gaps)),
                "evidence": f"sampled context − {rival} after 1, 2, … updates: {', '.join(text(g, 1) for g in gaps)}",
            }
    for rival in (CAVIA, MAML, EMAML):
        if SAMPLED in methods and rival in methods:
            gap = difference(_reached(methods[SAMPLED], 0), _reached(methods[rival], 0))
            yield {
                "claim": f"Before any update, CAVIA with sampled contexts reaches more goals than {rival}.",
                "holds": above(gap),
                "evidence": f"share of goals reached, sampled context − {rival}: {text(gap, 2)}",
            }
    if {EMAML, MAML} <= methods.keys():
        gaps = [difference(methods[EMAML].after(n), methods[MAML].after(n)) for n in range(1, updates + 1)]
        yield {
            "claim": "Credit for exploration pays off: E-MAML's return is above MAML's after every number of updates.",
            "holds": all(map(above, gaps)),
            "evidence": f"E-MAML − MAML after 1, 2, … updates: {', '.join(text(gap, 1) for gap in gaps)}",
        }

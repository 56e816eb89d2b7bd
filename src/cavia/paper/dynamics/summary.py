"""Summary of the experiment on dynamical systems, by the rules of results/claims.md."""

from collections.abc import Iterator
from typing import Any

from cavia.paper.dynamics.training import CAVIA, KINDS, NEWTON, DynamicsSettings
from cavia.paper.meaning import meaning
from cavia.paper.published import DYNAMICS
from cavia.paper.schema import (
    CellResult,
    Claim,
    CurvePanel,
    Curves,
    PortraitPanel,
    Portraits,
    ResultTable,
    Row,
    Scatter,
    Summary,
    TableCell,
)
from cavia.paper.showing import cell, plane, several, table
from cavia.paper.statistics import below, difference, grouped, scores, text

MEASURES = ("in-domain", "adapted")
UNIT = 1e5
MOST_MINUTES = 30.0
AXES = {"Lotka–Volterra": (0, 1, "prey", "predators"), "glycolysis": (0, 5, "S₁", "S₆")}  # the two states to draw
Groups = dict[tuple[str, str], list[CellResult]]  # (systems, method) → one per seed


def summary(settings: DynamicsSettings, results: list[CellResult]) -> Summary:
    groups: Groups = grouped(results, lambda one: (one["systems"], one["method"]))
    columns = [(systems, measure) for systems in settings.systems for measure in MEASURES]
    steps = {
        NEWTON: several(settings.newton_steps, "step"),
        CAVIA: f"{several(settings.gradient_steps, 'step')}, learned rates",
    }
    rows: list[Row] = [
        {"label": f"{method}, {steps[method]}", "cells": [_cell(groups, method, *column) for column in columns]}
        for method in settings.methods
    ]
    rows += [
        {"label": f"{name}, quoted", "cells": [_quoted(known.get(column)) for column in columns]}
        for name, known in DYNAMICS.items()
    ]
    caption = (
        f"MSE of whole trajectories, in units of 10⁻⁵; {settings.test_trajectories} unseen trajectories per system. "
        "In-domain: training systems, adapted to their known trajectories. Adapted: new systems, adapted to one "
        "trajectory each. Rows marked “quoted” are published results of others, on less exact trajectories; we have "
        "not checked them."
    )
    names = [f"{systems}, {measure}" for systems, measure in columns]
    ours = {systems: groups[systems, NEWTON] for systems in settings.systems if (systems, NEWTON) in groups}
    return {
        "tables": [
            {**table(caption, "MSE × 10⁵", 1, "Systems", names, rows), "theirs": "published"},
            *(each for systems in settings.systems for each in _meaning(settings, groups, systems)),
        ],
        "figures": [figure for systems, group in ours.items() for figure in _figures(systems, group[0])],
        "claims": [*_error_claims(settings, groups), *_context_claims(ours)],
    }


def _cell(groups: Groups, method: str, systems: str, measure: str) -> TableCell | None:
    group = groups.get((systems, method), [])
    if not group:
        return None
    minutes = sum(one.seconds for one in group) / len(group) / 60
    return cell(scores(group, measure), None, 1, f"{minutes:.1f} CPU minutes per seed", unit=UNIT)


def _meaning(settings: DynamicsSettings, groups: Groups, systems: str) -> Iterator[ResultTable]:
    trained = {method: groups[systems, method] for method in settings.methods if (systems, method) in groups}
    yield from meaning(trained, f" for {systems} ({settings.probes} random systems, adapted to one trajectory each)")


def _quoted(known: float | None) -> TableCell | None:
    return {"ours": None, "paper": {"mean": UNIT * known, "interval": None}} if known else None


# Claims


def _error_claims(settings: DynamicsSettings, groups: Groups) -> Iterator[Claim]:
    for systems in settings.systems:
        ours, rival = groups.get((systems, NEWTON), []), groups.get((systems, CAVIA), [])
        if not ours:
            continue
        errors = {measure: scores(ours, measure) for measure in MEASURES}
        limits = KINDS[systems].limits
        yield {
            "claim": f"{systems}: {NEWTON}'s error is at most {limits[0]:.1e} in-domain and {limits[1]:.1e} adapted.",
            "holds": all(errors[m].mean() <= limit for m, limit in zip(MEASURES, limits, strict=True)),
            "evidence": "; ".join(f"{m}: {_small(errors[m].mean(1).tolist())} by seed" for m in MEASURES),
        }
        minutes = [one.seconds / 60 for one in (*ours, *rival)]
        yield {
            "claim": f"{systems}: every training run takes at most {MOST_MINUTES:g} CPU minutes on one core.",
            "holds": max(minutes) <= MOST_MINUTES,
            "evidence": ", ".join(f"{value:.1f}" for value in minutes),
        }
        if rival:
            gaps = {m: difference(UNIT * errors[m], UNIT * scores(rival, m)) for m in MEASURES}
            yield {
                "claim": f"{systems}: {NEWTON}'s error is below that of CAVIA with gradient steps.",
                "holds": all(below(gap) for gap in gaps.values()),
                "evidence": "; ".join(f"{m}: {text(gap, 2)} × 10⁻⁵" for m, gap in gaps.items()),
            }


def _context_claims(ours: dict[str, list[CellResult]]) -> Iterator[Claim]:
    for systems, group in ours.items():
        least = KINDS[systems].least_r2
        if not all("non-linear" in one.probes for one in group):
            words = f"{systems}: the context encodes the parameters of a new system, and nothing else."
            yield {"claim": words, "holds": False, "evidence": "some contexts are not finite"}
            continue
        decoded = [min(one.probes["non-linear"].values()) for one in group]
        yield {
            "claim": f"{systems}: the parameters of a new system can be decoded from its context (R² above {least:g} "
            "for each, out of sample, for every seed).",
            "holds": min(decoded) > least,
            "evidence": "; ".join(
                f"seed {one['seed']}: {_r2(one.probes['non-linear'])}; by a linear map {_r2(one.probes['linear'])}"
                for one in group
            ),
        }
        of_context = [min(one.probes["of context"]) for one in group]
        yield {
            "claim": f"{systems}: the context encodes nothing else (each of its numbers can be predicted from the "
            f"parameters, R² above {least:g}, for every seed).",
            "holds": min(of_context) > least,
            "evidence": "; ".join(
                f"seed {one['seed']}: {', '.join(f'{v:.3f}' for v in one.probes['of context'])}; R² of the "
                f"initial state decoded from it: at most {max(0.0, *one.probes['start']):.2f}"
                for one in group
            ),
        }


def _r2(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def _small(values: list[float]) -> str:
    return ", ".join(f"{value:.2e}" for value in values)


# Figures


def _figures(systems: str, one: CellResult) -> Iterator[Portraits | Curves | Scatter]:
    slug = {"Lotka–Volterra": "lotka-volterra"}.get(systems, systems)
    first, second, x_label, y_label = AXES[systems]
    panels: list[PortraitPanel] = [
        {
            "title": panel["title"],
            **{key: [[s[first], s[second]] for s in panel[key]] for key in ("truth", "before", "after", "known")},  # type: ignore[typeddict-item]
        }
        for panel in one.probes["portraits"]
    ]
    yield {
        "name": f"dynamics-{slug}", "kind": "portraits", "x_label": x_label, "y_label": y_label,
        "caption": f"{systems}: phase portraits of the same systems. One trajectory is known (dots); another is "
        "predicted from its initial state, before and after adapting to the first.",
        "panels": panels,
    }  # fmt: skip
    yield {
        "name": f"dynamics-{slug}-time", "kind": "curves", "x_label": "time", "y_label": x_label,
        "caption": f"{systems}: trajectories of new systems, predicted from the initial state (dot), before and after "
        "adapting the context to another trajectory of the same system.",
        "panels": [_over_time(panel, first, KINDS[systems].family.dt) for panel in one.probes["portraits"][:3]],
    }  # fmt: skip
    if len(one.probes["context"][0]) == 2:
        caption = (
            f"{systems}: the two context parameters of {len(one.probes['context'])} systems, each adapted to one "
            f"trajectory, seed {one['seed']}."
        )
        points = one.probes["context"]
        yield plane(f"dynamics-{slug}-context", caption, points, one.probes["parameters"], "context parameter")


def _over_time(panel: dict[str, Any], state: int, dt: float) -> CurvePanel:
    paths = {key: [float(row[state]) for row in panel[key]] for key in ("truth", "before", "after")}
    times = [round(dt * i, 4) for i in range(len(paths["truth"]))]
    known = [[0.0, paths["truth"][0]]]
    return {"title": panel["title"], "x": times, "known": known, **paths}  # type: ignore[typeddict-item]

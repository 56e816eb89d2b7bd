"""What the sine experiments show: tables and figures from the results of their cells."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from cavia.evaluation.verdict import verdict
from cavia.experiments.base import Result, Settings
from cavia.experiments.seeds import by_rate, mean_over_seeds

PAPER_TABLE1: dict[tuple[str, int], tuple[float, float]] = {
    **{("CAVIA", n): (mean, 0.02) for n, mean in ((2, 0.21), (3, 0.20), (4, 0.19), (5, 0.19), (50, 0.19))},
    ("CAVIA", 1): (0.84, 0.06),
    **{
        ("MAML", n): (mean, 0.02)
        for n, mean in ((0, 0.33), (1, 0.29), (2, 0.24), (3, 0.24), (4, 0.23), (5, 0.23), (50, 0.23))
    },
}


def _best_rate(results: list[Result], method: str, context: int) -> list[Result]:
    """The results, one per seed, of the rate with the best mean validation score; rates that diverged are out."""
    groups = by_rate(results, method=method, context=context).values()
    return min(groups, key=lambda group: mean_over_seeds(r["validation"] for r in group), default=[])


def _at_step(group: list[Result], step: int) -> dict[str, float]:
    return {
        "mean": mean_over_seeds(r["mse"][step] for r in group),
        "interval": mean_over_seeds(r["interval"][step] for r in group),
    }


def _note(group: list[Result], step: int) -> str:
    scores = [r["mse"][step] for r in group if r["mse"][step] is not None]
    spread = f"; seeds {min(scores):.3f} to {max(scores):.3f}" if len(scores) > 1 else ""
    return f"inner rate {group[0]['inner_lr']:g}{spread}"


def table1_summary(settings: Settings, results: list[Result]) -> Result:
    def cell(method: str, context: int) -> Result | None:
        group = _best_rate(results, method, context)
        paper = PAPER_TABLE1.get((method, context))
        if not group:
            return None
        ours = _at_step(group, 1)
        return {
            "ours": ours,
            "paper": None if paper is None else {"mean": paper[0], "interval": paper[1]},
            "verdict": paper and verdict(ours["mean"], ours["interval"], *paper, higher_is_better=False, digits=2),
            "note": _note(group, 1),
        }

    rows: list[Result] = [
        {"label": m, "cells": [cell(m, context) for context in settings.contexts]} for m in ("CAVIA", "MAML")
    ]
    pairs = [
        (size, c["ours"]["mean"], m["ours"]["mean"])
        for size, c, m in zip(settings.contexts, rows[0]["cells"], rows[1]["cells"], strict=True)
        if c and m and size >= 2
    ]
    claim = {
        "claim": "With two or more parameters, CAVIA's error is below that of MAML with as many extra inputs.",
        "holds": bool(pairs) and all(ours < theirs for _, ours, theirs in pairs),
        "evidence": ", ".join(f"{size}: {ours:.3f} against {theirs:.3f}" for size, ours, theirs in pairs),
    }
    table = {
        "caption": "Test MSE after one gradient step, 95 % interval over tasks. MAML's inner rate is the best of "
        f"{', '.join(f'{rate:g}' for rate in settings.maml_lrs)} on validation tasks; CAVIA's is the paper's.",
        "metric": "MSE",
        "higher_is_better": False,
        "digits": 2,
        "column_title": "Number of additional input parameters",
        "columns": [str(size) for size in settings.contexts],
        "rows": rows,
    }
    return {"tables": [table], "claims": [claim]}


def steps_summary(settings: Settings, results: list[Result]) -> Result:
    """CAVIA, and MAML at each of its rates; the one that validates best after one step is the rival."""
    ours = _step_series(settings, _best_rate(results, "CAVIA", settings.context))
    chosen = _best_rate(results, "MAML", settings.context)
    rival = _step_series(settings, chosen)
    others = [
        _step_series(settings, _best_rate([r for r in results if r["inner_lr"] == rate], "MAML", settings.context))
        for rate in settings.maml_lrs
        if chosen and rate != chosen[0]["inner_lr"]
    ]
    figure = {
        "name": "fig3a",
        "caption": f"Test MSE after several gradient steps on the same {settings.support} points; trained for one. "
        "MAML's rates in the order of the legend, first the one that validates best after one step. A cross at the "
        f"top: more than {BEYOND} times the error before any step.",
        "kind": "lines",
        "x_label": "gradient steps",
        "y_label": "MSE",
        "x_scale": "linear",
        "y_scale": "log",
        "series": [one for one in (ours, rival, *others) if one["x"]],
    }
    return {"figures": [figure], "claims": _step_claims(ours, rival, others)}


BEYOND = 10  # times the error before any step: off the scale


def _step_series(settings: Settings, group: list[Result]) -> Result:
    """The error after each number of steps; null where it is off the scale."""
    points = [_at_step(group, step) for step in range(settings.steps + 1)] if group else []
    seen = [point["mean"] <= BEYOND * points[0]["mean"] for point in points]
    return {
        "label": f"{group[0]['method']} (inner rate {group[0]['inner_lr']:g})" if group else "",
        "x": list(range(len(points))),
        "y": [point["mean"] if ok else None for point, ok in zip(points, seen, strict=True)],
        "interval": [point["interval"] if ok else None for point, ok in zip(points, seen, strict=True)],
    }


def _step_claims(ours: Result, rival: Result, others: list[Result]) -> list[Result]:
    def listed(one: Result) -> str:
        return ", ".join("off the scale" if value is None else f"{value:.4f}" for value in one["y"])

    def rises(one: Result) -> list[int]:
        pairs = pairwise(math.inf if value is None else value for value in one["y"])
        return [step for step, (before, after) in enumerate(pairs, 1) if after > before or after == math.inf]

    above = [
        step
        for step, (a, b) in enumerate(zip(ours["y"], rival["y"], strict=False))
        if step and a is not None and b is not None and a >= b
    ]
    unstable = [one for one in (rival, *others) if rises(one)]
    return [
        {
            "claim": "CAVIA's error falls with every gradient step.",
            "holds": bool(ours["y"]) and not rises(ours),
            "evidence": listed(ours) + (f"; rises at steps {rises(ours)}" if rises(ours) else ""),
        },
        {
            "claim": "CAVIA stays below MAML, at MAML's best rate, at every number of steps from one on.",
            "holds": bool(rival["y"]) and not above,
            "evidence": f"{rival['label']}: {listed(rival)}"
            + (f"; CAVIA is not below at steps {above}" if above else ""),
        },
        {
            "claim": "MAML is less stable: at some of its rates the error rises with more steps.",
            "holds": bool(unstable),
            "evidence": "; ".join(f"{one['label']}: {listed(one)}" for one in unstable) or "it rises at none",
        },
    ]


def _by_rate(settings: Settings, results: list[Result], method: str, key: Callable[[Result], float]) -> list[Any]:
    """The mean over seeds of key(result) at each rate; None where a seed diverged."""
    values: list[float | None] = []
    for rate in settings.rates:
        group = [r for r in results if r["method"] == method and r["inner_lr"] == rate]
        lost = not group or any("diverged" in r for r in group)
        values.append(None if lost else mean_over_seeds(key(r) for r in group))
    return values


def rates_summary(settings: Settings, results: list[Result]) -> Result:
    series = [
        {
            "label": method,
            "x": list(settings.rates),
            "y": _by_rate(settings, results, method, lambda r: r["mse"][1]),
            "interval": _by_rate(settings, results, method, lambda r: r["interval"][1]),
        }
        for method in dict.fromkeys(r["method"] for r in results)
    ]

    def good(one: Result) -> list[str]:
        """The rates at which a method is within twice its own best error."""
        best = min((y for y in one["y"] if y is not None), default=0.0)
        return [f"{x:g}" for x, y in zip(one["x"], one["y"], strict=True) if y is not None and y <= 2 * best]

    def evidence(one: Result) -> str:
        errors = ", ".join("diverged" if y is None else f"{y:.3g}" for y in one["y"])
        return f"within twice its best error at {', '.join(good(one))}; errors from the smallest rate on: {errors}"

    ours, *others = series
    claims = [
        {
            "claim": "CAVIA is robust to the inner rate: its error stays within twice its best over the whole range.",
            "holds": len(good(ours)) == len(settings.rates),
            "evidence": evidence(ours),
        }
    ]
    claims += [
        {
            "claim": f"{other['label']} performs well in a smaller range.",
            "holds": len(good(other)) < len(good(ours)),
            "evidence": evidence(other),
        }
        for other in others
    ]
    figure = {
        "name": "fig3b",
        "caption": "Test MSE after training with different inner learning rates. A cross at the top: it diverged.",
        "kind": "lines",
        "x_label": "inner learning rate",
        "y_label": "MSE",
        "x_scale": "log",
        "y_scale": "log",
        "series": series,
    }
    return {"figures": [figure], "claims": claims}


def norms_summary(settings: Settings, results: list[Result]) -> Result:
    norms = _by_rate(settings, results, "CAVIA", lambda r: r["norm"])
    known = [value for value in norms if value is not None]
    claim = {
        "claim": "The smaller the inner rate, the larger the gradient of the context.",
        "holds": len(known) > 1 and all(a > b for a, b in pairwise(known)),
        "evidence": ", ".join(
            f"{rate:g}: {'diverged' if norm is None else f'{norm:.3g}'}"
            for rate, norm in zip(settings.rates, norms, strict=True)
        ),
    }
    figure = {
        "name": "fig3c",
        "caption": "Norm of the context's gradient before adaptation, median over test tasks.",
        "kind": "lines",
        "x_label": "inner learning rate",
        "y_label": "norm of the context gradient",
        "x_scale": "log",
        "y_scale": "log",
        "series": [{"label": "CAVIA", "x": list(settings.rates), "y": norms, "interval": None}],
    }
    return {"figures": [figure], "claims": [claim]}


def embedding_summary(settings: Settings, results: list[Result]) -> Result:
    first = results[0]
    if "diverged" in first:
        return {"claims": [{"claim": "The embedding is smooth.", "holds": False, "evidence": first["diverged"]}]}
    x, y = ([round(point[axis], 5) for point in first["context"]] for axis in (0, 1))
    panels = [
        {"title": name, "x": x, "y": y, "colour": [round(v, 5) for v in first[name]], "colour_label": name}
        for name in ("amplitude", "phase")
    ]
    claim = {
        "claim": "The embedding is smooth: tasks that are near in context have near amplitudes and phases.",
        "holds": min(first["r2_amplitude"], first["r2_phase"]) > 0.8,
        "evidence": f"R² of a task's value predicted by its 5 nearest neighbours: amplitude "
        f"{first['r2_amplitude']:.3f}, phase {first['r2_phase']:.3f}",
    }
    figure = {
        "name": "fig4",
        "caption": f"The two context parameters of {len(x)} test tasks after {settings.steps} gradient steps.",
        "kind": "scatter",
        "x_label": "context parameter 1",
        "y_label": "context parameter 2",
        "panels": panels,
    }
    return {"figures": [figure], "claims": [claim]}

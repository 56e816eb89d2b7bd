"""What the experiments with policies show: tables and figures from the results of their cells."""

import math
from typing import Any

from cavia.errors import CaviaError
from cavia.experiments.base import Result, Settings
from cavia.experiments.curves import curve, x_label
from cavia.experiments.seeds import by_rate, mean_over_seeds

ACTIONS = {"sampled": "sampled actions", "mean": "mean actions"}
KEPT = 0.8  # of its best gain: what a rate must keep to count as good


def _best_rate(results: list[Result], method: str) -> list[Result]:
    """The results of the rate with the best mean return on the validation tasks."""
    groups = by_rate(results, method=method).values()
    return max(groups, key=lambda group: mean_over_seeds((r["validation"] for r in group), -math.inf), default=[])


def _at(group: list[Result], measure: str, update: int) -> dict[str, float]:
    """Mean over seeds of the mean return (or "gain") after so many updates, and of its interval."""
    return {
        "mean": mean_over_seeds((one[measure][update] for one in group), -math.inf),
        "interval": mean_over_seeds(one[f"{measure}_interval"][update] for one in group),
    }


def _series(group: list[Result], actions: str, updates: int) -> Result:
    points = [_at(group, actions, update) for update in range(updates + 1)]
    return {
        "label": f"{group[0]['method']}, {ACTIONS[actions]}",
        "x": list(range(updates + 1)),
        "y": [point["mean"] for point in points],
        "interval": [point["interval"] for point in points],
    }


def updates_summary(settings: Settings, results: list[Result], name: str, cavia_is_above: bool) -> Result:
    """Returns after 0, 1, … updates: each method at its best rate, with random and with mean actions.

    cavia_is_above: what the paper says of the returns after one update; else that they are on a par.
    """
    if any("sampled" in one and "gain" not in one for one in results):
        raise CaviaError(
            "the cells were measured by an older cavia, without gains; delete cells/*/result.json in the run folder "
            "and run the same command again (nothing is trained again)"
        )
    methods = dict.fromkeys(result["method"] for result in results)
    groups = [group for method in methods if (group := _best_rate(results, method))]
    rows = [
        {"label": f"{group[0]['method']}, {ACTIONS[actions]}", "cells": _cells(group, actions, settings.updates)}
        for group in groups
        for actions in ACTIONS
    ]
    table = {
        "caption": f"Return on {settings.test_tasks} test tasks, 95 % interval over tasks; {settings.test_rollouts} "
        "episodes of each task before each update.",
        "metric": "return",
        "higher_is_better": True,
        "digits": 1,
        "column_title": "Updates",
        "columns": [str(update) for update in range(settings.updates + 1)],
        "rows": rows,
    }
    figures = [
        {
            "name": name,
            "caption": f"Return on {settings.test_tasks} unseen tasks after several updates; trained for one.",
            "kind": "lines",
            "x_label": "updates",
            "y_label": "return",
            "x_scale": "linear",
            "y_scale": "linear",
            "series": [_series(group, actions, settings.updates) for group in groups for actions in ACTIONS],
        },
        {
            "name": f"{name}-training",
            "caption": "Return on validation tasks after one update, while training.",
            "kind": "lines",
            "x_label": x_label(settings),
            "y_label": "return",
            "x_scale": "linear",
            "y_scale": "linear",
            "series": [curve(one, f"{one['method']}, seed {one['seed']}", settings) for g in groups for one in g],
        },
    ]
    return {
        "tables": [table],
        "figures": figures,
        "claims": [*map(_pays, groups), *_comparison(groups, cavia_is_above)],
    }


def _cells(group: list[Result], actions: str, updates: int) -> list[Result]:
    def note(update: int) -> str:
        scores = [one[actions][update] for one in group if one[actions][update] is not None]
        spread = f"; seeds {min(scores):.1f} to {max(scores):.1f}" if len(scores) > 1 else ""
        return f"inner rate {group[0]['inner_lr']:g}{spread}"

    return [{"ours": _at(group, actions, n), "paper": None, "note": note(n)} for n in range(updates + 1)]


def _pays(group: list[Result]) -> Result:
    before, after, gain = _at(group, "sampled", 0), _at(group, "sampled", 1), _at(group, "gain", 1)
    return {
        "claim": f"One update of {group[0]['method']} pays: the interval of what the tasks gain is above zero.",
        "holds": gain["mean"] > gain["interval"],
        "evidence": f"{_text(before)} before, {_text(after)} after; gain, task by task, {_text(gain)}",
    }


def _comparison(groups: list[list[Result]], cavia_is_above: bool) -> list[Result]:
    after_one = {group[0]["method"]: _at(group, "sampled", 1) for group in groups}
    if not {"CAVIA", "MAML"} <= after_one.keys():
        return []
    ours, theirs = after_one["CAVIA"], after_one["MAML"]
    above = ours["mean"] > theirs["mean"]
    par = abs(ours["mean"] - theirs["mean"]) <= ours["interval"] + theirs["interval"]
    return [
        {
            "claim": "After one update CAVIA's mean return is above MAML's."
            if cavia_is_above
            else "After one update CAVIA and MAML are on a par: their intervals meet.",
            "holds": above if cavia_is_above else par,
            "evidence": f"CAVIA {_text(ours)}, MAML {_text(theirs)}",
        }
    ]


def _text(estimate: dict[str, float]) -> str:
    return f"{estimate['mean']:.1f} ± {estimate['interval']:.1f}"


def rates_summary(settings: Settings, results: list[Result]) -> Result:
    """Return after the last update for every inner rate."""
    series: list[Result] = []
    good: dict[str, list[float]] = {}
    for method in ("CAVIA", "MAML"):
        groups = by_rate(results, method=method)
        points = [_at(groups[rate], "sampled", settings.updates) if rate in groups else None for rate in settings.rates]
        series.append(
            {
                "label": method,
                "x": list(settings.rates),
                "y": [point and point["mean"] for point in points],
                "interval": [point and point["interval"] for point in points],
            }
        )
        starts = [_at(group, "sampled", 0)["mean"] for group in groups.values()]
        good[method] = _good(settings.rates, series[-1]["y"], max(starts, default=0.0))
    evidence = "; ".join(f"{one['label']}: {_listed(one)}" for one in series)
    rule = f"keeps {KEPT:.0%} of its best gain over the return before any update"
    claims = [
        {
            "claim": f"CAVIA is robust to the inner rate: it {rule} at every rate.",
            "holds": len(good["CAVIA"]) == len(settings.rates),
            "evidence": f"at {', '.join(f'{rate:g}' for rate in good['CAVIA']) or 'none'}; {evidence}",
        },
        {
            "claim": "MAML does so at fewer rates.",
            "holds": len(good["MAML"]) < len(good["CAVIA"]),
            "evidence": f"at {', '.join(f'{rate:g}' for rate in good['MAML']) or 'none'}",
        },
    ]
    figure = {
        "name": "fig7b",
        "caption": f"Return after {settings.updates} updates with sampled actions, for policies trained with different "
        "inner learning rates. A cross: it diverged.",
        "kind": "lines",
        "x_label": "inner learning rate",
        "y_label": "return",
        "x_scale": "log",
        "y_scale": "linear",
        "series": series,
    }
    return {"figures": [figure], "claims": claims}


def _good(rates: Any, scores: list[float | None], start: float) -> list[float]:
    """The rates whose gain over `start` is at least a share of the best gain."""
    best = max((score for score in scores if score is not None), default=start)
    least = start + KEPT * (best - start)
    return [rate for rate, score in zip(rates, scores, strict=True) if score is not None and score >= least]


def _listed(one: Result) -> str:
    return ", ".join("diverged" if y is None else f"{x:g} → {y:.1f}" for x, y in zip(one["x"], one["y"], strict=True))


def embedding_summary(settings: Settings, results: list[Result]) -> Result:
    first = results[0]
    claim = "The two context parameters are a linear map of the goal: R² above 0.8 for both coordinates."
    if "diverged" in first:
        return {"claims": [{"claim": claim, "holds": False, "evidence": first["diverged"]}]}
    x, y = ([round(point[axis], 5) for point in first["contexts"]] for axis in (0, 1))
    panels = [
        {"title": f"goal, {label}", "x": x, "y": y, "colour": [round(g[axis], 4) for g in first["goals"]],
         "colour_label": label}
        for axis, label in ((0, "x"), (1, "y"))
    ]  # fmt: skip
    figure = {
        "name": "fig7c",
        "caption": f"The two context parameters of {len(x)} test tasks after {settings.updates} updates, coloured by "
        "the position of the goal.",
        "kind": "scatter",
        "x_label": "context parameter 1",
        "y_label": "context parameter 2",
        "panels": panels,
    }
    evidence = "; ".join(
        f"seed {one['seed']}: R² {one['r2'][0]:.3f} (x), {one['r2'][1]:.3f} (y)" for one in results if "r2" in one
    )
    holds = all("r2" in one and min(one["r2"]) > 0.8 for one in results)
    return {"figures": [figure], "claims": [{"claim": claim, "holds": holds, "evidence": evidence}]}

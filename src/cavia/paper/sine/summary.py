"""Summaries of the sine experiments, by the rules of results/claims.md."""

from collections.abc import Iterator
from itertools import pairwise

from cavia.paper.meaning import meaning
from cavia.paper.published import TABLE1
from cavia.paper.schema import CellResult, Claim, CurvePanel, Curves, Row, Series, Summary
from cavia.paper.showing import cell, curve, curve_over_rates, lines, planes, several, table
from cavia.paper.sine.training import EmbeddingSettings, RatesSettings, StepsSettings, Table1Settings
from cavia.paper.statistics import at_rates, below, best, difference, estimate, scores, text

MSE = "mse"
BEYOND = 10  # times the error before any step counts as off the scale
SMOOTH = 0.8  # R²
WITHIN = (1.5, 2.0)  # times its best error: limits of good performance; the second is from our first version


def table1_summary(settings: Table1Settings, results: list[CellResult]) -> Summary:
    groups = {
        (method, size): best(at_rates(results, method, context=size).values())
        for method in ("CAVIA", "MAML")
        for size in settings.contexts
    }

    def shown(method: str, size: int):  # type: ignore[no-untyped-def]
        group = groups[method, size]
        note = f"inner rate {group[0]['inner_lr']:g}" if group else ""
        return cell(scores(group, MSE, 1), TABLE1.get((method, size)), 2, note)

    rows: list[Row] = [
        {"label": method, "cells": [shown(method, size) for size in settings.contexts]} for method in ("CAVIA", "MAML")
    ]
    gaps = {
        size: difference(scores(groups["CAVIA", size], MSE, 1), scores(groups["MAML", size], MSE, 1))
        if groups["CAVIA", size] and groups["MAML", size]
        else None
        for size in settings.contexts
        if size >= 2
    }
    listed = (f"{size}: {'diverged' if gap is None else text(gap, 3)}" for size, gap in gaps.items())
    claim: Claim = {
        "claim": "With two or more context parameters, CAVIA's error is below that of MAML with as many extra inputs.",
        "holds": bool(gaps) and all(gap is not None and below(gap) for gap in gaps.values()),
        "evidence": "CAVIA − MAML on the same tasks: " + ", ".join(listed),
    }
    rates = ", ".join(f"{rate:g}" for rate in settings.maml_lrs)
    tuned = f"the best of {rates} on validation tasks" if len(settings.maml_lrs) > 1 else rates
    caption = f"Test MSE after one gradient step. MAML's inner rate is {tuned}; CAVIA's is the paper's, 1."
    columns = [str(size) for size in settings.contexts]
    few = [groups["CAVIA", size] for size in settings.contexts if 2 <= size <= 5]
    fitted = [group[0] for group in few if group and "curves" in group[0].probes]
    return {
        "tables": [table(caption, "MSE", 2, "Number of additional input parameters", columns, rows)],
        "figures": [_curves(one) for one in fitted[-1:]],
        "claims": [claim],
    }


def _curves(one: CellResult) -> Curves:
    """Some test curves and their fits."""
    panels: list[CurvePanel] = [
        {"title": f"unseen curve {number}", **curve}  # type: ignore[typeddict-item]  # as it was measured
        for number, curve in enumerate(one.probes["curves"], 1)
    ]
    caption = (
        f"CAVIA with {one['context']} context parameters on unseen curves: ten known points, and predictions before "
        "and after one gradient step on the context."
    )
    return {
        "name": "table1-curves", "caption": caption, "kind": "curves", "x_label": "x", "y_label": "y", "panels": panels,
    }  # fmt: skip


# Figure 3a


def steps_summary(settings: StepsSettings, results: list[CellResult]) -> Summary:
    """CAVIA, and MAML at each of its rates; the best by validation after one step is the rival."""
    of_maml = list(at_rates(results, "MAML").values())
    ours, rival = best(at_rates(results, "CAVIA").values()), best(of_maml)
    groups = [group for group in (ours, rival, *(group for group in of_maml if group is not rival)) if group]
    caption = (
        f"Test MSE by number of gradient steps on the same {settings.support} points; training used one step. "
        + ("MAML's first curve has the inner rate that is best on validation tasks. " if len(of_maml) > 1 else "")
        + f"A cross at the top marks an error more than {BEYOND} times that before the first step."
    )
    series = [_step_series(settings, group) for group in groups]
    figure = lines("fig3a", caption, ("gradient steps", "MSE"), series, y_scale="log")
    return {"figures": [figure], "claims": _step_claims(settings, ours, rival) if ours and rival else []}


def _step_series(settings: StepsSettings, group: list[CellResult]) -> Series:
    """The error after each number of steps; null where it is off the scale."""
    points = [estimate(scores(group, MSE, step)) for step in range(settings.steps + 1)]
    seen = [point if point["mean"] <= BEYOND * points[0]["mean"] else None for point in points]
    return curve(f"{group[0]['method']} (inner rate {group[0]['inner_lr']:g})", range(len(points)), seen)


def _step_claims(settings: StepsSettings, ours: list[CellResult], rival: list[CellResult]) -> list[Claim]:
    steps = range(settings.steps + 1)
    means = {which[0]["method"]: [estimate(scores(which, MSE, n))["mean"] for n in steps] for which in (ours, rival)}
    rises = {
        method: [step for step, (a, b) in enumerate(pairwise(values), 1) if not b < a]
        for method, values in means.items()
    }
    listed = {method: ", ".join(f"{value:.4g}" for value in values) for method, values in means.items()}
    gaps = {n: difference(scores(ours, MSE, n), scores(rival, MSE, n)) for n in steps if n}
    not_below = [step for step, gap in gaps.items() if not below(gap)]
    rate = f"MAML's rate {rival[0]['inner_lr']:g}"

    def where(steps: list[int], what: str) -> str:
        return f"; {what} at step{'s' * (len(steps) > 1)} {', '.join(map(str, steps))}" if steps else ""

    return [
        {
            "claim": "CAVIA's error falls with every gradient step.",
            "holds": not rises["CAVIA"],
            "evidence": listed["CAVIA"] + where(rises["CAVIA"], "rises"),
        },
        {
            "claim": f"CAVIA's error is below MAML's after every number of steps from 1 to {settings.steps}.",
            "holds": not not_below,
            "evidence": f"{rate}; CAVIA − MAML: {', '.join(text(gap, 4) for gap in gaps.values())}"
            + where(not_below, "not below"),
        },
        {
            "claim": "MAML is less stable: its error rises at some step.",
            "holds": bool(rises["MAML"]),
            "evidence": f"{rate}: {listed['MAML']}" + where(rises["MAML"], "rises"),
        },
    ]


# Figures 3b and 3c


def rates_summary(settings: RatesSettings, results: list[CellResult]) -> Summary:
    series = [
        curve_over_rates(results, method, settings.rates, lambda group: scores(group, MSE, 1))
        for method in dict.fromkeys(one["method"] for one in results)
    ]
    claims = [claim for factor in WITHIN for claim in _rates_claims(series, factor)]
    caption = "Test MSE of models trained with different inner learning rates. A cross at the top marks divergence."
    labels = ("inner learning rate", "MSE")
    return {"figures": [lines("fig3b", caption, labels, series, "log", "log")], "claims": claims}


def _rates_claims(series: list[Series], factor: float) -> Iterator[Claim]:
    """At how many rates CAVIA, then each other method, is within `factor` times its own best error."""
    rule, of_cavia, of_maml = f"error within {factor:g} times its best", 0, 0
    for one in series:
        least = min((y for y in one["y"] if y is not None), default=0.0)
        good = [x for x, y in zip(one["x"], one["y"], strict=True) if y is not None and y <= factor * least]
        errors = ", ".join("diverged" if y is None else f"{y:.3g}" for y in one["y"])  # from the smallest rate on
        listed = ", ".join(f"{rate:g}" for rate in good) or "no rate"
        evidence = f"at {listed}; errors from the smallest rate up: {errors}"
        if one is series[0]:
            of_cavia = len(good)
            claim = f"CAVIA is robust to the inner rate: {rule} at every rate."
            yield {"claim": claim, "holds": of_cavia == len(one["x"]), "evidence": evidence}
        elif one["label"] == "MT-net":  # Lee & Choi's claim, beyond the paper
            claim = f"MT-net performs well ({rule}) at more rates than MAML."
            yield {"claim": claim, "holds": len(good) > of_maml, "evidence": evidence}
        else:
            of_maml = len(good) if one["label"] == "MAML" else of_maml
            claim = f"{one['label']}: performs well ({rule}) at fewer rates than CAVIA."
            yield {"claim": claim, "holds": len(good) < of_cavia, "evidence": evidence}


def norms_summary(settings: RatesSettings, results: list[CellResult]) -> Summary:
    groups = at_rates(results, "CAVIA")
    of_seeds = ([one.probes["norm"] for one in groups.get(rate, [])] for rate in settings.rates)
    norms = [sum(each) / len(each) if each and None not in each else None for each in of_seeds]
    known = [value for value in norms if value is not None]
    values = ("diverged" if norm is None else f"{norm:.3g}" for norm in norms)
    claim: Claim = {
        "claim": "The smaller the inner rate, the larger the context gradient.",
        "holds": 1 < len(known) == len(norms) and all(a > b for a, b in pairwise(known)),
        "evidence": ", ".join(f"{rate:g}: {value}" for rate, value in zip(settings.rates, values, strict=True)),
    }
    series: Series = {"label": "CAVIA", "x": list(settings.rates), "y": norms, "interval": None}
    caption = "Norm of the context gradient before adaptation: median over test tasks, mean over seeds."
    labels = ("inner learning rate", "norm of the context gradient")
    return {"figures": [lines("fig3c", caption, labels, [series], "log", "log")], "claims": [claim]}


# Figure 4


def embedding_summary(settings: EmbeddingSettings, results: list[CellResult]) -> Summary:
    trained = [one for one in results if not one.diverged]
    claim: Claim = {
        "claim": "The embedding is smooth: tasks with similar contexts have similar amplitudes and phases "
        f"(predicted from the five nearest contexts, R² above {SMOOTH:g} for every seed).",
        "holds": len(trained) == len(results) and all(min(one.probes["r2"].values()) > SMOOTH for one in trained),
        "evidence": "; ".join(
            f"seed {one['seed']}: amplitude {one.probes['r2']['amplitude']:.3f}, phase {one.probes['r2']['phase']:.3f}"
            for one in trained
        ),
    }
    after = several(settings.steps, "gradient step")
    colours = [{name: one.probes[name] for name in one.probes["r2"]} for one in trained]
    return {
        "tables": [*meaning({"": trained})],
        "figures": [*planes("fig4", after, trained, "context", colours)],
        "claims": [claim],
    }

"""Summaries of the policy experiments, by the rules of results/claims.md."""

import math

from cavia.paper.meaning import meaning
from cavia.paper.policies.training import EmbeddingSettings, RatesSettings, UpdatesSettings
from cavia.paper.schema import CellResult, Claim, Row, Series, Summary
from cavia.paper.showing import (
    cell,
    curve,
    curve_over_rates,
    iterations,
    learning_curves,
    lines,
    planes,
    several,
    table,
)
from cavia.paper.statistics import Scores, above, at_rates, below, best, difference, estimate, scores, text

ACTIONS = {"sampled": "sampled actions", "mean": "mean actions"}
SMALL = 2.0  # a difference of returns in navigation: a tenth of the gain by adaptation
LINEAR = 0.8  # R²
ALIGNED, APART = 0.9, 0.3  # |correlation| of a parameter with its coordinate, and with the other


class Updated:
    """The results of a method at its best inner rate and its best later rate, both chosen on validation tasks.

    two_tasks: the test tasks are copies of two, so the interval is over seeds only.
    """

    def __init__(self, group: list[CellResult], two_tasks: bool = False):
        self.group, self.two_tasks = group, two_tasks
        self.name = group[0]["method"]
        rates = [name.removeprefix("validation ") for name in group[0].scores if name.startswith("validation ")]
        validated = {rate: float(scores(group, f"validation {rate}", worst=-math.inf).mean()) for rate in rates}
        self.later = max(rates, key=lambda rate: validated[rate])
        self.validated = validated[self.later]
        self.note = f"inner rate {group[0]['inner_lr']:g}, × {self.later} after the first update; {iterations(group)}"

    def after(self, update: int, actions: str = "sampled") -> Scores:
        """Returns after `update` updates, [seeds, tasks]."""
        returns = scores(self.group, f"{actions} {self.later}", update, worst=-math.inf)
        return returns.mean(1, keepdims=True) if self.two_tasks else returns


def updates_summary(settings: UpdatesSettings, results: list[CellResult], name: str) -> Summary:
    """Returns after 0, 1, … updates: each method at its best rates, with random and with mean actions."""
    chosen = {
        method: best(groups.values(), higher_is_better=True)
        for method in settings.methods
        if (groups := at_rates(results, method))
    }
    two_tasks = name == "fig6a"
    methods = {method: Updated(group, two_tasks) for method, group in chosen.items()}
    updates = range(settings.updates + 1)
    rows: list[Row] = [
        {
            "label": f"{method.name}, {words}",
            "cells": [cell(method.after(n, actions), None, 1, method.note) for n in updates],
        }
        for method in methods.values()
        for actions, words in ACTIONS.items()
    ]
    caption = (
        f"Return on {settings.test_tasks} test tasks; {settings.test_rollouts} episodes per task before each update."
        + (" There are only two different tasks, both seen in training." if two_tasks else "")
    )
    series = [
        curve(f"{method.name}, {words}", updates, [estimate(method.after(n, actions)) for n in updates])
        for method in methods.values()
        for actions, words in ACTIONS.items()
    ]
    labels = ("updates", "return")
    over = "seeds" if two_tasks else "test tasks and seeds"
    curves = {f"{one['method']}, seed {one['seed']}": one for m in methods.values() for one in m.group}
    return {
        "tables": [table(caption, "return", 1, "Updates", [str(n) for n in updates], rows, higher=True, over=over)],
        "figures": [
            lines(name, "Return on test tasks by number of updates; training used one.", labels, series),
            learning_curves(
                f"{name}-training", "Validation return after one update, during training.", "return", curves
            ),
        ],
        "claims": [*map(_pays, methods.values()), *_comparison(methods, name, settings.updates)],
    }


def _pays(method: Updated) -> Claim:
    before, after = method.after(0), method.after(1)
    gain = estimate(after - before)
    return {
        "claim": f"One update improves {method.name}: the interval of the gain in return is above zero.",
        "holds": above(gain),
        "evidence": f"{text(estimate(before), 1)} before, {text(estimate(after), 1)} after; gain {text(gain, 1)}",
    }


def _comparison(methods: dict[str, Updated], name: str, updates: int) -> list[Claim]:
    if not {"CAVIA", "MAML"} <= methods.keys():
        return []
    gaps = [difference(methods["CAVIA"].after(n), methods["MAML"].after(n)) for n in range(updates + 1)]

    def claim(words: str, holds: bool, update: int) -> Claim:
        return {"claim": words, "holds": holds, "evidence": f"CAVIA − MAML on the same tasks: {text(gaps[update], 1)}"}

    def par(update: int) -> bool:
        gap = gaps[update]
        return math.isfinite(gap["mean"]) and (not (above(gap) or below(gap)) or abs(gap["mean"]) < SMALL)

    if name == "fig7a":
        counts = [n for n in (1, 2) if n <= updates]
        return [claim(f"After {several(n, 'update')} CAVIA and MAML are on a par.", par(n), n) for n in counts]
    claims = [claim("After one update CAVIA's return is above MAML's.", above(gaps[1]), 1)]
    if name == "fig6b" and updates >= 3:
        claims.append(claim("After three updates MAML has caught up.", not above(gaps[3]), 3))
    return claims


# Figure 7b


def rates_summary(settings: RatesSettings, results: list[CellResult]) -> Summary:
    """Return after the last update for every inner rate, each with its own later rate."""
    series = [
        curve_over_rates(results, method, settings.rates, lambda group: Updated(group).after(settings.updates))
        for method in ("CAVIA", "MAML")
    ]
    caption = (
        f"Return after {several(settings.updates, 'update')} with sampled actions, for policies trained with different "
        "inner learning rates. A cross marks divergence."
    )
    figure = lines("fig7b", caption, ("inner learning rate", "return"), series, x_scale="log")
    return {"figures": [figure], "claims": _rates_claims(*series)}


def _rates_claims(ours: Series, theirs: Series) -> list[Claim]:
    known = [[y for y in one["y"] if y is not None] for one in (ours, theirs)]
    ranges = [max(y) - min(y) if len(y) == len(ours["y"]) else math.inf for y in known]  # infinite if a rate diverged
    listed = [
        ", ".join("diverged" if y is None else f"{x:g} → {y:.1f}" for x, y in zip(one["x"], one["y"], strict=True))
        for one in (ours, theirs)
    ]
    top = max((y for y in ours["y"] if y is not None), default=0.0)
    near = [x for x, y in zip(theirs["x"], theirs["y"], strict=True) if y is not None and y >= top - SMALL]
    return [
        {
            "claim": "CAVIA is less sensitive to the inner rate: its returns span a smaller range than MAML's.",
            "holds": ranges[0] < ranges[1],
            "evidence": f"CAVIA: {listed[0]}; MAML: {listed[1]}",
        },
        {
            "claim": f"MAML is competitive (within {SMALL:g} of CAVIA's best return) only at rate 0.1.",
            "holds": near == [0.1],
            "evidence": f"at {', '.join(f'{rate:g}' for rate in near) or 'no rate'}; CAVIA's best return: {top:.1f}",
        },
    ]


# Figure 7c


def embedding_summary(settings: EmbeddingSettings, results: list[CellResult]) -> Summary:
    trained = [one for one in results if not one.diverged]
    alignments = {one["seed"]: _disentangled(one.probes["alignment"]) for one in trained}
    claims: list[Claim] = [
        {
            "claim": f"The goal can be decoded linearly from the context: R² above {LINEAR:g} for both coordinates, "
            "for every seed.",
            "holds": len(trained) == len(results) and all(min(one.probes["r2"]) > LINEAR for one in trained),
            "evidence": "; ".join(
                f"seed {one['seed']}: R² {one.probes['r2'][0]:.3f} (x), {one.probes['r2'][1]:.3f} (y)"
                for one in trained
            ),
        },
        {
            "claim": "The embedding is disentangled: each parameter correlates with one coordinate (|r| of at least "
            f"{ALIGNED:g}) and not with the other (|r| at most {APART:g}), for every seed.",
            "holds": len(trained) == len(results)
            and all(own >= ALIGNED and other <= APART for own, other in alignments.values()),
            "evidence": "; ".join(
                f"seed {seed}: |r| at least {own:.2f} with its own coordinate, at most {other:.2f} with the other"
                for seed, (own, other) in alignments.items()
            ),
        },
    ]
    goals = [zip(*one.probes["goals"], strict=True) for one in trained]
    colours = [{f"goal, {axis}": [*values] for axis, values in zip("xy", both, strict=True)} for both in goals]
    after = f"{several(settings.updates, 'update')}, coloured by goal position"
    return {
        "tables": [*meaning({"": trained})],
        "figures": [*planes("fig7c", after, trained, "contexts", colours)],
        "claims": claims,
    }


def _disentangled(correlations: list[list[float]]) -> tuple[float, float]:
    """The smallest |r| of a parameter with its own coordinate and the largest with the other, in the better order.

    correlations: [parameter][coordinate]
    """
    (a, b), (c, d) = [[abs(value) for value in row] for row in correlations]
    straight, crossed = (min(a, d), max(b, c)), (min(b, c), max(a, d))
    return max(straight, crossed)

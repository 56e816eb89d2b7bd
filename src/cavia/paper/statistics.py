"""Means and intervals over test tasks and seeds, and paired comparisons: the rules of results/claims.md."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cavia.errors import CaviaError
from cavia.evaluation.rounding import with_interval
from cavia.paper.schema import CellResult, Estimate

Scores = NDArray[np.float64]  # [seeds, tasks]
K = TypeVar("K")
Z = 1.96


def scores(group: Sequence[CellResult], measure: str, step: int = -1, worst: float = math.inf) -> Scores:
    """Each seed's scores on the test tasks after `step` steps: [seeds, tasks]; `worst` replaces what is not finite."""
    rows = [[worst if value is None else value for value in one.scores[measure][step]] for one in group]
    return np.array(rows, dtype=np.float64)


def estimate(scores: Scores) -> Estimate:
    """The mean over tasks and seeds, and half the width of its 95 % interval, with crossed random effects."""
    return _estimate(scores.mean(0), [scores])


def difference(ours: Scores, theirs: Scores) -> Estimate:
    """The mean of ours − theirs, and half the width of its 95 % interval: paired by task, independent seeds."""
    if ours.shape[1] != theirs.shape[1]:
        raise CaviaError(f"methods must be measured on the same tasks, got {ours.shape[1]} and {theirs.shape[1]}")
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, neither below nor above
        return _estimate(ours.mean(0) - theirs.mean(0), [ours, theirs])


def _estimate(by_task: NDArray[np.float64], sources: Sequence[Scores]) -> Estimate:
    mean = float(by_task.mean())
    if not math.isfinite(mean):
        return {"mean": mean, "interval": None}
    parts = [by_task.var(ddof=1) / len(by_task)] if len(by_task) > 1 else []
    parts += [one.mean(1).var(ddof=1) / len(one) for one in sources if len(one) > 1]
    return {"mean": mean, "interval": Z * float(sum(parts)) ** 0.5 if parts else None}


def finite(value: Estimate) -> Estimate | None:
    """The estimate, if its mean is a finite number."""
    return value if math.isfinite(value["mean"]) else None


def below(value: Estimate) -> bool:
    """Whether the whole interval is below zero."""
    return value["mean"] + (value.get("interval") or 0.0) < 0


def above(value: Estimate) -> bool:
    """Whether the whole interval is above zero."""
    return value["mean"] - (value.get("interval") or 0.0) > 0


def spread(scores: Scores, digits: int) -> str:
    """The smallest and largest mean of a seed, in words; empty for one seed."""
    means = scores.mean(1)
    return f"seeds {means.min():.{digits}f} to {means.max():.{digits}f}" if len(means) > 1 else ""


def grouped(
    results: Iterable[CellResult], key: Callable[[CellResult], K], **choices: object
) -> dict[K, list[CellResult]]:
    """The results with these choices, grouped by the key, one per seed; leaves out groups in which a seed diverged."""
    groups: dict[K, list[CellResult]] = {}
    for result in results:
        if all(result[name] == value for name, value in choices.items()):
            groups.setdefault(key(result), []).append(result)
    return {value: group for value, group in groups.items() if not any(one.diverged for one in group)}


def at_rates(results: Iterable[CellResult], method: str, **choices: object) -> dict[float, list[CellResult]]:
    """The results of a method by inner learning rate, one per seed; rates that diverged are left out."""
    return grouped(results, lambda one: one["inner_lr"], method=method, **choices)


def best(groups: Iterable[list[CellResult]], higher_is_better: bool = False) -> list[CellResult]:
    """The group with the best mean validation score; empty if there is none."""

    def rank(group: list[CellResult]) -> float:
        values = [math.nan if one.validation is None else one.validation for one in group]
        mean = sum(values) / len(values)
        return math.inf if math.isnan(mean) else -mean if higher_is_better else mean

    return min(groups, key=rank, default=[])


def text(value: Estimate, digits: int) -> str:
    """A mean with its interval: `0.193 ± 0.016`."""
    return with_interval(value["mean"], value.get("interval"), digits)

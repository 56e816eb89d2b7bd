"""Intervals for predictions, calibrated on tasks that training did not see.

A row's deviation s(x) is what the posterior of its task's effects says (Laplace): large where little is known of the
task, or far from its known rows. How many such deviations the truth is away, |y − f(x)| / s(x), is counted on the rows
of held-out tasks, from several numbers of known rows; an interval of level 0.9 is f ± q s with the q that 90 % of
them are within (split conformal prediction). Both parts are needed: the first adapts to task and row, the second
makes the level true whether or not errors are Gaussian.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cavia.errors import CaviaError, shown
from cavia.tables.posterior import Posterior
from cavia.tables.tasks import Tasks
from cavia.tasks.batch import seeded_generator

LEAST_TASKS = 5  # held out: of fewer one unusual task would decide
MOST_SCORES = 500  # kept in a model's file
ROWS_OF_TASK = 200  # scored, at most


class Band(NamedTuple):
    """Predictions of one target with an interval around each, in its own unit."""

    prediction: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Intervals:
    """The distances of held-out rows from their predictions.

    scores: for each target, rising: that of place i of m is what a share i / (m + 1) of the rows are within.
    rows:   held-out rows.
    tasks:  held-out tasks.
    """

    scores: tuple[tuple[float, ...], ...]
    rows: int
    tasks: int

    def factors(self, level: float) -> list[float]:
        """For each target, how many deviations an interval of this level reaches to either side."""
        require_level(level)
        if self.tasks < LEAST_TASKS:
            raise CaviaError(
                f"the model has no intervals: {self.tasks} tasks were held out in training, at least {LEAST_TASKS} are "
                "needed; fit it on more tasks, or with a larger share for validation"
            )
        count = len(self.scores[0])
        place = math.ceil(level * (count + 1) - 1e-9)
        if place > count:
            raise CaviaError(
                f"interval={level:g} would be infinite: {self.rows} rows of held-out tasks resolve levels up to "
                f"{count / (count + 1):.4g}; take at most that, or fit on more tasks"
            )
        return [scores[place - 1] for scores in self.scores]

    def as_json(self) -> dict[str, Any]:
        """JSON values, for `from_json`."""
        return {"scores": [list(scores) for scores in self.scores], "rows": self.rows, "tasks": self.tasks}

    @classmethod
    def from_json(cls, value: Any, targets: int) -> "Intervals":
        """What `as_json` returned; anything else is an error."""
        fields = value if isinstance(value, Mapping) else {}
        lists, counts = fields.get("scores"), [fields.get(name) for name in ("rows", "tasks")]
        fits = isinstance(lists, list) and len(lists) == targets and all(map(_is_rising, lists))
        if not fits or not all(isinstance(count, int) and count >= 0 for count in counts):
            raise CaviaError(f"its intervals are damaged: {shown(value)}")
        return cls(tuple(map(tuple, lists)), *counts)  # type: ignore[arg-type]


def require_level(level: Any) -> float:
    """A level of intervals, above 0 and below 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise CaviaError(f"interval must be a share above 0 and below 1, such as 0.9, got {shown(level)}")
    return float(level)


@torch.no_grad()
def calibrate(learner: Posterior, family: Tasks, seed: int = 0, split: str = "val") -> Intervals:
    """Count how far the rows of held-out tasks are from their predictions, by several numbers of known rows."""
    members = len(family.splits[split])
    if not members:
        return Intervals(tuple(() for _ in range(learner.model.outputs)), 0, 0)
    generator, parts = seeded_generator(seed, "intervals"), []
    for known in known_counts(family.support):
        scores, mask = scores_of(learner, family, known, generator, split)
        parts.append(scores[mask])
    scores = torch.cat(parts)  # [rows, targets]
    count = min(len(scores), MOST_SCORES)
    ordered = scores.sort(0).values
    places = torch.arange(1, count + 1, dtype=torch.float64) / (count + 1)
    which = (places * (len(scores) + 1)).ceil().long().clamp(1, len(scores)) - 1
    chosen = ordered[which].T.tolist()
    return Intervals(tuple(tuple(float(f"{one:.6g}") for one in column) for column in chosen), len(scores), members)


def known_counts(support: int) -> list[int]:
    """The numbers of known rows that intervals are calibrated for: about those that tasks adapt on."""
    return sorted({max(1, support // 2), support, 2 * support})


def scores_of(
    learner: Posterior, family: Tasks, known: int, generator: torch.Generator, split: str
) -> tuple[Tensor, Tensor]:
    """|y − f(x)| / s(x) [T, N, targets] of a split's tasks, adapted on `known` rows, and where they are rows [T, N]."""
    query = min(family.query, ROWS_OF_TASK)
    batch = family.sample(len(family.splits[split]), known, query, generator, split)
    adapted = learner.adapt(batch.support_x, batch.support_y, batch.support_mask)
    left = (batch.query_y - learner.predict(batch.query_x, adapted)).abs()
    scores = left / learner.deviation(batch.query_x, adapted)
    mask = torch.ones(scores.shape[:2], dtype=torch.bool) if batch.query_mask is None else batch.query_mask
    return scores, mask


def _is_rising(scores: Any) -> bool:
    numbers = isinstance(scores, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < math.inf for one in scores
    )
    return numbers and scores == sorted(scores)

"""Results of the same cell with several seeds, put together for the summaries."""

import math
from collections.abc import Iterable

from cavia.experiments.base import Result


def mean_over_seeds(values: Iterable[float | None], lost: float = math.inf) -> float:
    """The mean; `lost` if a value is null, which is how a result file holds one that is not finite."""
    found = list(values)
    return lost if None in found else sum(value for value in found if value is not None) / len(found)


def by_rate(results: list[Result], **choices: object) -> dict[float, list[Result]]:
    """The results with these choices, one per seed, of each inner rate at which no seed diverged."""
    groups: dict[float, list[Result]] = {}
    for result in results:
        if all(result[name] == value for name, value in choices.items()):
            groups.setdefault(result["inner_lr"], []).append(result)
    return {rate: group for rate, group in groups.items() if not any("diverged" in one for one in group)}

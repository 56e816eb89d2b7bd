"""How well an estimator predicts unseen groups from a few known rows of each."""

from typing import Any

import numpy as np

from cavia.errors import CaviaError, require_at_least, require_one_of
from cavia.kinds import checked
from cavia.tables.estimating import ContextEstimator
from cavia.tables.frames import has_targets
from cavia.tables.model import KnownTasks


@checked
def few_shot_score(estimator: Any, X: Any, y: Any, known: int = 5, seed: int = 0, order: str = "random") -> float:
    """Adapt to every group of X on a few of its rows, and score the predictions of all its other rows.

    estimator: a fitted `ContextRegressor` (the score is R²) or `ContextClassifier` (accuracy), also at the end of a
               pipeline or in a search. It is not changed, and its contexts of these groups are not used.
    known:     rows of a group to adapt on; a group with fewer keeps one to score. Groups with one row are left out.
    order:     "random": known rows are drawn by `seed`; "ordered": they are a group's first ones.

    It is a scikit-learn scorer: `cross_val_score(…, cv=GroupKFold(5), scoring=cavia.few_shot_score)`.
    """
    require_at_least("known", known, 1)
    require_at_least("seed", seed, 0)
    require_one_of("order", order, ("random", "ordered"))
    last, X = _last_step(estimator, X)
    table = last._known_table(X, y)
    encoding = last.model_.encoding
    rows_of: dict[str, list[int]] = {}
    owners = table.names(encoding.task)
    for row in np.flatnonzero(has_targets(table, encoding.target_names)).tolist():
        rows_of.setdefault(owners[row], []).append(row)
    generator = np.random.default_rng(seed)
    given: list[int] = []
    asked: list[int] = []
    for rows in rows_of.values():
        if len(rows) > 1:
            drawn = generator.permutation(rows).tolist() if order == "random" else rows
            count = min(known, len(rows) - 1)
            given += drawn[:count]
            asked += drawn[count:]
    if not given:
        raise CaviaError(
            f"no group in X has 2 rows with a target, one to adapt on and one to score (of {len(rows_of)})"
        )
    contexts = KnownTasks()
    names, adapted, _ = last.model_.adapt(table.take(np.array(given)))
    contexts.put(names, adapted)
    return last._score(table.take(np.array(asked)), contexts)


def _last_step(estimator: Any, X: Any) -> tuple[ContextEstimator, Any]:
    """The estimator within a search or a pipeline, and X as it sees it."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    if hasattr(estimator, "steps") and hasattr(estimator, "named_steps"):
        X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return _last_step(estimator.steps[-1][1], X)
    if not isinstance(estimator, ContextEstimator):
        what = f"got a {type(estimator).__name__}"
        raise CaviaError(f"few_shot_score needs a fitted cavia.ContextRegressor or cavia.ContextClassifier, {what}")
    return estimator, X

"""What the scikit-learn estimators share: fit, adapt, update, save and load, with data frames."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch

from cavia.errors import CaviaError, require_one_of, require_share
from cavia.kinds import checked, require_kind
from cavia.store.contexts import ContextStore
from cavia.tables.conventions import BaseEstimator
from cavia.tables.deciding import PROBLEMS
from cavia.tables.estimator_file import arguments, describe, fitted, stored
from cavia.tables.fitting import train_table
from cavia.tables.frames import (
    array_table,
    free_names,
    has_targets,
    is_frame,
    row_weights,
    target_columns,
    task_column,
    with_targets,
)
from cavia.tables.model import Contexts, KnownTasks, TableModel, load_table_with_extra
from cavia.tables.reading import Table, read_table
from cavia.tables.tasks import Tasks

TRAINED = ("method", "hidden", "context", "inner_lr", "inner_steps", "iterations", "tasks_per_batch", "lr", "seed")


class ContextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What regressor and classifier share. The arguments are those of `cavia fit`."""

    problem = "regression"
    model_: TableModel
    contexts_: KnownTasks

    def __init__(
        self,
        group: str | int | None = None,
        *,
        method: str = "posterior",
        hidden: Sequence[int] = (64, 64),
        context: int = 8,
        inner_lr: float = 0.5,
        inner_steps: int | None = None,
        support: int = 10,
        order: str = "random",
        too_small: str = "refuse",
        iterations: int = 600,
        tasks_per_batch: int = 25,
        lr: float = 1e-3,
        validation: float = 0.15,
        number: str | Sequence[str] = (),
        category: str | Sequence[str] = (),
        date: str | Sequence[str] = (),
        unknown: str = "refuse",
        seed: int = 0,
        verbose: bool = False,
    ):
        self.group = group
        self.method = method
        self.hidden = hidden
        self.context = context
        self.inner_lr = inner_lr
        self.inner_steps = inner_steps
        self.support = support
        self.order = order
        self.too_small = too_small
        self.iterations = iterations
        self.tasks_per_batch = tasks_per_batch
        self.lr = lr
        self.validation = validation
        self.number = number
        self.category = category
        self.date = date
        self.unknown = unknown
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on all groups of X [rows, columns] and y [rows] or [rows, targets], then adapt to each of them."""
        table, task = self._table(X, reset=True)
        columns = self._targets(y)
        names = free_names(table, columns)
        table = with_targets(table, columns, names)
        owners = table.names(task)
        share = require_share("validation", self.validation) if len(set(owners)) > 1 else 0.0
        require_one_of("unknown", self.unknown, ("refuse", "start"))
        require_kind("verbose", self.verbose, bool | int)
        family = Tasks.from_table(
            table,
            task,
            names,
            number=self.number,
            category=self.category,
            date=self.date,
            problem=self.problem,
            splits=(1 - share, share, 0.0),
            support=self.support,
            order=self.order,
            too_small=self.too_small,
            seed=self.seed,
        )
        settings = {name: getattr(self, name) for name in TRAINED}
        self.model_, self.result_ = train_table(family, **settings, progress=bool(self.verbose))
        self.contexts_ = KnownTasks()
        kept = set(family.names)  # those that were not too small
        return self._remember(table.take(np.array([row for row, name in enumerate(owners) if name in kept])))

    @checked
    def adapt(self, X: Any, y: Any, steps: int | None = None) -> Self:
        """Find the contexts of new groups from their rows. A group that is known already gets a new context.

        steps: gradient steps, by default as many as in training.
        """
        return self._remember(self._known_table(X, y), steps)

    @checked
    def update(self, X: Any, y: Any, steps: int | None = None) -> Self:
        """Add rows to known groups: their contexts continue from where they are."""
        table = self._known_table(X, y)
        names = dict.fromkeys(table.names(self.model_.encoding.task))
        strangers = [name for name in names if name not in self.contexts_]
        if strangers:
            some = ", ".join(map(repr, strangers[:5]))
            raise CaviaError(
                f"{len(strangers)} of {len(names)} groups have no context to continue from: {some}; use adapt"
            )
        return self._remember(table, steps, self.contexts_)

    @checked
    def save(self, path: str | PathLike[str], contexts: str | PathLike[str] | None = None) -> None:
        """Write the model to a file that `cavia adapt` and `cavia predict` take, the contexts to a store if asked."""
        self._require_fitted()
        self.model_.save(path, {"estimator": describe(self)})
        if contexts is not None:
            with ContextStore(contexts, self.model_.learner.version) as store:
                store.put(list(self.contexts_), self.contexts_.get(self.contexts_))

    @classmethod
    @checked
    def load(cls, path: str | PathLike[str], contexts: str | PathLike[str] | None = None) -> Self:
        """What `save` or `cavia fit` wrote, with the contexts of a store by `save` or `cavia adapt` if it is given."""
        model, extra = load_table_with_extra(path)
        if model.encoding.is_classification != (cls.problem == "classification"):
            raise CaviaError(f"{path} is a {_other(cls.problem)}, no {cls.problem}; load it by the other estimator")
        made = cls(**arguments(cls, model, extra, path))
        made.model_, made.contexts_ = model, KnownTasks() if contexts is None else stored(model, contexts)
        for name, value in fitted(model, extra, path).items():
            setattr(made, name, value)
        return made

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions, or the share of rows whose class is right; rows without a target are left out."""
        table = self._known_table(X, y)
        rows = np.flatnonzero(has_targets(table, self.model_.encoding.target_names))
        weights = None if sample_weight is None else row_weights(sample_weight, table.rows)[rows]
        return self._score(table.take(rows), self.contexts_, weights)

    def _score(self, table: Table, contexts: Contexts, weights: np.ndarray | None = None) -> float:
        """Of rows that all have a target."""
        raise NotImplementedError

    def _remember(self, table: Table, steps: int | None = None, start: KnownTasks | None = None) -> Self:
        names, adapted, _ = self.model_.adapt(table, steps, start)
        self.contexts_.put(names, adapted)
        return self

    def _outputs(self, table: Table, contexts: Contexts) -> torch.Tensor:
        """The network's output for each row, [rows, outputs]."""
        return self.model_.outputs(table, contexts, self.unknown)[0]

    def _fitted_table(self, X: Any) -> Table:
        self._require_fitted()
        return self._table(X)[0]

    def _known_table(self, X: Any, y: Any) -> Table:
        """X and y of a fitted estimator as one table."""
        return with_targets(self._fitted_table(X), self._targets(y), self.model_.encoding.target_names)

    def _targets(self, y: Any) -> dict[str, np.ndarray]:
        if y is None:
            raise CaviaError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return target_columns(y)[0]

    def _table(self, X: Any, reset: bool = False) -> tuple[Table, str]:
        """X as a table, and the name of its task column; the columns are those of fit unless `reset`."""
        from sklearn.utils.validation import validate_data

        if is_frame(X):
            if reset or hasattr(self, "n_features_in_"):  # a file by `cavia fit` does not say
                validate_data(self, X, reset=reset, skip_check_array=True)
            table = read_table(X)
        else:
            least = 2 if reset else 1
            try:
                X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False, ensure_min_samples=least)
            except Exception as error:  # of whatever kind X is, NumPy and scikit-learn say why it is no array
                raise CaviaError(f"X must be a data frame or an array [rows, columns]: {error}") from error
            table = array_table(X)
        return task_column(table, self.group, is_array=not is_frame(X))

    def _require_fitted(self) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags


def _other(problem: str) -> str:
    return next(one for one in PROBLEMS if one != problem)

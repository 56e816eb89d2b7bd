"""CAVIA in scikit-learn's conventions: what `cavia fit`, `adapt` and `predict` do with files, with data frames."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch

from cavia.errors import CaviaError, require_share
from cavia.kinds import require_kind
from cavia.store.contexts import ContextStore
from cavia.tables.cells import MISSING, as_text, canonical, is_missing
from cavia.tables.conventions import BaseEstimator, ClassifierMixin, RegressorMixin
from cavia.tables.fitting import train_table
from cavia.tables.frames import array_table, free_names, is_frame, target_columns, task_column, with_targets
from cavia.tables.model import KnownTasks, TableModel
from cavia.tables.reading import Table, read_table
from cavia.tables.tasks import Tasks

TRAINED = ("hidden", "context", "inner_lr", "inner_steps", "iterations", "tasks_per_batch", "lr", "seed")


class ContextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What regressor and classifier share. The arguments are those of `cavia fit`."""

    problem = "regression"
    model_: TableModel
    contexts_: KnownTasks

    def __init__(
        self,
        group: str | int | None = None,
        *,
        hidden: Sequence[int] = (64, 64),
        context: int = 5,
        inner_lr: float = 0.5,
        inner_steps: int = 2,
        support: int = 10,
        order: str = "random",
        too_small: str = "refuse",
        iterations: int = 5000,
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
        known = set(table.names(task))
        share = require_share("validation", self.validation) if len(known) > 1 else 0.0
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
        return self._remember(table.take(self._with_targets(table)))

    def adapt(self, X: Any, y: Any, steps: int | None = None) -> Self:
        """Find the contexts of new groups from their rows. A group that is known already gets a new context.

        steps: gradient steps, by default as many as in training.
        """
        return self._remember(self._known_table(X, y), steps)

    def update(self, X: Any, y: Any, steps: int | None = None) -> Self:
        """Further rows of known groups: their contexts go on from where they are."""
        table = self._known_table(X, y)
        names = dict.fromkeys(table.names(self.model_.encoding.task))
        strangers = [name for name in names if name not in self.contexts_]
        if strangers:
            some = ", ".join(map(repr, strangers[:5]))
            raise CaviaError(
                f"{len(strangers)} of {len(names)} groups have no context to go on from: {some}; use adapt"
            )
        return self._remember(table, steps, self.contexts_)

    def save(self, path: str | PathLike[str], contexts: str | PathLike[str] | None = None) -> None:
        """Write the model to a file that `cavia adapt` and `cavia predict` take, and the contexts to a store if asked."""
        self._require_fitted()
        self.model_.save(path)
        if contexts is not None:
            with ContextStore(contexts, self.model_.learner.version) as store:
                store.put(list(self.contexts_), self.contexts_.get(self.contexts_))

    def _remember(self, table: Table, steps: int | None = None, start: KnownTasks | None = None) -> Self:
        names, adapted, _ = self.model_.adapt(table, steps, start)
        self.contexts_.put(names, adapted)
        return self

    def _outputs(self, X: Any) -> torch.Tensor:
        """What the network says of each row, [rows, outputs]."""
        self._require_fitted()
        table, _ = self._table(X)
        return self.model_.outputs(table, self.contexts_, self.unknown)[0]

    def _known_table(self, X: Any, y: Any) -> Table:
        """X and y of a fitted estimator as one table."""
        self._require_fitted()
        table, _ = self._table(X)
        return with_targets(table, self._targets(y), self.model_.encoding.target_names)

    def _with_targets(self, table: Table) -> np.ndarray:
        """The rows of groups that have a target at all, [n]: fit leaves out the others."""
        _, known = self.model_.encoding.encode_targets(table)
        owners = table.names(self.model_.encoding.task)
        there = {name for name, is_known in zip(owners, known.tolist(), strict=True) if is_known}
        return np.array([row for row, name in enumerate(owners) if name in there], dtype=np.int64)

    def _targets(self, y: Any) -> dict[str, np.ndarray]:
        if y is None:
            raise CaviaError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return target_columns(y)[0]

    def _table(self, X: Any, reset: bool = False) -> tuple[Table, str]:
        """X as a table, and the name of its task column; the columns are those of fit unless `reset`."""
        from sklearn.utils.validation import validate_data

        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = read_table(X)
        else:
            least = 2 if reset else 1
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False, ensure_min_samples=least)
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


class ContextRegressor(RegressorMixin, ContextEstimator):  # type: ignore[misc]
    """One network for many groups (users, shops, machines), a few context numbers for each, as a scikit-learn regressor.

    group:      the column of X that says whose a row is; a number if X is an array. None: all rows are one group.
    validation: share of the groups that choose the best model.
    number, category, date: columns whose type is not to be decided by their cells.
    unknown:    groups without a context: "refuse" to predict them, or predict from the "start", before adaptation.
    seed:       of splits, weights and batches.
    verbose:    show a progress bar.
    The other arguments are those of `cavia.MLP`, `cavia.CAVIA`, `cavia.Tasks` and `cavia.fit`.

    X is a data frame (pandas, Polars, pyarrow) or an array; y has one or more targets. Needs the extra `cavia[sklearn]`.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on all groups of X [rows, columns] and y [rows] or [rows, targets], then adapt to each of them."""
        self.flat_ = not target_columns(y)[1] if y is not None else True
        return super().fit(X, y)

    def predict(self, X: Any) -> np.ndarray:
        """[rows] or [rows, targets], as y was in fit: each row by its group's context."""
        found = self.model_.encoding.decode(self._outputs(X)) if hasattr(self, "model_") else self._outputs(X)
        values = np.array([*found.values()], dtype=np.float64).T  # [rows, targets]
        return values[:, 0] if self.flat_ else values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions."""
        columns = [values.astype(np.float64) for values in self._targets(y).values()]
        return super().score(X, np.stack(columns, 1), sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ContextClassifier(ClassifierMixin, ContextEstimator):  # type: ignore[misc]
    """One network for many groups, a few context numbers for each, as a scikit-learn classifier.

    The arguments are those of `ContextRegressor`; y [rows] are classes. `classes_` has them in order.
    """

    problem = "classification"
    classes_: np.ndarray

    def fit(self, X: Any, y: Any) -> Self:
        """Train on all groups of X [rows, columns] and classes y [rows], then adapt to each of them."""
        columns = self._targets(y)
        classes = _classes(next(iter(columns.values())))
        super().fit(X, y)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """[rows, classes], in the order of `classes_`."""
        outputs = self._outputs(X)
        levels = self.model_.encoding.target.levels
        order = [levels.index(_level(one)) for one in self.classes_.tolist()]
        return outputs.double().softmax(1)[:, order].numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row, [rows]."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is right."""
        values = next(iter(self._targets(y).values()))
        return super().score(X, np.array(values.tolist()), sample_weight)

    def _targets(self, y: Any) -> dict[str, np.ndarray]:
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import column_or_1d

        if y is None or is_frame(y):
            columns = super()._targets(y)
            if len(columns) != 1:
                raise CaviaError(f"y must be one column of classes, got {len(columns)}")
            return columns
        if isinstance(y, np.ndarray | list | tuple):
            y = column_or_1d(y, warn=True)
            if y.dtype.kind != "O":
                check_classification_targets(y)
        return super()._targets(y)


def _classes(values: np.ndarray) -> np.ndarray:
    """The classes of y [rows], sorted; missing ones are none."""
    present = [value for value in values.tolist() if isinstance(value, str) or not is_missing(value)]
    classes = np.unique(np.array(present)) if present else np.array([])
    if len(classes) < 2:
        raise CaviaError(f"y must hold at least 2 classes, got {len(classes)} class")
    texts = [_level(one) for one in classes.tolist()]
    lost = [text for text in texts if text.lower() in MISSING]
    if lost or len(set(texts)) < len(texts):
        what = f"{lost[0]!r}, which means that a value is missing" if lost else "two that differ by blanks only"
        raise CaviaError(f"y holds the class {what}; rename it")
    return classes


def _level(value: Any) -> str:
    """A class as the encoding calls it."""
    return canonical(as_text(value))

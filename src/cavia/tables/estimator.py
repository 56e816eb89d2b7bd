"""CAVIA with scikit-learn's interface: `cavia fit`, `adapt` and `predict`, for data frames."""

from typing import Any, Self

import numpy as np

from cavia.errors import CaviaError
from cavia.kinds import checked
from cavia.tables.conventions import ClassifierMixin, RegressorMixin
from cavia.tables.estimating import ContextEstimator
from cavia.tables.estimator_file import classes_of, level_of
from cavia.tables.frames import is_frame, target_columns
from cavia.tables.model import Contexts
from cavia.tables.reading import Table
from cavia.tables.values import numbers


class ContextRegressor(RegressorMixin, ContextEstimator):  # type: ignore[misc]
    """One network for many groups (users, shops, machines), a few numbers for each, as a scikit-learn regressor.

    group:      the column of X that names a row's group; a number if X is an array. None: all rows are one group.
    validation: share of the groups used to choose the best model.
    number, category, date: columns to read as this type, whatever their cells hold.
    unknown:    groups without a context: "refuse" to predict them, or predict from the "start", before adaptation.
    seed:       of splits, weights and batches.
    verbose:    show a progress bar.
    The other arguments are those of `cavia.MLP`, `cavia.CAVIA`, `cavia.Tasks` and `cavia.fit`.

    X is a data frame (pandas, Polars, pyarrow) or an array; y has one or more targets. Needs the extra `sklearn`.
    """

    score = ContextEstimator.score  # before the mixin's

    def fit(self, X: Any, y: Any) -> Self:
        """Train on all groups of X [rows, columns] and y [rows] or [rows, targets], then adapt to each of them."""
        self.flat_ = not target_columns(y)[1] if y is not None else True
        return super().fit(X, y)

    @checked
    def predict(self, X: Any, interval: float | None = None) -> np.ndarray:
        """[rows] or [rows, targets], as y was in fit: each row by its group's context.

        interval: a level, such as 0.9: one more axis with prediction, low and high, [rows, 3] or [rows, targets, 3].
                  That share of the rows of unseen groups lies between low and high.
        """
        if interval is not None:
            table = self._fitted_table(X)
            bands = self.model_.predict_intervals(table, self.contexts_, interval, self.unknown)[1]
            stacked = np.array([[*band] for band in bands.values()]).transpose(2, 0, 1)
            return stacked[:, 0] if self.flat_ else stacked
        values = self._predict(self._fitted_table(X), self.contexts_)
        return values[:, 0] if self.flat_ else values

    def _predict(self, table: Table, contexts: Contexts) -> np.ndarray:
        """[rows, targets]"""
        decoded = self.model_.encoding.decode(self._outputs(table, contexts))
        return np.array([*decoded.values()], dtype=np.float64).T

    def _score(self, table: Table, contexts: Contexts, weights: np.ndarray | None = None) -> float:
        from sklearn.metrics import r2_score

        truth = np.stack([numbers(table, name) for name in self.model_.encoding.target_names], 1)
        return float(r2_score(truth, self._predict(table, contexts), sample_weight=weights))

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
    score = ContextEstimator.score

    def fit(self, X: Any, y: Any) -> Self:
        """Train on all groups of X [rows, columns] and classes y [rows], then adapt to each of them."""
        columns = self._targets(y)
        classes = classes_of(next(iter(columns.values())))
        super().fit(X, y)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """[rows, classes], in the order of `classes_`."""
        return self._probabilities(self._fitted_table(X), self.contexts_)

    def _probabilities(self, table: Table, contexts: Contexts) -> np.ndarray:
        outputs = self._outputs(table, contexts)
        levels = self.model_.encoding.target.levels
        order = [levels.index(level_of(one)) for one in self.classes_.tolist()]
        return outputs.double().softmax(1)[:, order].numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row, [rows]."""
        likeliest = self.predict_proba(X).argmax(1)  # first: it says if nothing was fitted
        return self.classes_[likeliest]

    def _score(self, table: Table, contexts: Contexts, weights: np.ndarray | None = None) -> float:
        truth = [level_of(value) for value in table[self.model_.encoding.target.name].tolist()]
        likeliest = self._probabilities(table, contexts).argmax(1)
        predicted = [level_of(self.classes_[i].item()) for i in likeliest]
        return float(np.average(np.array(truth) == np.array(predicted), weights=weights))

    def _targets(self, y: Any) -> dict[str, np.ndarray]:
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import column_or_1d

        if y is None or is_frame(y):
            columns = super()._targets(y)
            if len(columns) != 1:
                raise CaviaError(f"y must be one column of classes, got {len(columns)}")
            return columns
        if isinstance(y, np.ndarray | list | tuple):
            try:
                y = column_or_1d(y, warn=True)
                if y.dtype.kind != "O":
                    check_classification_targets(y)
            except (TypeError, ValueError) as error:
                raise CaviaError(f"y must be classes [rows]: {error}") from error
        return super()._targets(y)

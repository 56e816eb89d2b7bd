"""Estimators inside scikit-learn: cloned, searched, cross-validated, and by its own checks."""

import subprocess
import sys

import numpy as np
import pytest

import cavia

pytest.importorskip("sklearn", reason="needs pip install 'cavia-torch[sklearn]'")
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.tables.estimators import NEW_X, NEW_Y, QUICK, X, Y

ESTIMATORS = (cavia.ContextRegressor, cavia.ContextClassifier)


def test_arguments_are_those_that_were_given(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert again.set_params(context=3).context == 3
    assert not hasattr(again, "model_")


@pytest.mark.slow
def test_scikit_learn_is_imported_at_first_use_and_named_if_it_is_not_there():
    code = """if True:
        import sys, cavia
        cavia.Tasks
        assert "sklearn" not in sys.modules
        sys.modules["sklearn"] = None
        from cavia import *
        try:
            ContextRegressor("user")
        except cavia.CaviaError as error:
            print(error)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ContextRegressor needs scikit-learn: pip install 'cavia-torch[sklearn]'\n"


def test_few_shot_score_is_adapting_and_scoring(regressor):
    score = cavia.few_shot_score(regressor, NEW_X, NEW_Y, known=5, order="ordered")
    assert "ann" not in regressor.contexts_
    first = NEW_X.groupby("user").cumcount() < 5
    regressor.adapt(NEW_X[first], NEW_Y[first])
    assert score == pytest.approx(regressor.score(NEW_X[~first], NEW_Y[~first]), abs=1e-6)


def test_few_shot_score_draws_by_its_seed(fitted):
    one, same, other = (cavia.few_shot_score(fitted, NEW_X, NEW_Y, seed=seed) for seed in (0, 0, 1))
    assert one == same != other
    with pytest.raises(cavia.CaviaError, match=r"needs a fitted cavia.ContextRegressor .* got a StandardScaler"):
        cavia.few_shot_score(StandardScaler(), X, Y)
    with pytest.raises(cavia.CaviaError, match=r"no group in X has 2 rows with a target.* \(of 1\)"):
        cavia.few_shot_score(fitted, NEW_X[:1], NEW_Y[:1])


def test_it_scores_unseen_groups_in_cross_validation():
    scores = cross_val_score(
        cavia.ContextRegressor("user", **QUICK), X, Y, groups=X["user"], cv=GroupKFold(2), scoring=cavia.few_shot_score
    )
    assert np.isfinite(scores).all()


def test_it_ends_a_pipeline_in_a_search():
    scaled = ColumnTransformer(
        [("scaled", StandardScaler(), ["x"])], remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipeline = make_pipeline(scaled, cavia.ContextRegressor("user", **QUICK))
    search = GridSearchCV(
        pipeline, {"contextregressor__context": [1, 3]}, cv=GroupKFold(2), scoring=cavia.few_shot_score
    ).fit(X, Y, groups=X["user"])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[-1].model_.learner.model.effects == search.best_params_["contextregressor__context"]
    assert np.isfinite(cavia.few_shot_score(search, NEW_X, NEW_Y))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([kind(**QUICK | {"iterations": 60}, lr=0.01) for kind in ESTIMATORS])
def test_scikit_learns_own_checks(estimator, check):
    """All of them, with all rows as one group. With a group they do not apply: their tables have no column of groups,
    and a column of measurements makes every row a group of its own. Skipped by itself: that of the array API."""
    check(estimator)


@pytest.mark.parametrize("weights", ["text", [1.0, 2.0], np.full(len(X), -1.0), np.zeros(len(X))])
def test_wrong_weights_are_refused(fitted, weights):
    with pytest.raises(cavia.CaviaError, match="sample_weight must be"):
        fitted.score(X, Y, weights)

"""A fitted estimator, for the tests of several files; scikit-learn and pandas are imported only for them."""

import pytest

import cavia


@pytest.fixture(scope="module")
def fitted():
    from tests.tables.estimators import QUICK, X, Y

    return cavia.ContextRegressor("user", **QUICK).fit(X, Y)


@pytest.fixture
def regressor(fitted):
    """Fitted, with contexts of its own to change."""
    from sklearn.base import clone

    made = clone(fitted)
    vars(made).update(vars(fitted) | {"contexts_": type(fitted.contexts_)(fitted.contexts_)})
    return made

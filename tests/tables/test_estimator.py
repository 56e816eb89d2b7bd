"""Estimators in scikit-learn's conventions: what the command line does with files, with data frames."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import cavia
from cavia.tables.fitting import train_table

pytest.importorskip("sklearn", reason="needs pip install 'cavia[sklearn]'")
from sklearn.base import clone

QUICK = {"hidden": (8,), "context": 2, "support": 4, "iterations": 3, "tasks_per_batch": 4}


def rows_of(users, seed=0, rows=8):
    """One user per name: y is a line of its own."""
    numbers = np.random.default_rng(seed)
    parts = []
    for user in users:
        x, kind = numbers.uniform(-1, 1, rows), numbers.choice(["home", "work"], rows)
        y = numbers.normal(0, 2) + numbers.normal() * x + (kind == "work")
        parts.append(pd.DataFrame({"user": user, "x": x, "kind": kind, "y": y}))
    return pd.concat(parts, ignore_index=True)


TABLE, NEW = rows_of([f"u{i}" for i in range(8)]), rows_of(["ann", "bob"], seed=1)
X, Y = TABLE.drop(columns="y"), TABLE["y"]
NEW_X, NEW_Y = NEW.drop(columns="y"), NEW["y"]


@pytest.fixture(scope="module")
def fitted():
    return cavia.ContextRegressor("user", **QUICK).fit(X, Y)


@pytest.fixture
def regressor(fitted):
    """Fitted, with contexts of its own to change."""
    made = clone(fitted)
    vars(made).update(vars(fitted) | {"contexts_": type(fitted.contexts_)(fitted.contexts_)})
    return made


def test_it_is_the_command_lines_code(fitted):
    family = cavia.Tasks.from_table(TABLE, "user", "y", support=4, splits=(0.85, 0.15, 0.0))
    settings = {name: value for name, value in QUICK.items() if name != "support"}
    model, _ = train_table(family, **settings, progress=False)
    assert model.learner.version == fitted.model_.learner.version
    names, adapted, _ = model.adapt(TABLE)
    assert torch.equal(fitted.contexts_.get(names).context, adapted.context)


def test_groups_of_fit_are_predicted(fitted):
    predictions = fitted.predict(X)
    assert predictions.shape == (len(X),)
    assert fitted.score(X, Y) == pytest.approx(1 - ((Y - predictions) ** 2).sum() / ((Y - Y.mean()) ** 2).sum())


def test_new_groups_are_adapted_to(regressor):
    with pytest.raises(cavia.CaviaError, match=r"2 of 2 tasks .* have no context: 'ann', 'bob'; adapt to them first"):
        regressor.predict(NEW_X)
    before = regressor.predict(X)
    assert regressor.adapt(NEW_X, NEW_Y) is regressor
    assert regressor.predict(NEW_X).shape == (16,)
    assert (regressor.predict(X) == before).all()


def test_unknown_groups_start_where_the_learner_does(regressor):
    found = regressor.set_params(unknown="start").predict(NEW_X)
    regressor.adapt(NEW_X, NEW_Y, steps=0)
    assert (regressor.predict(NEW_X) == found).all()


def test_update_goes_on_from_the_context(regressor):
    twice = clone(regressor)
    vars(twice).update(vars(regressor) | {"contexts_": type(regressor.contexts_)()})
    regressor.adapt(NEW_X, NEW_Y, steps=1).update(NEW_X, NEW_Y, steps=1)
    twice.adapt(NEW_X, NEW_Y, steps=2)
    assert torch.allclose(regressor.contexts_["ann"], twice.contexts_["ann"])
    with pytest.raises(cavia.CaviaError, match=r"1 of 1 groups have no context to go on from: 'cem'; use adapt"):
        regressor.update(NEW_X[:3].assign(user="cem"), NEW_Y[:3])


@pytest.mark.parametrize("kind", [int, bool, str])
def test_classes_keep_their_type(kind):
    labels = (Y > 0).map({True: kind(1), False: kind(0)})
    classifier = cavia.ContextClassifier("user", **QUICK).fit(X, labels)
    assert classifier.classes_.tolist() == sorted({kind(0), kind(1)})
    probabilities = classifier.predict_proba(X)
    assert probabilities.sum(1) == pytest.approx(1)
    assert (classifier.predict(X) == classifier.classes_[probabilities.argmax(1)]).all()
    assert classifier.score(X, labels) == (classifier.predict(X) == labels).mean()


def test_classes_that_mean_missing_are_refused():
    labels = np.where(Y > 0, "none", "some")
    with pytest.raises(cavia.CaviaError, match=r"y holds the class 'none', which means .* missing; rename it"):
        cavia.ContextClassifier("user", **QUICK).fit(X, labels)


def test_arguments_are_those_that_were_given(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert again.set_params(context=3).context == 3
    assert not hasattr(again, "model_")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group": "usr"}, "has no column 'usr' for group; the nearest are 'user'"),
        ({"group": 1.5}, "group must be the name of a column, its number in an array, or None, got 1.5"),
        ({"hidden": 8}, "hidden must be a sequence of whole numbers"),
        ({"context": 0}, "context must be at least 1, got 0"),
        ({"validation": 2}, "validation must be from 0 to 1, got 2"),
        ({"support": "x"}, "support must be a whole number, got 'x'"),
    ],
)
def test_wrong_arguments_are_named_by_fit(settings, message):
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.ContextRegressor(**{"group": "user", **QUICK, **settings}).fit(X, Y)


def test_the_target_must_not_be_an_input():
    with pytest.raises(cavia.CaviaError, match="X holds the target's column 'y' itself; leave it out of X"):
        cavia.ContextRegressor("user", **QUICK).fit(TABLE, Y)


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
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "ContextRegressor needs scikit-learn: pip install 'cavia[sklearn]'\n"

"""Estimators in scikit-learn's conventions: what the command line does with files, with data frames."""

from datetime import date

import numpy as np
import pandas as pd
import pytest
import torch

import cavia
from cavia.cli import main
from cavia.tables.fitting import train_table

pytest.importorskip("sklearn", reason="needs pip install 'cavia-torch[sklearn]'")
from sklearn.base import clone

from tests.tables.estimators import NEW, NEW_X, NEW_Y, QUICK, TABLE, X, Y


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
    predicted = regressor.set_params(unknown="start").predict(NEW_X)
    regressor.adapt(NEW_X, NEW_Y, steps=0)
    assert (regressor.predict(NEW_X) == predicted).all()


def test_update_goes_on_from_the_context(regressor):
    """Rows that come one after the other are as good as all at once."""
    twice = clone(regressor)
    vars(twice).update(vars(regressor) | {"contexts_": type(regressor.contexts_)()})
    first = NEW_X.index % 2 == 0
    regressor.adapt(NEW_X[first], NEW_Y[first]).update(NEW_X[~first], NEW_Y[~first])
    twice.adapt(NEW_X, NEW_Y)
    assert torch.allclose(regressor.contexts_["ann"], twice.contexts_["ann"], rtol=1e-4, atol=1e-6)
    with pytest.raises(cavia.CaviaError, match=r"1 of 1 groups have no context to continue from: 'cem'; use adapt"):
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


@pytest.mark.parametrize("seed", range(3))
def test_a_class_of_one_group_alone_is_a_class(seed):
    labels = np.where(X["user"] == "u3", "rare", np.where(Y > 0, "high", "low"))
    classifier = cavia.ContextClassifier("user", **QUICK, validation=0.5, seed=seed).fit(X, labels)
    assert classifier.classes_.tolist() == ["high", "low", "rare"]


def test_classes_that_mean_missing_are_refused():
    labels = np.where(Y > 0, "none", "some")
    with pytest.raises(cavia.CaviaError, match=r"y holds the class 'none', which means .* missing; rename it"):
        cavia.ContextClassifier("user", **QUICK).fit(X, labels)


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


@pytest.mark.parametrize("labels", [np.zeros((0, 3)), np.linspace(0, 1, len(X))])
def test_what_is_no_class_is_refused(labels):
    with pytest.raises(cavia.CaviaError, match=r"y must be classes \[rows\]: "):
        cavia.ContextClassifier("user", **QUICK).fit(X, labels)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries_are_the_same(library, fitted):
    made = pytest.importorskip(library)
    if library == "polars":
        frame, target = made.DataFrame(X.to_dict("list")), made.Series("y", Y.tolist())
    else:
        frame, target = made.Table.from_pydict(X.to_dict("list")), made.array(Y.tolist())
    other = cavia.ContextRegressor("user", **QUICK).fit(frame, target)
    assert (other.predict(frame) == fitted.predict(X)).all()
    assert other.score(frame, target) == fitted.score(X, Y)
    assert other.feature_names_in_.tolist() == ["user", "x", "kind"]


def test_polars_columns_have_their_types():
    polars = pytest.importorskip("polars")
    days = [date(2024, 1, 1 + i % 28) for i in range(len(X))]
    more = {"day": days, "code": polars.Series(["1", "2"] * 32, dtype=polars.Categorical), "gap": [None, 1] * 32}
    model = cavia.ContextRegressor("user", **QUICK).fit(polars.DataFrame(X.to_dict("list") | more), Y).model_
    kinds = {column.name: column.kind for column in model.encoding.inputs}
    assert kinds == {"x": "number", "kind": "category", "day": "date", "code": "category", "gap": "number"}


def test_several_targets():
    both = pd.DataFrame({"y": Y, "z": -3 * Y})
    regressor = cavia.ContextRegressor("user", **QUICK).fit(X, both)
    assert regressor.predict(X).shape == (len(X), 2)
    assert regressor.model_.encoding.target_names == ["y", "z"]
    assert regressor.score(X, both) == pytest.approx(regressor.score(X, both.to_numpy()))
    with pytest.raises(cavia.CaviaError, match="y must have 2 targets as in fit, got 1"):
        regressor.adapt(NEW_X, NEW_Y)


def test_rows_without_a_target_are_left_out(regressor):
    gaps = NEW_Y.where(NEW_Y.index % 8 > 2)
    regressor.adapt(NEW_X, gaps)
    actual = regressor.contexts_["ann"]
    rest = gaps.notna()
    regressor.adapt(NEW_X[rest], NEW_Y[rest])
    assert torch.allclose(actual, regressor.contexts_["ann"])
    assert regressor.score(NEW_X, gaps) == regressor.score(NEW_X[rest], NEW_Y[rest])


def test_an_array_names_its_group_by_number():
    values = np.stack([np.repeat(np.arange(8), 8), X["x"]], 1)
    regressor = cavia.ContextRegressor(0, **QUICK).fit(values, Y)
    assert list(regressor.contexts_) == [str(i) for i in range(8)]
    with pytest.raises(cavia.CaviaError, match="X is an array of 2 columns, it has no column 'user' for group"):
        cavia.ContextRegressor("user", **QUICK).fit(values, Y)


def test_it_comes_back_from_a_file(fitted, tmp_path):
    fitted.save(tmp_path / "m.cavia", contexts=tmp_path / "contexts")
    again = cavia.ContextRegressor.load(tmp_path / "m.cavia", contexts=tmp_path / "contexts")
    assert again.get_params() == fitted.get_params()
    assert (again.predict(X) == fitted.predict(X)).all()
    with pytest.raises(cavia.CaviaError, match=r"is a regression, no classification; load it by the other estimator"):
        cavia.ContextClassifier.load(tmp_path / "m.cavia")
    with pytest.raises(cavia.CaviaError, match=r"there is no store .*nowhere"):
        cavia.ContextRegressor.load(tmp_path / "m.cavia", contexts=tmp_path / "nowhere")


def test_classes_come_back_from_a_file(tmp_path):
    classifier = cavia.ContextClassifier("user", **QUICK).fit(X, (Y > 0).astype(int))
    classifier.save(tmp_path / "m.cavia", contexts=tmp_path / "contexts")
    again = cavia.ContextClassifier.load(tmp_path / "m.cavia", contexts=tmp_path / "contexts")
    assert (again.predict(X) == classifier.predict(X)).all()


def test_the_command_line_takes_its_file(fitted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fitted.save("m.cavia", contexts="contexts")
    NEW.to_csv("new.csv", index=False)
    assert main(["adapt", "m.cavia", "new.csv", "--out", "contexts"]) == 0
    assert main(["predict", "m.cavia", "new.csv", "--contexts", "contexts", "--out", "p.csv"]) == 0
    again = cavia.ContextRegressor.load("m.cavia", contexts="contexts")
    assert again.predict(NEW_X) == pytest.approx(pd.read_csv("p.csv")["prediction"].to_numpy(), rel=1e-5)


def test_a_file_of_the_command_line_is_an_estimator(fitted, tmp_path):
    fitted.model_.save(tmp_path / "m.cavia")  # as `cavia fit` does
    again = cavia.ContextRegressor.load(tmp_path / "m.cavia")
    assert (again.group, again.hidden, again.context) == ("user", (8,), 2)
    turned = X[["kind", "user", "x"]]
    assert (again.adapt(turned, Y).predict(turned) == fitted.predict(X)).all()


def test_damaged_descriptions_are_refused(fitted, tmp_path):
    path = tmp_path / "m.cavia"
    for wrong, message in (
        ([], "does not describe an estimator"),
        ({"arguments": None}, "does not describe an estimator"),
        ({"arguments": {"hiden": 3}}, "has an argument that ContextRegressor does not know: 'hiden'"),
    ):
        fitted.model_.save(path, {"estimator": wrong})
        with pytest.raises(cavia.CaviaError, match=message):
            cavia.ContextRegressor.load(path)

"""Intervals of predictions: calibrated on held-out tasks, in Python and by the command line."""

import csv

import numpy as np
import pytest

import cavia
from cavia.cli import main
from cavia.tables.fitting import train_table
from cavia.tables.intervals import Intervals, scores_of
from cavia.tables.model import KnownTasks, load_table_model
from cavia.tasks.batch import seeded_generator
from tests.tables.test_posterior import groups_of

QUICK = {"hidden": (4,), "context": 2, "iterations": 2}


@pytest.fixture(scope="module")
def model():
    family = cavia.Tasks.from_table(groups_of(60), "user", "y", support=4, splits=(0.5, 0.3, 0.2))
    return train_table(family, **QUICK, progress=False)[0]


@pytest.mark.slow
@pytest.mark.parametrize("known", [2, 4, 8])
def test_unseen_groups_are_covered_as_often_as_was_asked(known):
    family = cavia.Tasks.from_table(groups_of(400, noise=0.5), "user", "y", support=4, splits=(0.3, 0.3, 0.4))
    model = train_table(family, **QUICK, progress=False)[0]
    scores, mask = scores_of(model.learner, family, known, seeded_generator(1, "test"), "test")
    for level in (0.5, 0.8, 0.95):
        within = (scores[..., 0] <= model.intervals.factors(level)[0])[mask].float().mean()
        assert within == pytest.approx(level, abs=0.035)


def test_an_interval_of_a_known_share_of_scores():
    held_out = Intervals((tuple(range(1, 100)),), rows=99, tasks=20)
    assert held_out.factors(0.9) == [90]
    assert held_out.factors(0.99) == [99]
    assert Intervals.from_json(held_out.as_json(), 1) == held_out


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (0, "interval must be a share above 0 and below 1, such as 0.9, got 0"),
        (1.5, "got 1.5"),
        (float("nan"), "got nan"),
        (True, "got True"),
        ("much", "got 'much'"),
        (
            0.995,
            "interval=0.995 would be infinite: 99 rows of held-out tasks resolve levels up to 0.99; take at most that",
        ),
    ],
)
def test_a_level_that_cannot_be_is_one_line(level, message):
    with pytest.raises(cavia.CaviaError, match=message.replace("(", r"\(")) as raised:
        Intervals((tuple(range(1, 100)),), rows=99, tasks=20).factors(level)
    assert "\n" not in str(raised.value)


def test_few_held_out_tasks_are_one_line():
    with pytest.raises(
        cavia.CaviaError, match=r"2 tasks were held out in training, at least 5 are needed; fit it on more"
    ):
        Intervals(((1.0, 2.0, 3.0),), rows=3, tasks=2).factors(0.5)


@pytest.mark.parametrize("wrong", [None, 3, {"scores": [[2, 1]], "rows": 2, "tasks": 2}, {"scores": [[1]], "rows": -1}])
def test_damaged_intervals_of_a_file_are_refused(wrong):
    with pytest.raises(cavia.CaviaError, match="its intervals are damaged"):
        Intervals.from_json(wrong, 1)


def test_they_are_saved_with_the_model_and_take_rows_in_memory(model, tmp_path):
    model.save(tmp_path / "model.cavia")
    again, contexts = load_table_model(tmp_path / "model.cavia"), KnownTasks()
    assert again.intervals == model.intervals
    rows = [{"user": "ann", "x": value, "y": 3 + value} for value in (0.0, 0.5, 1.0)]
    names, adapted, _ = again.adapt(rows)
    contexts.put(names, adapted)
    _, bands, _ = again.predict_intervals(
        [{"user": "ann", "x": 0.25}, {"user": "new", "x": 0.0}], contexts, 0.9, "start"
    )
    band = bands["y"]
    assert all(low < prediction < high for prediction, low, high in zip(*band, strict=True))
    assert band.high[1] - band.low[1] > 5 * (band.high[0] - band.low[0])  # nothing is known of the new one


def test_an_estimator_gives_them_beside_predictions():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    table = pandas.DataFrame(groups_of(60))
    targets = table.assign(z=2 * table["y"])[["y", "z"]]
    X = table.drop(columns="y")
    made = cavia.ContextRegressor("user", support=4, validation=0.2, **QUICK)
    one = made.fit(X, table["y"]).predict(X[:7], interval=0.9)
    assert one.shape == (7, 3)
    np.testing.assert_allclose(one[:, 0], made.predict(X[:7]))
    assert (one[:, 1] < one[:, 0]).all()
    assert (one[:, 0] < one[:, 2]).all()
    assert made.fit(X, targets).predict(X[:7], interval=0.5).shape == (7, 2, 3)
    with pytest.raises(cavia.CaviaError, match="no intervals: 0 tasks were held out"):
        cavia.ContextRegressor("user", support=4, validation=0.0, **QUICK).fit(X, table["y"]).predict(X, interval=0.9)
    gradient = cavia.ContextRegressor("user", method="gradient", support=4, **QUICK).fit(X, table["y"])
    with pytest.raises(cavia.CaviaError, match="method='posterior' makes them"):
        gradient.predict(X, interval=0.9)


def test_the_command_line_writes_low_and_high(model, tmp_path, capsys):
    model.save(tmp_path / "model.cavia")
    table = tmp_path / "new.csv"
    table.write_text("user,x,y\nann,0,3\nann,1,4\nann,0.5,3.5\n")
    files = [str(tmp_path / "model.cavia"), str(table)]
    assert main(["adapt", *files, "--out", str(tmp_path / "contexts")]) == 0
    order = ["predict", *files, "--contexts", str(tmp_path / "contexts"), "--out", str(tmp_path / "out.csv")]
    assert main([*order, "--interval", "0.8"]) == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert all(float(row["low"]) < float(row["prediction"]) < float(row["high"]) for row in rows)
    capsys.readouterr()
    assert main([*order, "--interval", "1"]) != 0
    assert "interval must be a share above 0 and below 1" in capsys.readouterr().err

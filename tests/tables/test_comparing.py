"""`cavia fit --compare` and `--search`: other methods, and other settings, on the same tasks."""

import numpy as np
import pytest
import torch

import cavia
from cavia.cli import main
from cavia.tables.comparing import as_text, compare
from cavia.tables.fitting import train_table
from cavia.tables.rivals import Task, ridge
from cavia.tables.searching import search_table
from tests.tables.test_posterior import groups_of

QUICK = {"hidden": (4,), "context": 2, "iterations": 2, "progress": False}


def classes_of(tasks):
    table = groups_of(tasks)
    return table | {"y": np.where(table["y"] > 0, "yes", "no")}


def test_ridge_of_one_task_is_the_closed_form():
    numbers = np.random.default_rng(0)
    x, y, new = numbers.normal(size=(5, 3)), numbers.normal(size=5), numbers.normal(size=(2, 3))
    centred = x - x.mean(0)
    weights = np.linalg.solve(centred.T @ centred + 2 * np.eye(3), centred.T @ (y - y.mean()))
    np.testing.assert_allclose(ridge(Task(new, x, y), 2.0), y.mean() + (new - x.mean(0)) @ weights)


@pytest.mark.slow
def test_numbers_are_compared_with_all_methods():
    pytest.importorskip("sklearn")
    table = groups_of(40)
    family = cavia.Tasks.from_table(table | {"z": -table["y"]}, "user", ["y", "z"], support=4)
    compared, left_out = compare(train_table(family, **QUICK | {"context": 4})[0], family)
    by_name = {one.method: one for one in compared if one.target == "y"}
    assert len(by_name) == 8
    assert len(compared) == 16
    assert not left_out
    assert by_name["CAVIA"].score == pytest.approx(by_name["mixed model, slopes"].score, rel=0.1)
    assert by_name["CAVIA"].score < 0.5 * by_name["mixed model, intercept"].score < by_name["mean of all"].score
    again = {one.method: one for one in compared if one.target == "z"}
    assert again["mean of all"].score == pytest.approx(by_name["mean of all"].score, rel=1e-3)
    text = as_text(compared, left_out, 6)
    assert text.count("\n* ") == 2  # the best of each target


@pytest.mark.slow
def test_classes_are_compared_and_what_does_not_apply_is_named():
    pytest.importorskip("sklearn")
    family = cavia.Tasks.from_table(classes_of(40), "user", "y", support=4)
    compared, left_out = compare(train_table(family, **QUICK)[0], family)
    assert next(one.method for one in compared) == "CAVIA"
    assert len(compared) == 5
    assert all(0 < one.score < 2 and 0 <= one.accuracy <= 1 for one in compared)
    assert left_out == ["left out: ridge regression and the mixed model, which are for numbers"]


@pytest.mark.slow
def test_a_search_tries_the_defaults_first_and_goes_on(tmp_path):
    pytest.importorskip("optuna")
    family = cavia.Tasks.from_table(groups_of(20), "user", "y", support=4)
    lines = []
    search = search_table(family, 2, most_iterations=2, path=tmp_path / "search", tell=lines.append)
    assert search.trials == 2
    assert len(lines) == 2
    assert search.loss <= search.default
    assert "--method posterior --hidden 64,64 --context 8" in lines[0]
    more = search_table(family, 3, most_iterations=2, path=tmp_path / "search", tell=lines.append)
    assert more.trials == 3
    assert len(lines) == 3
    assert more.default == search.default
    torch.manual_seed(1)
    again = train_table(family, **more.settings, progress=False)[0]
    assert again.learner.model.hidden == more.settings["hidden"]


@pytest.mark.slow
def test_the_command_line_prints_the_command_that_trains_the_winner(tmp_path, capsys):
    pytest.importorskip("optuna")
    table = groups_of(20)
    lines = ["user,x,y", *(f"{u},{x:.4f},{y:.4f}" for u, x, y in zip(*table.values(), strict=True))]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines))
    order = ["fit", str(path), "--task", "user", "--target", "y", "--support", "4", "--iterations", "1"]
    assert main([*order, "--search", "1", "--compare", "--out", str(tmp_path / "model.cavia")]) == 0
    said = capsys.readouterr().out
    assert f"cavia fit {path} --task user --target y --support 4" in said
    assert "compared on the same 3 unseen tasks (* is best):" in said

"""Files of others, absurd numbers and deep nesting, in results, run folders and plans: one line for each."""

import json
import os

import pytest

from cavia.cli import main
from cavia.errors import CaviaError
from cavia.paper.checking import first_problem
from cavia.paper.experiment import Data
from cavia.paper.plan import read_plan
from cavia.paper.report import reading
from cavia.paper.report.page import write_report
from cavia.paper.reproduce import status
from cavia.paper.running.orders import Order, read_result
from cavia.paper.running.runner import run
from cavia.paper.schema import CellResult
from tests.paper.cells import noise, result as cell_result
from tests.paper.report.results import lines, result, scatter, table, write

TINY = {"contexts": 2, "iterations": 2, "test_tasks": 8, "validation_tasks": 8, "hidden": 4}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


# Results


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            result(tables=[table() | {"digits": 10**9}]),
            "tables[0].digits must be at least 0 and at most 20, got 1000000000",
        ),
        (result(others=[result(tables=[table() | {"digits": 21}])]), "others[0].tables[0].digits must be at least 0"),
        (result(seconds=10**400), "seconds must be between -1e100 and 1e100, got 1000"),
        (result(seeds=-(10**400)), "seeds must be between -1e100 and 1e100"),
        (result(settings={"deep": nested(400)}), "lists and objects must be nested at most 20 deep"),
        ("[" * 100_000, "is not valid JSON (too many brackets inside each other)"),
        (result(experiment="a" * 101), "experiment must be letters, digits, '.', '_' and '-', at most 100"),
        (result(figures=[lines("a" * 101)]), "figures[0].name must be letters"),
        (
            result(figures=[scatter() | {"panels": scatter()["panels"] * 99}]),
            "figures[0].panels must have 0 to 100 entries",
        ),
        (
            result(figures=[lines() | {"series": lines()["series"] * 900}]),
            "figures[0].series must have 0 to 1000 entries",
        ),
        (result(title="\ud800"), "is not valid JSON (half of a character"),
        (result(commits=[1]), "commits[0] must be text, got 1"),
    ],
)
def test_a_result_beyond_its_limits_names_the_file_the_key_and_the_limit(content, problem, tmp_path, capsys):
    path = write(tmp_path / "run", content)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error
    assert problem in error
    assert not (tmp_path / "out").exists()


def test_curves_need_points_of_two_numbers():
    panel = {"title": "one", "x": [0.0], "truth": [0.0], "before": [0.0], "after": [0.0], "known": [[1.0]]}
    figure = {"name": "a", "caption": "", "kind": "curves", "x_label": "", "y_label": "", "panels": [panel]}
    assert "figures[0].panels[0].known[0] must have 2 to 2 entries, got 1" in first_problem(result(figures=[figure]))
    assert first_problem(result(figures=[figure | {"panels": []}])) == "figures[0].panels must not be empty, got 0"


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(CaviaError, match=r"result.json: it is a device or a pipe, not a file"):
        write_report([tmp_path], tmp_path / "out")


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("cavia.tensor_file.MOST_TEXT", 100)
    write(tmp_path, result())
    with pytest.raises(CaviaError, match=r"result.json must have at most 100 bytes, has \d\d\d"):
        write_report([tmp_path], tmp_path / "out")


def test_the_search_for_results_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_FOLDERS", 3)
    for name in "abc":
        (tmp_path / name).mkdir()
    with pytest.raises(CaviaError, match="there are more than 3 folders in"):
        write_report([tmp_path], tmp_path / "out")


# Cells


def order(out, **changes):
    return Order("table1", "quick", out, TINY | {"maml_lrs": 0.01} | changes)


@pytest.fixture
def finished(tmp_path):
    """The cells of an order, as if they were trained and measured."""
    made = order(tmp_path / "table1")
    for cell in made.cells:
        outcome = cell_result(dict(cell.choices), {"mse": [noise(3.0, 8), noise(0.2, 8)]}, probes={})
        write(made.folder(cell), outcome.as_json() | {"settings": read_settings(made)})
    return made


def read_settings(made):
    from cavia.paper.catalogue import find

    return find(made.experiment).of_a_cell(made.settings)


def changed(made, **changes):
    path = made.folder(made.cells[0]) / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"scores": {"mse": 3}}, "scores.mse must be a list, got 3"),
        ({"scores": {"mse": [["x"]]}}, "scores.mse[0][0] must be a finite number, got 'x'"),
        ({"iterations": 10**400}, "iterations must be between -1e100 and 1e100"),
        ({"seconds": "long"}, "seconds must be a finite number, got 'long'"),
        ({"curve": [[1]]}, "curve[0] must have 3 to 3 entries, got 1"),
        ({"probes": nested(200)}, "lists and objects must be nested at most 20 deep"),
        ({"choices": {"method": "MAML"}}, "choices must be {'method': 'CAVIA'"),
    ],
)
def test_a_foreign_result_of_a_cell_is_one_line_with_the_way_out(changes, problem, finished):
    path = changed(finished, **changes)
    with pytest.raises(CaviaError) as error:
        run(finished)
    assert str(path) in str(error.value)
    assert problem in str(error.value)
    assert str(error.value).endswith("delete it to have the cell measured again")


@pytest.mark.parametrize("scores", [{}, {"mse": []}, {"mse": [[1.0], [1.0]]}, {"mse": [[1.0], [[]]]}])
def test_cells_that_cannot_be_summed_up_are_one_line(scores, finished):
    changed(finished, scores=scores)
    with pytest.raises(CaviaError, match=r"cells cannot be summed up \(|must be a finite number") as error:
        run(finished)
    assert "\n" not in str(error.value)


def test_results_of_other_versions_are_not_results(finished):
    changed(finished, format=3)
    assert read_result(finished, finished.cells[0]) is None
    assert CellResult.of({"format": 2, "choices": {}, "more": 1}) is None


# Plans


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = " + "[" * 5000, "is not a plan"),
        ("run = 3", "has no [[run]]"),
        ('[[run]]\nexperiment = "table1"\nset = "quick"\nseeds = 1000000000', "must have at most 10,000 cells"),
        ('[[run]]\nexperiment = "table1"\nset = "quick"\nseeds = 1e400', "seeds must be a whole number"),
        (
            '[[run]]\nexperiment = "table1"\nset = "quick"\nsettings = {iterations = 1' + "0" * 400 + "}",
            "iterations must be at most",
        ),
        ('[[run]]\nexperiment = "tabel1"\nset = "quick"', "did you mean 'table1'?"),
        ('[[run]]\nexperiment = "table1"\nset = "quick"\nsets = 3', "unknown key 'sets'"),
        ("[[run]]\nexperiment = 1979-05-27", 'needs experiment = "…"'),
    ],
)
def test_a_plan_beyond_its_limits_is_one_line_that_names_it(text, problem, tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    assert main(["reproduce", "--plan", str(path), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert problem in error
    assert "Traceback" not in error


def test_a_plan_is_a_file(capsys, tmp_path):
    assert main(["reproduce", "--plan", os.devnull, "--dry-run"]) == 2
    assert "cannot read /dev/null: it is a device" in capsys.readouterr().err
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    assert main(["reproduce", "--plan", str(tmp_path / "plan.toml"), "--dry-run"]) == 2
    assert "not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{",
        "[" * 5000,
        '{"seconds": 1}',
        '{"seconds": 1e300, "iteration": 5}',
        '{"seconds": "a", "iteration": 1}',
        '{"seconds": 1, "iteration": 1' + "0" * 400 + "}",
        '{"seconds": 1' + "0" * 400 + ', "iteration": 1}',
    ],
)
def test_the_state_of_a_plan_does_not_believe_foreign_metrics(line, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('[[run]]\nexperiment = "fig4"\nset = "quick"')
    orders = read_plan(plan, tmp_path / "runs", data=Data())
    folder = orders[0].folder(orders[0].cells[0])
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(line)
    progress = status(orders[0])
    assert (progress.finished, progress.cells, progress.hours) == (0, 1, 0.0)
    assert 0 < progress.left < 1

"""A plan is published row by row, and another machine goes on from what is published."""

import json

import pytest

from cavia.cli import main
from cavia.paper.reproduce import Reproduction
from cavia.paper.running.orders import Order, read_result
from cavia.tensor_file import read_json

TINY = {"iterations": 4, "test_tasks": 8, "validation_tasks": 8, "hidden": 4, "maml_lrs": 0.01}
CONTEXTS = (1, 2)  # one row of the plan each

pytestmark = pytest.mark.slow


def plan(runs, **changes):
    """The execution of a plan with two rows."""
    rows = [{"contexts": context, **TINY, **changes} for context in CONTEXTS]
    return Reproduction([Order("table1", "quick", runs / "quick" / "table1", row, jobs=1) for row in rows], jobs=1)


def row(work, number):
    """The execution of one row alone."""
    return Reproduction([work.orders[number]], jobs=1)


def finished(work):
    return [all(read_result(order, cell) for cell in order.cells) for order in work.orders]


def iterations(order):
    """The iterations of which the metrics of the order's first cell tell."""
    lines = (order.folder(order.cells[0]) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["iteration"] for line in lines]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A machine that has finished the first row of the plan."""
    work = plan(tmp_path_factory.mktemp("first"))
    row(work, 0).run()
    return work


@pytest.fixture
def published(first, tmp_path):
    assert first.publish(tmp_path / "results") == ["table1"]
    return tmp_path / "results"


def test_an_experiment_is_published_with_the_rows_that_are_finished(first, published):
    assert finished(first) == [True, False]
    result = read_json(published / "table1" / "result.json")
    assert result["settings"]["contexts"] == [1]
    assert {cell["context"] for cell in result["cells"]} == {1}


def test_published_cells_are_not_trained_again(first, published, tmp_path):
    second = plan(tmp_path / "second")
    assert second.begin_from(published) == 2
    assert finished(second) == [True, False]
    assert second.begin_from(published) == 0
    for theirs, ours in zip(second.orders[0].cells, first.orders[0].cells, strict=True):
        copied, made = read_result(second.orders[0], theirs), read_result(first.orders[0], ours)
        assert copied.scores["mse"][1] == pytest.approx(made.scores["mse"][1], rel=1e-6)
        assert copied.curve == made.curve


def test_an_unfinished_cell_goes_on_elsewhere(tmp_path):
    first, second = plan(tmp_path / "first"), plan(tmp_path / "second", iterations=8)
    row(first, 0).run()
    for cell in first.orders[0].cells:  # as if it had been stopped
        (first.orders[0].folder(cell) / "result.json").unlink()
    assert first.publish(tmp_path / "results") == []
    assert second.begin_from(tmp_path / "results") == 2
    row(second, 0).run()
    assert iterations(second.orders[0]) == [4, 8]
    row(first, 0).run()
    first.publish(tmp_path / "results")
    assert not list((tmp_path / "results" / "unfinished").rglob("*.safetensors"))  # its place is elsewhere


def test_a_finished_cell_of_an_unfinished_experiment_is_not_trained_again_elsewhere(tmp_path):
    first, second = plan(tmp_path / "first"), plan(tmp_path / "second")
    row(first, 0).run()
    (first.orders[0].folder(first.orders[0].cells[1]) / "result.json").unlink()  # as if it had not been measured yet
    assert first.publish(tmp_path / "results") == []
    assert second.begin_from(tmp_path / "results") == 2
    assert [bool(read_result(second.orders[0], cell)) for cell in second.orders[0].cells] == [True, False]
    row(second, 0).run()
    assert second.publish(tmp_path / "results") == ["table1"]
    assert not list((tmp_path / "results" / "unfinished").rglob("*.*"))


def test_a_longer_run_under_way_is_published_beside_its_shorter_result(tmp_path):
    work, longer = plan(tmp_path / "first"), plan(tmp_path / "first", iterations=8)
    row(work, 0).run()
    work.publish(tmp_path / "results")
    longer.publish(tmp_path / "results")  # its cells have a result of fewer iterations
    begun = tmp_path / "results" / "unfinished" / "table1" / "quick" / "cells" / work.orders[0].cells[0].name
    (begun / "note").write_text("further")
    other = plan(tmp_path / "other", iterations=8)
    assert other.begin_from(tmp_path / "results") == 2
    assert (other.orders[0].folder(other.orders[0].cells[0]) / "note").exists()


def test_the_stages_of_an_unfinished_cell_go_along(tmp_path):
    first, second = plan(tmp_path / "first"), plan(tmp_path / "second")
    stage = first.orders[0].folder(first.orders[0].cells[0]) / "stage-1"
    stage.mkdir(parents=True)
    (stage / "checkpoint.safetensors").write_bytes(b"here")
    first.publish(tmp_path / "results")
    assert second.begin_from(tmp_path / "results") == 1
    copied = second.orders[0].folder(second.orders[0].cells[0]) / "stage-1" / "checkpoint.safetensors"
    assert copied.read_bytes() == b"here"


def test_a_finished_cell_is_published_with_the_checkpoint_that_a_longer_run_needs(tmp_path):
    work = plan(tmp_path / "first")
    row(work, 0).run()
    order = work.orders[0]
    kept = order.folder(order.cells[0]) / "before-cooldown.safetensors"
    kept.write_bytes((kept.parent / "checkpoint.safetensors").read_bytes())
    work.publish(tmp_path / "results")
    longer = plan(tmp_path / "longer", iterations=8)
    longer.begin_from(tmp_path / "results")
    row(longer, 0).run()
    assert iterations(longer.orders[0]) == [4, 8]


def test_a_folder_that_is_not_there_is_one_line(tmp_path, capsys):
    assert main(["reproduce", "--from", str(tmp_path / "none"), "--runs", str(tmp_path / "runs"), "--dry-run"]) == 2
    assert "--from: there is no folder" in capsys.readouterr().err

"""Experiments with processes: what is finished stays, what changed is done again, and processes share the work."""

import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from cavia.cli import main
from cavia.paper.experiment import Cell
from cavia.paper.running import cells as running
from cavia.paper.running.local import LocalWorkers
from cavia.paper.running.orders import Order, read_result
from cavia.paper.running.runner import run, state
from cavia.paper.schema import CellResult
from cavia.paper.training import KEPT, adopt
from cavia.training.checkpoint import RunFolder

TINY = {"contexts": 2, "iterations": 2, "test_tasks": 8, "validation_tasks": 8, "hidden": 4}
CAVIA = Cell({"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": 0})
MAML = Cell({"method": "MAML", "context": 2, "inner_lr": 0.01, "seed": 0})


def order(out, remeasure=False, **changes):
    return Order("table1", "quick", out, TINY | changes, remeasure=remeasure)


def command(out, **changes):
    settings = (f"--set={name}={value}" for name, value in (TINY | changes).items())
    return ["run", "table1", "--out", str(out), *settings]


@pytest.fixture
def finished(tmp_path):
    """A tiny run of table1."""
    run(order(tmp_path / "table1"))
    return tmp_path / "table1"


def stamps(out, name):
    """When the cells' files of this name were written."""
    return [path.stat().st_mtime_ns for path in sorted(out.glob(f"cells/*/{name}"))]


def result_file(out, cell):
    return out / "cells" / cell.name / "result.json"


# What is finished stays


def test_a_result_has_all_that_says_how_it_was_made(finished):
    result = json.loads((finished / "result.json").read_text())
    assert result["command"] == "cavia run table1 --quick " + " ".join(f"--set {k}={v}" for k, v in TINY.items())
    assert (result["budget"], result["seeds"]) == ("own", 1)
    assert result["settings"]["contexts"] == [2]
    assert [cell["method"] for cell in result["cells"]] == ["CAVIA", "MAML"]
    assert result["commits"] == sorted({commit for cell in result["cells"] for commit in cell["commits"]})
    assert result["seconds"] == pytest.approx(sum(cell["seconds"] for cell in result["cells"]), abs=0.1)
    assert len(result["tables"]) == len(result["claims"]) == 1


def test_choices_of_a_cell_are_not_hidden_by_what_was_found_out(tmp_path):
    fig4 = Order("fig4", "quick", tmp_path / "fig4", {name: TINY[name] for name in TINY if name != "contexts"})
    assert [cell["context"] for cell in run(fig4)["cells"]] == [2]


def test_what_is_finished_is_not_done_again(finished):
    before = stamps(finished, "result.json")
    run(order(finished))
    assert stamps(finished, "result.json") == before
    assert state(order(finished)) == "finished"


def test_the_state_counts_finished_cells(finished):
    (finished / "result.json").unlink()
    assert state(order(finished)) == "2 of 2 cells"
    result_file(finished, MAML).unlink()
    assert state(order(finished)) == "1 of 2 cells"
    assert state(order(finished, test_tasks=9)) == "not run"
    assert state(order(finished.with_name("nowhere"))) == "not run"


# What changed is done again


def test_other_measurements_are_taken_without_training(finished):
    checkpoints, metrics = (stamps(finished, name) for name in ("checkpoint.safetensors", "metrics.jsonl"))
    before = read_result(order(finished), CAVIA)
    run(order(finished, test_tasks=5, steps=3))
    assert read_result(order(finished), CAVIA) is None
    after = read_result(order(finished, test_tasks=5, steps=3), CAVIA)
    assert [len(step) for step in after.scores["mse"]] == [5] * 4
    assert after.seconds == before.seconds
    assert stamps(finished, "checkpoint.safetensors") == checkpoints
    assert len(stamps(finished, "metrics.jsonl")) == len(metrics)


def test_remeasure_measures_and_nothing_else_does(finished):
    checkpoints = stamps(finished, "checkpoint.safetensors")
    path = result_file(finished, CAVIA)
    truth = json.loads(path.read_text())
    path.write_text(json.dumps(truth | {"scores": {"mse": [[9.0] * 8] * 2}}))
    assert run(order(finished))["tables"][0]["rows"][0]["cells"][0]["ours"]["mean"] == 9.0
    run(order(finished, remeasure=True))
    assert json.loads(path.read_text())["scores"] == truth["scores"]
    assert stamps(finished, "checkpoint.safetensors") == checkpoints


def test_remeasure_has_a_flag(finished):
    before = stamps(finished, "result.json")
    assert main([*command(finished), "--remeasure"]) == 0
    assert all(new > old for new, old in zip(stamps(finished, "result.json"), before, strict=True))


@pytest.mark.slow
def test_a_cell_that_diverged_is_not_trained_again_to_be_measured(tmp_path):
    out = tmp_path / "table1"
    result = run(order(out, maml_lrs=1e30))
    assert "diverged" in result["cells"][1]
    assert result["tables"][0]["rows"][1]["cells"] == [None]
    before = stamps(out, "result.json")
    run(order(out, maml_lrs=1e30, remeasure=True))
    after = stamps(out, "result.json")
    assert [new > old for new, old in zip(after, before, strict=True)] == [True, False]


def test_a_result_of_an_older_version_is_measured_again(finished):
    checkpoints = stamps(finished, "checkpoint.safetensors")
    path = result_file(finished, CAVIA)
    new = json.loads(path.read_text())
    path.write_text(json.dumps({"method": "CAVIA", "mse": [3.0, 0.2], "interval": [0.1, 0.1], "validation": 0.2}))
    assert read_result(order(finished), CAVIA) is None
    run(order(finished))
    assert CellResult.of(json.loads(path.read_text())).scores == new["scores"]
    assert stamps(finished, "checkpoint.safetensors") == checkpoints


def test_more_iterations_go_on(finished):
    run(order(finished, iterations=3))
    lines = (finished / "cells" / CAVIA.name / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [2, 3]
    assert read_result(order(finished, iterations=3), CAVIA).iterations == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.5}, "holds a run of another configuration: lr is 0.001 there and 0.5 here; use another folder"),
        ({"iterations": 1}, "iterations is 2 there and 1 here"),
    ],
)
def test_another_training_in_the_same_folder_is_one_line(finished, capsys, changes, message):
    assert main(command(finished, **changes)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert sum("cavia: " in line for line in error.splitlines()) == 1
    assert "Traceback" not in error


def test_other_cells_join_those_that_are_there(finished, capsys):
    assert main(command(finished, contexts="2,3")) == 0
    assert "2 of 4 cells are finished already" in capsys.readouterr().err
    assert len(json.loads((finished / "result.json").read_text())["cells"]) == 4


# Processes share the work


class Lock(threading.Thread):
    """Works on cells, as another process would, until it is told to end."""

    def __init__(self, out, *cells):
        super().__init__(daemon=True)
        self.folders = [RunFolder(out / "cells" / cell.name) for cell in cells]
        self.is_at_work, self.may_end = threading.Event(), threading.Event()
        self.start()
        assert self.is_at_work.wait(60)

    def run(self):
        with ExitStack() as stack:
            for folder in self.folders:
                stack.enter_context(folder.lock())
            self.is_at_work.set()
            self.may_end.wait(600)


@pytest.mark.slow
def test_a_cell_of_another_process_is_waited_for_while_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PATIENCE", 0.2)
    out = tmp_path / "table1"
    lock = Lock(out, CAVIA)
    seen = []

    def wait_for_the_other():
        while not result_file(out, MAML).exists():
            time.sleep(0.05)
        seen.append(result_file(out, CAVIA).exists())
        lock.may_end.set()

    threading.Thread(target=wait_for_the_other, daemon=True).start()
    result = run(order(out))
    assert seen == [False]  # it was still locked when the other one was finished
    assert [cell["method"] for cell in result["cells"]] == ["CAVIA", "MAML"]


@pytest.mark.slow
def test_busy_cells_are_looked_at_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PATIENCE", 0.7)
    out = tmp_path / "table1"
    lock = Lock(out, CAVIA, MAML)
    times, start = {CAVIA.name: [], MAML.name: []}, LocalWorkers.start

    def noted(self, order, cell):
        times[cell.name].append(time.monotonic())
        if min(map(len, times.values())) == 3:
            lock.may_end.set()
        return start(self, order, cell)

    monkeypatch.setattr(LocalWorkers, "start", noted)
    result = run(order(out))
    assert len(result["cells"]) == 2
    for looks in times.values():
        assert len(looks) >= 3
        assert all(later - earlier > 0.7 for earlier, later in pairwise(looks))


@pytest.mark.slow
def test_two_runners_share_an_experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PATIENCE", 0.3)
    ours = order(tmp_path / "table1", contexts="2,3", iterations=60)
    with ThreadPoolExecutor(1) as other:  # its cells have processes of their own, as ours have
        theirs = other.submit(run, ours)
        result = run(ours)
        assert theirs.result(600)["tables"] == result["tables"]
    assert len(result["cells"]) == 4
    for cell in (tmp_path / "table1" / "cells").iterdir():
        lines = (cell / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == [60]  # trained once


def test_a_cell_that_two_want_to_take_over_is_taken_over_once(tmp_path, monkeypatch):
    """The other one is faster between our look and our step."""
    run(order(tmp_path / "theirs"))
    ours = tmp_path / "ours" / "cells" / CAVIA.name
    rename = Path.rename

    def too_late(path, target):
        if target == ours and not ours.exists():
            shutil.copytree(path, ours)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", too_late)
    config = json.loads((tmp_path / "theirs" / "cells" / CAVIA.name / "config.json").read_text())
    adopt(ours, config)
    assert sorted(path.name for path in ours.iterdir()) == sorted({*KEPT} - {"before-cooldown.safetensors"})
    assert [path.name for path in ours.parent.iterdir()] == [ours.name]  # nothing half-done beside it

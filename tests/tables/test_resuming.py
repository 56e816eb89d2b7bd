"""`cavia fit` loses nothing: what was stopped goes on to the same model, and what is finished leaves no folder."""

import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

import cavia
from cavia.cli import main
from cavia.errors import Busy, Diverged
from cavia.tables.resuming import folder_beside
from cavia.training import run
from cavia.training.checkpoint import RunFolder
from tests.cli.test_tables import write_table

ABOUT = {"table": {"sha256": "a"}, "columns": {}, "lr": 0.1, "hidden": [4], "iterations": 10}


def order(folder, *more, table="table.csv", iterations=20):
    words = ["fit", folder / table, "--task", "user_id", "--target", "y", "--out", folder / "model.cavia", *more]
    return [str(word) for word in (*words, "--iterations", iterations, "--hidden", 8, "--context", 2)]


@pytest.fixture
def folder(tmp_path):
    write_table(tmp_path / "other.csv", range(31))
    return write_table(tmp_path / "table.csv", range(30)).parent


@pytest.fixture
def stopped(folder, monkeypatch):
    """A folder in which a fit was stopped at its fourth checkpoint, of one after each step."""
    saved, save = [], RunFolder.save

    def save_and_stop(self, *arguments):
        save(self, *arguments)
        saved.append(1)
        if len(saved) == 4:
            raise KeyboardInterrupt("enough")

    with monkeypatch.context() as patch:
        patch.setattr(run, "CHECKPOINT_AFTER", 0.0)
        patch.setattr(RunFolder, "save", save_and_stop)
        assert main(order(folder)) == 130
    assert (folder / "model.cavia.run" / "checkpoint.safetensors").exists()
    assert not (folder / "model.cavia").exists()
    return folder


def test_what_was_stopped_goes_on_to_the_same_model(stopped):
    assert main(order(stopped)) == 0
    resumed = load_file(stopped / "model.cavia")
    assert not (stopped / "model.cavia.run").exists()
    assert main(order(stopped)) == 0  # from the beginning
    for name, value in load_file(stopped / "model.cavia").items():
        assert torch.equal(value, resumed[name])


def test_other_settings_and_other_tables_are_refused(stopped, capsys):
    for other, message in (
        (order(stopped, "--lr", 0.01), "holds an unfinished fit of a table with lr 0.001, here it is 0.01"),
        (order(stopped, "--seed", 3), "with seed 0, here it is 3"),
        (order(stopped, "--order", "ordered"), "with order random, here it is ordered"),
        (order(stopped, "--inputs", "x"), "or of other columns of it"),
        (order(stopped, table="other.csv"), "holds an unfinished fit of another table"),
        (order(stopped, iterations=10), "with iterations 20, here it is 10"),
    ):
        assert main(other) == 2
        said = capsys.readouterr().err
        assert message in said
        assert "run that one again to finish it, or delete the folder" in said
        assert said.count("\n") == 1
    assert main(order(stopped, iterations=30)) == 0  # longer is no other fit


@pytest.mark.slow
def test_a_killed_fit_loses_nothing(folder):
    code = "import sys, cavia.cli, cavia.training.run as run; run.CHECKPOINT_AFTER = 0; cavia.cli.main(sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", code, *order(folder, iterations=300)])
    checkpoint = folder / "model.cavia.run" / "checkpoint.safetensors"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert main(order(folder, iterations=300)) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["model.cavia", "other.csv", "table.csv"]


def test_nothing_stays_when_nothing_was_learned(tmp_path):
    out = tmp_path / "m.cavia"
    for error in (Diverged("x"), cavia.CaviaError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)), folder_beside(out, ABOUT):
            raise error
        assert not list(tmp_path.iterdir())


def test_a_folder_that_was_being_deleted_is_begun_anew(tmp_path):
    run_folder = tmp_path / "m.cavia.run"
    run_folder.mkdir()
    (run_folder / "checkpoint.safetensors").write_text("")
    with folder_beside(tmp_path / "m.cavia", ABOUT) as there:
        assert not there.checkpoint.exists()
    assert not run_folder.exists()


def test_a_folder_of_something_else_stays(tmp_path):
    (tmp_path / "m.cavia.run").mkdir()
    (tmp_path / "m.cavia.run" / "thesis.txt").write_text("")
    with (
        pytest.raises(cavia.CaviaError, match=r"it holds 'thesis.txt'; move it away"),
        folder_beside(tmp_path / "m.cavia", ABOUT),
    ):
        pass
    assert (tmp_path / "m.cavia.run" / "thesis.txt").exists()


def test_two_fits_with_one_output_are_kept_apart(tmp_path):
    with (
        folder_beside(tmp_path / "m.cavia", ABOUT),
        pytest.raises(Busy, match=r"another process is at work in .*m.cavia.run"),
        folder_beside(tmp_path / "m.cavia", ABOUT),
    ):
        pass

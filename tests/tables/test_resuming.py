"""`cavia fit` loses nothing: what was stopped goes on to the same model, and what is finished leaves no folder."""

import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

import cavia
from cavia.cli import main
from cavia.errors import Busy, Diverged
from cavia.tables import fitting
from cavia.tables.resuming import folder_beside
from tests.cli.test_tables import write_table

ABOUT = {"table": {"sha256": "a"}, "columns": {}, "lr": 0.1, "hidden": [4], "iterations": 10}


def order(folder, *more):
    words = ["fit", folder / "table.csv", "--task", "user_id", "--target", "y", "--out", folder / "model.cavia", *more]
    return [str(word) for word in (*words, "--iterations", 40, "--hidden", 8, "--context", 2)]


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path / "table.csv", range(30)).parent


def stopping(monkeypatch, error, at=None):
    """Let the next fit stop, after a checkpoint if there is a number of iterations to do before."""
    fit = fitting.fit

    def stopped(learner, family, iterations, **options):
        if at is not None:
            options["outer"] = options["outer"].__class__(lr=options["outer"].lr, cooldown=0.3)

            def show(progress):
                raise error

            options["progress"] = show
            options["validation"] = cavia.Validation(options["validation"].tasks, every=at, query=family.query)
        else:
            raise error
        return fit(learner, family, iterations, **options)

    monkeypatch.setattr(fitting, "fit", stopped)


def test_a_fit_that_was_stopped_goes_on_to_the_same_model(table, capsys):
    """In a process of its own, which Ctrl-C is for."""
    assert main(order(table)) == 0
    whole = load_file(table / "model.cavia")
    (table / "model.cavia").unlink()
    long = [word if word != "40" else "100000" for word in order(table)]
    process = subprocess.Popen([sys.executable, "-m", "cavia", *long], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    run = table / "model.cavia.run"
    while not (run / "config.json").exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"run the same again to go on" in error
    assert (run / "checkpoint.safetensors").exists()
    capsys.readouterr()
    assert main([*order(table, "--lr", "0.01")]) == 2
    said = capsys.readouterr().err
    assert "model.cavia.run holds an unfinished fit of the same table with" in said
    assert said.count("\n") == 1
    write_table(table / "other.csv", range(31))
    assert main([str(table / "other.csv") if word.endswith("table.csv") else word for word in long]) == 2
    assert "an unfinished fit of another table" in capsys.readouterr().err
    assert whole.keys()

"""A run names the code that trained it."""

import subprocess
from pathlib import Path

import pytest

import cavia
from cavia.commit import this_commit
from cavia.tensor_file import read_json

TOP = Path(cavia.__file__).parents[2]


def fit(folder, **changes):
    learner = cavia.CAVIA(cavia.MLP(1, 1), "mse")
    cavia.fit(learner, cavia.Sine(), run_dir=folder, validation=cavia.Validation(0, every=1), progress=False, **changes)


@pytest.mark.skipif(not (TOP / ".git").exists(), reason="cavia does not run from a checkout here")
def test_it_is_the_checkouts_commit():
    head = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=TOP, text=True).strip()
    assert this_commit().rstrip("+") == head


def test_outside_a_checkout_it_is_the_version(monkeypatch):
    monkeypatch.setenv("PATH", "")  # no git
    this_commit.cache_clear()
    assert this_commit() == f"version {cavia.__version__}"
    this_commit.cache_clear()


def test_a_run_folder_lists_all_commits_that_trained_it_and_goes_on(tmp_path, monkeypatch):
    fit(tmp_path, iterations=1)
    assert read_json(tmp_path / "config.json")["commits"] == [this_commit()]
    monkeypatch.setattr("cavia.training.checkpoint.this_commit", lambda: "another")
    fit(tmp_path, iterations=2)
    assert read_json(tmp_path / "config.json")["commits"] == [this_commit(), "another"]

"""Figures 6 and 7: runs through the command line, and what they measure."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from cavia.cli import main
from cavia.errors import CaviaError
from cavia.paper.catalogue import find
from cavia.paper.experiment import Cell
from tests.paper.cells import train

SMALL = {
    "iterations": 2, "tasks_per_batch": 2, "rollouts": 2, "horizon": 6, "test_tasks": 3, "test_rollouts": 2,
    "updates": 1, "every": 1, "validation_tasks": 2, "hidden": (8,),
}  # fmt: skip
TINY = [f"--set={name}={8 if name == 'hidden' else value}" for name, value in SMALL.items()]


@pytest.fixture(scope="module")
def navigation(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "fig7a"
    assert main(["run", "fig7a", "--out", str(out), *TINY]) == 0
    return out


def cell(out, method="CAVIA"):
    return next(out.glob(f"cells/{method}-*"))


def test_a_run_has_a_table_a_figure_and_claims(navigation):
    result = json.loads((navigation / "result.json").read_text())
    assert [row["label"] for row in result["tables"][0]["rows"]] == [
        "CAVIA, sampled actions", "CAVIA, mean actions", "MAML, sampled actions", "MAML, mean actions",
    ]  # fmt: skip
    assert result["tables"][0]["columns"] == ["0", "1"]
    assert len(result["claims"]) == 3


def test_neighbouring_experiments_take_over_each_others_training(navigation):
    rates = ["--set=rates=1.0", *TINY]
    assert main(["run", "fig7b", "--out", str(navigation.parent / "fig7b"), *rates]) == 0
    ours, theirs = (
        json.loads((cell(navigation.parent / name) / "result.json").read_text()) for name in ("fig7a", "fig7b")
    )
    assert ours["seconds"] == theirs["seconds"]


def children(pid, word):
    """The processes that this one has started with such a word in their command lines; none if it has ended."""
    started = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if word in Path(f"/proc/{child}/cmdline").read_bytes():
                started.append(int(child))
    return started


def killed(order, out):
    """What the command says when its worker is killed after a checkpoint; None if it was finished before that."""
    with subprocess.Popen(order, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(out.glob("cells/*/checkpoint.safetensors")):
            time.sleep(0.05)
        workers = [one for server in children(process.pid, b"forkserver") for one in children(server, b"forkserver")]
        assert len(workers) <= 1
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        _, error = process.communicate(timeout=300)
    if process.returncode == 0:
        return None
    assert process.returncode == 2
    return error


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the worker")
def test_a_killed_worker_is_one_clear_error_and_the_run_goes_on(tmp_path):
    for attempt in range(5):  # we may be slower than the run
        out = tmp_path / str(attempt) / "fig7c"
        order = [sys.executable, "-m", "cavia", "run", "fig7c", "--out", str(out), "--jobs", "1", *TINY]
        order = [text.replace("iterations=2", "iterations=60") for text in order]
        if error := killed(order, out):
            break
    assert error
    assert "its process ended with code -9 before it was finished" in error
    assert "Traceback" not in error
    assert main(order[3:]) == 0
    metrics = [json.loads(line) for line in (cell(out) / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in metrics] == list(range(1, 61))


# What is measured


def test_a_later_rate_changes_what_comes_after_the_first_update_only(tmp_path):
    changes = SMALL | {"updates": 2, "later_rates": (1.0, 0.25), "context": 2}
    cell = Cell({"method": "CAVIA", "context": 2, "inner_lr": 10.0, "seed": 0})
    scores = train("fig7a", tmp_path, cell, **changes).scores
    assert scores.keys() == {f"{kind} {rate}" for kind in ("sampled", "mean", "validation") for rate in ("1", "0.25")}
    whole, smaller = scores["sampled 1"], scores["sampled 0.25"]
    assert np.shape(whole) == (3, 3)  # updates 0, 1 and 2; tasks
    assert whole[:2] == smaller[:2]
    assert whole[2] != smaller[2]
    assert scores["validation 1"][0] != whole[0]  # other goals


def test_the_embedding_knows_its_goals(tmp_path):
    cell = Cell({"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": 0})
    probes = train("fig7c", tmp_path, cell, **SMALL | {"test_tasks": 9}).probes
    assert {name: np.shape(values) for name, values in probes.items()} == {
        "contexts": (9, 2), "goals": (9, 2), "r2": (2,), "alignment": (2, 2),
    }  # fmt: skip
    told = train("fig7c", tmp_path / "more", cell, **SMALL | {"test_tasks": 12}).probes  # of nine nothing is said
    assert told["linear"].keys() == told["non-linear"].keys() == {"goal, x", "goal, y"}
    expected = np.corrcoef(np.array(probes["contexts"])[:, 0], np.array(probes["goals"])[:, 1])[0, 1]
    assert probes["alignment"][0][1] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(CaviaError, match="context must be 2, to be drawn in a plane, got 3"):
        find("fig7c").settings("quick", {"context": 3})

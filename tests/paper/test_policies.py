"""Experiments with policies through the command line, what they conclude, and moving pictures of them."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import cavia.tools.watch
from cavia.cli import main
from cavia.errors import CaviaError
from cavia.evaluation.probes import linear_r2
from cavia.paper.catalogue import find
from cavia.experiments.reinforcement_summary import rates_summary, updates_summary

TINY = [
    f"--set={change}"
    for change in (
        "iterations=2", "tasks_per_batch=2", "rollouts=2", "horizon=6", "test_tasks=3", "test_rollouts=2", "updates=1",
        "every=1", "validation_tasks=2", "hidden=8",
    )
]  # fmt: skip


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


def test_neighbouring_experiments_take_over_each_others_training(navigation, capsys):
    rates = ["--set=rates=1.0", *TINY]
    assert main(["run", "fig7b", "--out", str(navigation.parent / "fig7b"), *rates]) == 0
    ours, theirs = (
        json.loads((cell(navigation.parent / name) / "result.json").read_text()) for name in ("fig7a", "fig7b")
    )
    assert ours["seconds"] == theirs["seconds"]


def children(pid, word):
    """The processes that this one has started with such a word in their command lines."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if word in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the worker")
def test_a_killed_worker_is_one_clear_error_and_the_run_goes_on(tmp_path):
    out = tmp_path / "fig7c"
    order = [sys.executable, "-m", "cavia.cli", "run", "fig7c", "--out", str(out), "--jobs", "1", *TINY]
    order = [text.replace("iterations=2", "iterations=120") for text in order]
    process = subprocess.Popen(order, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("cells/*/checkpoint.safetensors")):
        assert time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.05)
    (server,) = children(process.pid, b"forkserver")
    (worker,) = children(server, b"forkserver")
    os.kill(worker, signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "its process ended with code -9 before it was finished" in error
    assert "Traceback" not in error
    assert main(order[3:]) == 0
    metrics = [json.loads(line) for line in (cell(out) / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in metrics] == list(range(1, 121))


def test_evaluate_scores_a_policy(navigation, capsys):
    assert main(["evaluate", str(cell(navigation)), "--tasks", "3", "--steps", "2"]) == 0
    assert "return after 2 steps" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "size"), [("way.gif", (480, 240)), ("way.png", (8 * 240, 2 * 240))])
def test_watch_navigation(navigation, tmp_path, capsys, name, size):
    assert main(["watch", str(cell(navigation)), "--updates", "1", "--task", "3", "--out", str(tmp_path / name)]) == 0
    assert "return after 0 … 1 updates, mean actions: " in capsys.readouterr().out
    with Image.open(tmp_path / name) as picture:
        assert picture.size == size
        assert getattr(picture, "n_frames", 1) == (1 if name.endswith("png") else 6)


def test_watch_the_cheetah_without_opengl(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mujoco", reason='needs pip install "cavia[rl]"')
    pytest.importorskip("gymnasium", reason='needs pip install "cavia[rl]"')
    out = tmp_path / "fig6a"
    assert main(["run", "fig6a", "--out", str(out), "--set=context=3", *TINY]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    order = ["watch", str(cell(out)), "--updates", "1", "--out", str(tmp_path / "cheetah.gif")]

    monkeypatch.setattr(cavia.tools.watch, "opengl_problem", lambda: "no driver")
    assert main(order) == 0
    assert "no off-screen OpenGL here (no driver): limbs drawn as lines" in capsys.readouterr().out
    with Image.open(tmp_path / "cheetah.gif") as picture:
        assert picture.size == (480, 480)
        picture.seek(1)
    pictures = cavia.tools.watch.Watched(cell(out), 0, 0).frames[0]
    assert min(frame.min() for frame in pictures) < 60  # there is a cheetah in every one of them


def test_a_driver_that_aborts_is_a_reason(monkeypatch):
    pytest.importorskip("mujoco", reason='needs pip install "cavia[rl]"')
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    cavia.tools.watch.opengl_problem.cache_clear()
    assert cavia.tools.watch.opengl_problem()
    cavia.tools.watch.opengl_problem.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no trained model nowhere"),
        (["{cell}", "--out", "way.mp4"], "--out must be a .gif or a .png, got way.mp4"),
        (["{cell}", "--task", "-1"], "task must be at least 0, got -1"),
        (["{cell}", "--updates", "-1"], "updates must be at least 0, got -1"),
    ],
)
def test_misuse_of_watch_is_one_line(navigation, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", *(text.format(cell=cell(navigation)) for text in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_only_policies_can_be_watched(tmp_path, capsys):
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=1), "mse")
    cavia.fit(learner, cavia.Sine(), 1, run_dir=tmp_path, progress=False, validation_tasks=0)
    learner.save(tmp_path / "model.cavia")
    assert main(["watch", str(tmp_path)]) == 2
    assert "is not the run of a policy" in capsys.readouterr().err


def result(method, rate, after, seed=0, validation=None):
    return {
        "method": method, "inner_lr": rate, "seed": seed, "validation": after if validation is None else validation,
        "sampled": [-40.0, after, after], "sampled_interval": [2.0] * 3, "mean": [-39.0, after + 1, after + 1],
        "mean_interval": [2.0] * 3, "gain": [0.0, after + 40, after + 40], "gain_interval": [0.0, 2.0, 2.0],
        "curve": [[10, after, 1.0]], "seconds": 1.0, "iterations": 10,
    }  # fmt: skip


def test_the_rate_that_validates_best_is_reported_and_adaptation_must_pay():
    settings = replace(find("fig7a").quick, maml_lrs=(0.1, 1.0))
    results = [
        result("CAVIA", 1.0, -15.0), result("MAML", 0.1, -39.0, validation=-12.0),
        result("MAML", 1.0, -10.0, validation=-13.0),
    ]  # fmt: skip
    summary = updates_summary(settings, results, name="fig7a", cavia_is_above=True)
    assert summary["tables"][0]["rows"][2]["cells"][1]["ours"]["mean"] == -39.0
    assert [claim["holds"] for claim in summary["claims"]] == [True, False, True]


@pytest.mark.parametrize(("maml", "above", "par"), [(-14.0, False, True), (-16.0, True, True), (-20.0, True, False)])
def test_returns_after_one_update_are_compared_as_the_paper_does(maml, above, par):
    results = [result("CAVIA", 1.0, -15.0), result("MAML", 0.1, maml)]
    for cavia_is_above, holds in ((True, above), (False, par)):
        summary = updates_summary(find("fig7a").quick, results, "fig7a", cavia_is_above)
        assert summary["claims"][-1]["holds"] is holds


def test_rates_are_good_if_they_keep_most_of_the_best_gain_and_a_diverged_one_is_a_gap():
    settings = replace(find("fig7b").quick, rates=(0.1, 1.0))
    lost = {"method": "MAML", "inner_lr": 1.0, "seed": 0, "diverged": "…"}
    results = [result("CAVIA", 0.1, -17.0), result("CAVIA", 1.0, -15.0), result("MAML", 0.1, -14.0), lost]
    summary = rates_summary(settings, results)
    assert [claim["holds"] for claim in summary["claims"]] == [True, True]
    assert summary["figures"][0]["series"][1]["y"] == [-14.0, None]


def test_cells_of_an_older_version_are_named():
    old = {key: value for key, value in result("CAVIA", 1.0, -15.0).items() if not key.startswith("gain")}
    with pytest.raises(CaviaError, match="older cavia, without gains; delete"):
        updates_summary(find("fig7a").quick, [old], name="fig7a", cavia_is_above=False)


def test_numbers_that_are_not_finite_leave_a_gap_and_no_traceback():
    lost = result("CAVIA", 1.0, -15.0) | {"sampled_interval": [None] * 3, "curve": [[10, None, 1.0]]}
    summary = updates_summary(find("fig7a").quick, [lost], name="fig7a", cavia_is_above=False)
    assert summary["tables"][0]["rows"][0]["cells"][0]["ours"]["interval"] == math.inf  # in JSON null again
    assert summary["figures"][1]["series"][0]["y"] == [None]


def test_linear_r2():
    points = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    values = torch.stack([3 * points[:, 0] - points[:, 1] + 2, torch.randn(50)], 1)
    found = linear_r2(points, values)
    assert found[0] > 0.9999
    assert found[1] < 0.3


def test_gif_frames_are_encoded_in_order():
    frames = [torch.full((4, 4, 3), value, dtype=torch.uint8).numpy() for value in (0, 120, 250)]
    content = cavia.tools.watch._encoded(frames, "GIF")
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.n_frames == 3

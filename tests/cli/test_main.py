"""The command line: what works, and what misuse gets: one line, exit code 2, nothing half-written."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cavia.cli import main

TINY = ["--set", "iterations=2", "--set", "test_tasks=8", "--set", "validation_tasks=8", "--set", "hidden=4"]
CAVIA = [sys.executable, "-m", "cavia"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tiny run of table1."""
    out = tmp_path_factory.mktemp("runs") / "table1"
    assert main(["run", "table1", "--out", str(out), "--set", "contexts=2", *TINY]) == 0
    return out


def test_a_run_writes_its_result_with_the_command(finished):
    result = json.loads((finished / "result.json").read_text())
    assert result["command"].startswith("cavia run table1 --quick --set contexts=2")
    assert result["budget"] == "own"  # settings were changed: not to be taken for a quick or full run
    cells = result["tables"][0]["rows"][0]["cells"]
    assert cells[0]["paper"] == {"mean": 0.21, "interval": 0.02}
    for name in ("config.json", "metrics.jsonl", "checkpoint.safetensors", "result.json", "model.cavia"):
        assert (finished / "cells" / "CAVIA-context=2-inner_lr=1-seed=0" / name).exists()


def test_finished_cells_are_skipped_and_more_seeds_add_cells(finished, capsys):
    stamps = {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/result.json")}
    assert main(["run", "table1", "--out", str(finished), "--seeds", "2", "--set", "contexts=2", *TINY]) == 0
    assert "2 of 4 cells are finished already" in capsys.readouterr().err
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


def test_evaluate_scores_the_model_of_a_cell(finished, capsys):
    cell = finished / "cells" / "CAVIA-context=2-inner_lr=1-seed=0"
    assert main(["evaluate", str(cell), "--steps", "2", "--tasks", "10"]) == 0
    assert "mse after 2 steps" in capsys.readouterr().out
    assert main(["evaluate", str(finished)]) == 2
    assert "an experiment's models are in" in capsys.readouterr().err


def test_report_writes_a_page(finished, tmp_path, capsys):
    assert main(["report", str(finished), "--out", str(tmp_path / "report")]) == 0
    assert "0.21" in (tmp_path / "report" / "index.html").read_text()


def test_list_shows_what_there_is(tmp_path, capsys):
    assert main(["list", "--runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("table1", "fig3a", "fig3b", "fig3c", "fig4"))
    assert "finished" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) < 60  # readable in a terminal of 80 columns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "tabel1"], "unknown experiment 'tabel1'; did you mean 'table1'?"),
        (["run", "table1", "--set", "iteration=5"], "did you mean 'iterations'?"),
        (["run", "table1", "--set", "iterations=many"], "iterations must be a whole number, got 'many'"),
        (["run", "table1", "--set", "lr=fast"], "lr must be a number, got 'fast'"),
        (["run", "table1", "--set", "contexts=1,x"], "contexts must be a whole number, got 'x'"),
        (["run", "table1", "--set", "iterations"], "--set takes name=value"),
        (["run", "table1", "--set", "iterations=0"], "iterations must be at least 1, got 0"),
        (["run", "table1", "--set", "lr=-1"], "lr must be above 0 and finite, got -1.0"),
        (["run", "table1", "--set", "contexts="], "contexts must be a whole number, got ''"),
        (["run", "table1", "--tuned"], "table1 has no set of settings 'tuned'; it has quick, full"),
        (["run", "table1", "--seeds", "0"], "must be a whole number of at least 1, got '0'"),
        (["run", "table1", "--qick"], "unknown argument '--qick'; did you mean '--quick'?"),
        (["run", "table1", "--quick", "--full"], "not allowed with argument"),
        (["run", "table1", "--device", "gpu"], "device 'gpu' cannot be used here"),
        (["run"], "required: experiment"),
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (["evaluate", "nowhere"], "there is no trained model nowhere"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_training_is_refused(finished, capsys):
    assert main(["run", "table1", "--out", str(finished), "--set", "contexts=2", *TINY, "--set", "lr=0.5"]) == 2
    error = capsys.readouterr().err
    assert "holds a run of another configuration: lr is 0.001 there and 0.5 here; use another folder" in error
    assert "Traceback" not in error


def test_a_run_in_the_folder_that_one_is_in(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "fig4", "--out", ".", *TINY]) == 0
    assert (tmp_path / "result.json").exists()
    assert main(["list", "--runs", str(tmp_path)]) == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_no_space_for_the_output_is_one_line(tmp_path):
    command = f"{' '.join(CAVIA)} list --runs {tmp_path} > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, executable="/bin/bash")
    assert done.returncode == 2
    assert done.stderr.strip() == "cavia: No space left on device"


def test_an_output_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["run", "fig4", "--out", str(tmp_path / "file" / "run"), *TINY]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_one_line(tmp_path, capsys):
    order = ["run", "fig4", "--out", str(tmp_path / "fig4"), *TINY]
    assert main(order) == 0
    cell = next((tmp_path / "fig4" / "cells").iterdir())
    (cell / "result.json").unlink()
    checkpoint = cell / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
    assert main(order) == 2
    assert "checkpoint.safetensors is damaged" in capsys.readouterr().err
    checkpoint.unlink()
    assert main(order) == 0


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_and_the_run_goes_on(tmp_path):
    out = tmp_path / "fig4"
    order = [*CAVIA, "run", "fig4", "--out", str(out), "--set", f"iterations={10**8}", "--set", "hidden=4"]
    process = subprocess.Popen(
        order,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored if we run in a background job
    )
    while not list(out.glob("cells/*/checkpoint.safetensors")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
    _, error = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "run the same command again" in error
    assert "Traceback" not in error
    assert not (out / "result.json").exists()
    metrics = next(out.glob("cells/*/metrics.jsonl"))
    assert json.loads(metrics.read_text().splitlines()[-1])["iteration"] < 10**8


@pytest.mark.slow
def test_output_to_a_closed_pipe_is_no_error(tmp_path):
    command = f"{' '.join(CAVIA)} list --runs {tmp_path} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, executable="/bin/bash")
    assert "Traceback" not in done.stderr


def test_help_and_version(capsys):
    for arguments in (["--help"], ["run", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
    assert "cavia 0." in capsys.readouterr().out

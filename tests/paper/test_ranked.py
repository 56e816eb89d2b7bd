"""Cells on several ranks: the results of one process, and an end in one line."""

import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from cavia.cli import main
from cavia.errors import CaviaError
from cavia.paper.experiment import Cell
from cavia.paper.running.cells import run_cells
from cavia.paper.running.display import Display
from cavia.paper.running.orders import Order
from cavia.paper.running.ranked import RankedWorkers, too_many
from cavia.paper.running.runner import run
from cavia.tensor_file import read_tensors

TINY = {"contexts": 2, "iterations": 20, "test_tasks": 8, "validation_tasks": 8, "hidden": 4}
CELL = Cell({"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": 0})
ENDLESS = 10**8  # iterations: nobody is so late that they are over


def order(out, **changes):
    return Order("table1", "quick", out, TINY | changes, jobs=1)


@pytest.mark.slow
def test_a_cell_on_two_ranks_has_the_result_of_one_process(tmp_path):
    alone, together = run(order(tmp_path / "one")), run(order(tmp_path / "two"), RankedWorkers(1, 2))
    for one, other in zip(alone["cells"], together["cells"], strict=True):
        assert other["validation"] == pytest.approx(one["validation"], rel=1e-4)
        assert other["method"] == one["method"]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_rank_ends_the_cell_in_one_line(tmp_path, killed):
    class Killing(RankedWorkers):
        def start(self, order, cell):
            self.worker = super().start(order, cell)
            return self.worker

        def wait(self, workers, seconds):
            if (order_.folder(CELL) / "config.json").exists() and workers:
                self.worker.processes[killed].kill()
            super().wait(workers, seconds)

    order_, where = order(tmp_path, iterations=ENDLESS), Killing(1, 2)
    with Display("table1", 1, 0) as display, pytest.raises(CaviaError) as raised:
        run_cells([(order_, CELL)], where, display)
    who = (
        "its process ended with code -9",
        "another of the 2 ranks has ended",
        f"rank {killed} of 2 ended with code -9",
    )
    assert str(raised.value).removeprefix(f"table1/{CELL.name}: ").startswith(who)
    assert "(killed, or out of memory?); run the same" in str(raised.value)
    assert all(process.exitcode is not None for process in where.worker.processes)


@pytest.mark.check
def test_ctrl_c_leaves_one_checkpoint_to_go_on_from(tmp_path):
    settings = (f"--set={name}={value}" for name, value in (TINY | {"iterations": ENDLESS}).items())
    command = [
        sys.executable,
        "-m",
        "cavia",
        "run",
        "table1",
        "--ranks=2",
        "--jobs=1",
        "--out",
        str(tmp_path),
        *settings,
    ]
    hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # jobs in the background do not
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hear) as process:
        folder = order(tmp_path).folder(CELL)
        try:
            while not (folder / "config.json").exists():
                assert process.poll() is None
                time.sleep(0.1)
            time.sleep(1.0)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "cavia: stopped; finished cells are kept, run the same command again to resume"
    assert "Traceback" not in said
    assert 0 < read_tensors(folder / "checkpoint.safetensors")[1]["iteration"] < ENDLESS


def test_more_processes_than_cores_are_mentioned(monkeypatch):
    monkeypatch.setattr("cavia.paper.running.ranked.cores", lambda: 4)
    assert too_many(2, 2) is None
    assert (
        too_many(3, 2) == "3 cells at a time on 2 ranks each are 6 processes for 4 cores, which is slower; try --jobs 2"
    )
    assert too_many(1, 8).endswith("try --ranks 4")


def test_ranks_are_for_one_machine(capsys):
    assert main(["run", "table1", "--ranks", "2", "--on", "ray"]) == 2
    assert "--ranks 2 is for this machine" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_misuse_is_one_line(text, capsys):
    assert main(["run", "table1", f"--ranks={text}"]) == 2
    assert capsys.readouterr().err.startswith("cavia: ")


def test_more_ranks_than_memory_are_refused_in_one_line(capsys):
    assert main(["run", "table1", f"--ranks={10**9}"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "--ranks 1000000000) needs about" in said[0]

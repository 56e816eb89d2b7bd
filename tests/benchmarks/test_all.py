"""The entry point of `make bench` writes its page, its numbers and its plot, in the right form."""

import importlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import growth
import peers
import startup

pytestmark = pytest.mark.filterwarnings("ignore")  # of the peers

entry = importlib.import_module("all")  # the name of a built-in
SLOW = [peers.COMPILED, "JAX, jit", "JAX, loop inside", "higher", "torchopt"]  # they compile, or go task by task


@pytest.fixture
def in_this_process(monkeypatch):
    """Run the parts here, and do not time what needs a process of its own; notes which were run."""
    ran = []

    def run(script, *arguments):
        ran.append(script)
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        importlib.import_module(script.removesuffix(".py")).main()

    monkeypatch.setattr(entry, "_run", run)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(startup, "python", lambda *_, **__: "{}")
    monkeypatch.setattr(startup, "_seconds_to_first_iteration", lambda *_: 1.0)
    monkeypatch.setattr(growth, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    return ran


@pytest.mark.check
def test_quick_writes_page_numbers_and_plot(in_this_process, monkeypatch, tmp_path):
    small = ["--rounds", "1", "--seconds", "0.001", "--largest", "16", "--work", "sine, CAVIA", "--without", *SLOW]
    small += ["--out", str(tmp_path / "out"), "--parts", str(tmp_path / "parts")]
    for _ in range(2):  # the second time, everything is there
        monkeypatch.setattr(sys, "argv", ["all.py", "--quick", *small])
        entry.main()
    assert in_this_process == ["steps.py", "adapting.py", "growth.py", "startup.py"]
    written = json.loads((tmp_path / "out" / "bench.json").read_text())
    rows = written["steps"]["sine, CAVIA"]["entrants"]
    assert {peers.RECIPE, peers.EAGER} <= rows.keys()
    assert rows[peers.RECIPE]["times_faster_than_recipe"]["median"] == 1
    for row in rows.values():
        assert row["milliseconds"] > 0
        assert 0 < row["fraction_of_peak"] < 1
        assert row["largest_difference"] < 1e-4
    assert written["growth"].keys() == {"tasks", "inner steps", "context", "width"}
    assert written["adapting"]["tasks"].keys() == {"1", "100", "10000"}
    for rows in written["adapting"]["tasks"].values():
        assert rows.keys() == {peers.RECIPE, "cavia at 3587be9", peers.EAGER}
    page = (tmp_path / "out" / "bench.md").read_text()
    assert all(f"| {name} |" in page for name in rows)
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_exponent_of_a_power_law(power):
    assert growth.exponent({size: 3 * size**power for size in (1, 4, 16, 64)}) == pytest.approx(power)


def test_sizes_reach_the_largest():
    assert growth.sizes("tasks", 4096) == [1, 4, 16, 64, 256, 1024, 4096]
    assert growth.sizes("inner steps", 4096) == [1, 2, 4, 8, 16, 32]
    assert growth.sizes("context", 4096)[-1] == 1024

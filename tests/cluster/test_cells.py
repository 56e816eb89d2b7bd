"""Cells on a Ray cluster of several nodes on this machine: nodes die and come, and the numbers stay the same."""

import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from tests.cluster.nodes import nodes

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves files open
SETTINGS = {"contexts": 2, "iterations": 6000, "test_tasks": 20, "validation_tasks": 20, "hidden": 8}
SECONDS = 600


def command(out, *more):
    return ["run", "table1", "--out", str(out / "table1"), *(f"--set={k}={v}" for k, v in SETTINGS.items()), *more]


@contextmanager
def started(out, address, *more, on="ray"):
    """The command on a cluster, in a process; a function that returns what it has said so far."""
    out.mkdir(parents=True, exist_ok=True)
    said = out / "said"
    with said.open("a") as file:
        order = [sys.executable, "-m", "cavia", *command(out, "--on", on, *more)]
        environment = os.environ | {"RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(order, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield process, said.read_text
    finally:
        process.kill()
        process.wait()


def until(condition, process, said):
    """Wait for what the condition returns, as long as the process runs."""
    for _ in range(5 * SECONDS):
        if value := condition():
            return value
        assert process.poll() is None, said()
        time.sleep(0.2)
    raise AssertionError(f"waited for too long: {said()}")


def free_port():
    """One that nobody is given who asks for any: Linux gives those from 32768 on, Ray's workers take 10002 to 19999."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def wait_for(port):
    """Until the server for clients listens, which the head starts without waiting for it."""
    for _ in range(5 * SECONDS):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
        time.sleep(0.2)
    raise AssertionError("nobody listens there")


def outcome(out):
    """What does not depend on the time that it took: models, metrics and scores of all cells."""
    values = {}
    for cell in sorted((out / "table1" / "cells").iterdir()):
        result = json.loads((cell / "result.json").read_text())
        lines = [json.loads(line) for line in (cell / "metrics.jsonl").read_text().splitlines()]
        metrics = [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
        values[cell.name] = ((cell / "model.cavia").read_bytes(), result["scores"], result["validation"], metrics)
    return values


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    out = tmp_path_factory.mktemp("local")
    order = [sys.executable, "-m", "cavia", *command(out, "--jobs", "2")]
    subprocess.run(order, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return outcome(out)


def first_checkpoint(out):
    return next(iter(out.glob("table1/cells/*/checkpoint.safetensors")), None)


@pytest.mark.check
def test_a_node_dies_under_a_cell_and_a_later_one_takes_it_over(tmp_path, local):
    with nodes(2) as there, started(tmp_path, there.address) as (process, said):
        cell = until(lambda: first_checkpoint(tmp_path), process, said).parent.name
        place = re.search(re.escape(cell) + r": on node \S+ \((\w+)\)", said()).group(1)
        there.kill(next(node for node in there.first if node.node_id.startswith(place)))
        until(lambda: "its node died" in said(), process, said)
        later = there.add()
        assert process.wait(SECONDS) == 0, said()
        assert f"({later.node_id[:8]})" in said()
    assert outcome(tmp_path) == local


@pytest.mark.check
def test_after_the_head_died_the_same_command_goes_on(tmp_path, local):
    shared = tmp_path / "shared"
    kept = ("--storage", str(shared))
    with nodes(2) as there, started(tmp_path, there.address, *kept) as (process, said):
        until(lambda: next(iter(shared.rglob("checkpoint.safetensors")), None), process, said)
        there.kill_head()
        assert process.wait(SECONDS) == 2
        assert said().splitlines()[-1].startswith("cavia: the head of the Ray cluster is gone")
        assert "Traceback" not in said()
    with nodes(2) as there, started(tmp_path, there.address, *kept) as (process, said):
        assert process.wait(SECONDS) == 0, said()
    assert outcome(tmp_path) == local


@pytest.mark.check
def test_a_cluster_is_joined_from_outside(tmp_path):
    port = free_port()
    with nodes(1, ray_client_server_port=port):
        wait_for(port)
        with started(tmp_path, "", "--set=iterations=2", on=f"ray://127.0.0.1:{port}") as (process, said):
            assert process.wait(SECONDS) == 0, said()
    assert {cell: value[3][-1]["iteration"] for cell, value in outcome(tmp_path).items()} == dict.fromkeys(
        outcome(tmp_path), 2
    )


@pytest.mark.check
def test_ctrl_c_keeps_a_checkpoint(tmp_path):
    with nodes(2) as there, started(tmp_path, there.address) as (process, said):
        until(lambda: "iteration" in said(), process, said)
        process.send_signal(2)
        assert process.wait(SECONDS) == 130
        assert "run the same command again to resume" in said().splitlines()[-1]
        assert first_checkpoint(tmp_path)

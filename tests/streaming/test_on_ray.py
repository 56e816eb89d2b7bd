"""Adapting and predicting on a cluster of two nodes, a worker of which is killed."""

import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as parquet
import pytest

import cavia
from cavia.cli import main
from scale import a_worker, same
from tests.cluster.nodes import nodes
from tests.store import server as postgres
from tests.streaming.data import write_lists

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves files open
TASKS = 400


@pytest.mark.check
def test_a_worker_dies_and_every_context_is_there_once(tmp_path, monkeypatch, capsys):
    learner = cavia.pretrained("sine")
    learner.save(tmp_path / "sine.cavia")
    write_lists(tmp_path / "data", TASKS, files=5, rows=40, points=10)
    data = [str(tmp_path / "sine.cavia"), str(tmp_path / "data")]
    try:
        servers = postgres.running()
        with servers as server, nodes(2) as there:
            environment = os.environ | {"RAY_ADDRESS": there.address, "OMP_NUM_THREADS": "1"}
            url = server.url(store="ray")
            order = [sys.executable, "-m", "cavia", "adapt", *data, "--store", url, "--on", "ray"]
            process = subprocess.Popen(order, env=environment, stdin=subprocess.DEVNULL)
            while process.poll() is None and not (pid := a_worker(there.first)):
                time.sleep(0.05)
            os.kill(pid, signal.SIGKILL)
            assert process.wait(600) == 0
            assert main(["adapt", *data, "--store", server.url(store="here")]) == 0
            assert same(url, server.url(store="here"), TASKS)

            order = ["predict", *data, "--contexts", url, "--out"]
            on_ray = [sys.executable, "-m", "cavia", *order, str(tmp_path / "ray"), "--on", "ray"]
            subprocess.run(on_ray, env=environment, check=True, stdin=subprocess.DEVNULL)
            assert main([*order, str(tmp_path / "here")]) == 0
    except postgres.NoServerError as error:
        pytest.skip(str(error))
    assert parquet.read_table(tmp_path / "ray").equals(parquet.read_table(tmp_path / "here"))
    assert "secret-word" not in capsys.readouterr().out

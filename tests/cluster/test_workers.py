"""Cells on a cluster, with a stand-in for Ray: what comes home, what happens when a node dies, what is refused."""

import json
import sys
from types import SimpleNamespace

import pytest

from cavia import CaviaError
from cavia.cli import main
from cavia.cluster import connection, nodes
from cavia.cluster.connection import Cluster
from cavia.cluster.storage import Storage
from cavia.paper.experiment import Cell
from cavia.paper.running import on_node, ray_workers
from cavia.paper.running.on_node import CellOnNode, News, Task
from cavia.paper.running.orders import Order, read_result
from cavia.paper.running.ray_workers import DEATHS, RayWorkers
from cavia.paper.running.workers import INTERRUPTED
from cavia.training.checkpoint import RunFolder

TINY = {"contexts": 2, "iterations": 2, "test_tasks": 8, "validation_tasks": 8, "hidden": 4}
CELL = Cell({"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": 0})
CHECKPOINT = f"table1/cells/{CELL.name}/checkpoint.safetensors"


class NodeDiedError(Exception):
    """As Ray has it."""


class Ray:
    """Answers at once with what a script says: news, or that the node died."""

    exceptions = SimpleNamespace(RayActorError=NodeDiedError)

    def __init__(self, *script):
        self.script, self.tasks, self.killed, self.stopped = list(script), [], 0, 0

    def remote(self, **needs):
        self.needs = needs
        return lambda kind: SimpleNamespace(remote=lambda: self)

    @property
    def begin(self):
        return SimpleNamespace(remote=lambda task: self.tasks.append(task) or "begin")

    @property
    def news(self):
        return SimpleNamespace(remote=lambda seconds: "news")

    @property
    def stop(self):
        return SimpleNamespace(remote=self._stop)

    def _stop(self):
        self.stopped += 1

    def wait(self, references, num_returns=1, timeout=None):
        return (references, []) if self.script else ([], references)

    def get(self, reference):
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor):
        self.killed += 1

    def cluster_resources(self):
        return {"CPU": 4.0, "GPU": 1.0}


BEGUN = News([], {}, None)


@pytest.fixture
def order(tmp_path):
    return Order("table1", "quick", tmp_path / "runs" / "table1", TINY)


def started(order, *script, **options):
    """A worker on a cluster that answers so, and the cluster's Ray."""
    ray = Ray(*script)
    workers = RayWorkers(Cluster(ray, None), **options)
    return workers.start(order, CELL), ray


def test_room_is_what_the_cluster_has_unless_jobs_are_given():
    assert RayWorkers(Cluster(Ray(), None)).room == 5  # one waits
    assert RayWorkers(Cluster(Ray(), None), device="cuda:3").room == 2
    assert RayWorkers(Cluster(Ray(), None), jobs=3).room == 3


def test_a_cell_has_a_core_or_a_gpu_of_its_own(order):
    assert started(order)[1].needs == {"max_restarts": 0, "num_cpus": 1}


def test_on_a_gpu_it_takes_the_one_that_it_sees(order):
    _, ray = started(Order("table1", "quick", order.out, TINY, device="cuda:3"), device="cuda:3")
    assert ray.needs["num_gpus"] == 1
    assert ray.tasks[0].order.device == "cuda"


def test_a_node_that_dies_costs_no_more_than_since_the_last_checkpoint(order):
    worker, ray = started(order, BEGUN, News([], {CHECKPOINT: b"half"}, None), NodeDiedError())
    for _ in range(3):
        said = worker.news()
    assert said == ["its node died; it resumes elsewhere from its last checkpoint"]
    assert [dict(task.files) for task in ray.tasks] == [{}, {CHECKPOINT: b"half"}]
    assert (order.folder(CELL) / "checkpoint.safetensors").read_bytes() == b"half"
    assert worker.exitcode is None


@pytest.mark.parametrize("code", [-9, 255])
def test_a_process_that_was_killed_goes_on_elsewhere(order, code):
    worker, ray = started(order, BEGUN, News([], {CHECKPOINT: b"half"}, None), News([], {}, code))
    for _ in range(3):
        said = worker.news()
    assert said == ["its process was killed; it resumes elsewhere from its last checkpoint"]
    assert dict(ray.tasks[-1].files) == {CHECKPOINT: b"half"}
    assert (ray.killed, worker.exitcode) == (1, None)


def test_a_cell_whose_nodes_all_die_gives_up(order):
    worker, _ = started(order, *(NodeDiedError() for _ in range(DEATHS + 1)))
    said = [line for _ in range(DEATHS + 1) for line in worker.news()]
    assert "its node died 6 times before it wrote a checkpoint" in str(said[-1])
    assert worker.exitcode == 2


def test_a_node_without_cavia_is_one_line(order):
    worker, _ = started(order, NodeDiedError("ModuleNotFoundError: No module named 'cavia'"))
    assert "a node cannot import cavia" in str(worker.news()[-1])


def test_a_cell_that_is_stopped_is_asked_to_write_a_checkpoint(order):
    worker, ray = started(order, BEGUN)
    worker.news()
    worker.stop()
    assert (ray.stopped, ray.killed) == (1, 0)
    ray.script.append(News([], {CHECKPOINT: b"last"}, INTERRUPTED))
    worker.join()
    assert (worker.exitcode, ray.killed) == (INTERRUPTED, 1)
    assert (order.folder(CELL) / "checkpoint.safetensors").read_bytes() == b"last"


def test_a_cell_that_found_no_node_yet_is_stopped_at_once(order):
    worker, ray = started(order)
    worker.stop()
    assert (worker.exitcode, ray.killed, ray.stopped) == (INTERRUPTED, 1, 0)


def test_a_cluster_without_a_gpu_is_said_once(order, monkeypatch):
    monkeypatch.setattr(ray_workers, "LONG", -1.0)
    monkeypatch.setattr(Ray, "cluster_resources", lambda _: {"CPU": 4.0})
    worker, _ = started(order, device="cuda")
    assert [worker.news(), worker.news()] == [["waits for a node with a free GPU; the cluster has none"], []]


def test_a_cell_of_another_process_is_busy(order):
    with RunFolder(order.folder(CELL)).lock():
        worker, _ = started(order)
        assert worker.exitcode == 2
        assert "another process is at work" in str(worker.news()[0])
    worker, _ = started(order)
    assert worker.exitcode is None


def test_what_is_at_the_storage_comes_home_at_the_end(order, tmp_path):
    worker, ray = started(order, BEGUN, News([], {}, 0), storage=str(tmp_path / "shared"))
    assert not ray.tasks[0].files
    Storage(str(tmp_path / "shared" / "runs")).write({CHECKPOINT: b"there"})
    worker.news(), worker.news()
    worker._where.close()
    assert not list((tmp_path / "shared" / ".cavia").iterdir())
    assert (order.folder(CELL) / "checkpoint.safetensors").read_bytes() == b"there"


# On the node


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(on_node, "this_node", lambda: "10.0.0.7")
    return CellOnNode()


@pytest.mark.slow
def test_a_node_trains_the_cell_and_hands_out_its_files(order, node, tmp_path):
    news = node.begin(Task(order, CELL, 1, nodes.versions()))
    assert news.messages == ["on node 10.0.0.7"]
    home = Storage(str(order.out.parent))
    while news.exitcode is None:
        news = node.news(0.5)
        home.write(news.files)
    assert read_result(order, CELL).iterations == 2
    assert json.loads((order.folder(CELL) / "metrics.jsonl").read_text())["iteration"] == 2


def test_a_node_with_another_version_is_refused(order, node):
    news = node.begin(Task(order, CELL, 1, nodes.versions() | {"torch": "1.0"}))
    assert news.exitcode == 2
    assert "on node 10.0.0.7: it has torch" in str(news.messages[0])
    assert "the machine that started the run 1.0; install the same on all nodes" in str(news.messages[0])


def test_a_node_that_cannot_reach_the_storage_is_refused(order, node, tmp_path):
    shared = str(tmp_path / "shared")
    news = node.begin(Task(order, CELL, 1, nodes.versions(), storage=shared, word="never written"))
    assert f"on node 10.0.0.7: it cannot reach {shared}" in str(news.messages[0])


@pytest.mark.parametrize("address", ["folder", "memory://kept"])
def test_storage_is_a_folder_or_any_address(tmp_path, address):
    storage = Storage(str(tmp_path / address) if address == "folder" else address)
    storage.require_signed(storage.sign())
    storage.write({"a/cells/one/x": b"1", "b/cells/one/x": b"2", "b/cells/two/x": b"3"})
    assert storage.find("*/cells/one", ["x", "y"]) == {"a/cells/one/x": b"1", "b/cells/one/x": b"2"}
    assert storage.read("b/cells/one/y") is None


# The connection


def run(*more):
    return main(["run", "table1", *(f"--set={name}={value}" for name, value in TINY.items()), *more])


def test_no_ray_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run("--out", str(tmp_path / "out"), "--on", "ray") == 2
    assert capsys.readouterr().err == "cavia: --on ray needs Ray: pip install 'cavia-torch[ray]'\n"


@pytest.mark.slow
@pytest.mark.parametrize("on", ["ray", "ray://127.0.0.1:1"])
def test_an_address_that_does_not_answer_is_one_line(monkeypatch, capsys, tmp_path, on):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert run("--out", str(tmp_path / "out"), "--on", on) == 2
    said = capsys.readouterr().err
    assert said.startswith("cavia: no Ray cluster answers at ")
    assert said.count("\n") == 1


def test_storage_is_for_clusters(capsys, tmp_path):
    assert run("--out", str(tmp_path / "out"), "--storage", "s3://kept") == 2
    assert "--storage 's3://kept' is for runs on a cluster; add --on ray" in capsys.readouterr().err


def test_a_head_that_is_gone_is_one_line(monkeypatch):
    monkeypatch.setattr(connection, "GONE", -1.0)
    monkeypatch.setattr(connection, "answers", lambda *_: False)
    with pytest.raises(CaviaError, match="the head of the Ray cluster is gone; once it is back, the same"):
        assert RayWorkers(Cluster(Ray(), ("nowhere", 1))).room


class Head:
    """Answers a client that wants to join with one error after the other, then lets it."""

    def __init__(self, *errors):
        self.errors, self.asked = list(errors), 0

    def init(self, **options):
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)

    def shutdown(self):
        pass


BUSY = "Initialization failure from server:\nTraceback\nTimeoutError: the server took too long"


@pytest.mark.parametrize(
    ("errors", "asked", "is_joined"),
    [
        ([], 1, True),
        ([ConnectionError(BUSY)] * 2, 3, True),
        ([ConnectionError(BUSY)] * 3, 3, False),
        ([ConnectionError("no route")], 1, False),
    ],
)
def test_a_busy_head_is_asked_again(errors, asked, is_joined):
    head = Head(*errors)
    try:
        connection._join(head, "ray://head:10001", {})
        assert is_joined
    except ConnectionError:
        assert not is_joined
    assert head.asked == asked


def test_an_announced_traceback_is_its_last_line():
    said = connection._first_line(ConnectionError(BUSY))
    assert said == "Initialization failure from server: TimeoutError: the server took too long"
    assert connection._first_line(ConnectionError("no\nroute")) == "no"

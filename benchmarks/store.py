"""Contexts on disk: what the store manages at a million tasks, and against other ways to lay them out.

    python benchmarks/store.py [--tasks 1000000] [--compared 100000] [--rounds 3] [--out results/benchmarks]

Contexts of 50 floats, str ids in random order, one thread. The candidates are timed in turns, on the same contexts; a
put is durable when it returns. LMDB is left out unless it is installed (the extra `bench`). CPU time counts what this
process computed, wall time also what it waited for: the disk, and other jobs on the machine.
"""

import argparse
import importlib.util
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cavia
from interleaved import publish
from store_layouts import BYTES, CANDIDATES, LMDB, SIZE, VERSION, Candidate, Rows

BATCH, SINGLE = 10_000, 50
OPERATIONS = ("put", "put one", "get", "read all")
SEARCHES = ("nearest to 1", "nearest to 1 again", "nearest to 100")


def clock(action: Callable[[], object], units: int) -> dict[str, float]:
    """Units per second, by the wall and by the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": units / wall, "cpu": units / max(cpu, 1e-9)}


def make(count: int) -> tuple[list[str], Tensor]:
    ids = [f"task-{number:09d}" for number in random.Random(0).sample(range(10**9), count)]
    return ids, torch.randn(count, SIZE, generator=torch.Generator().manual_seed(0))


def put_all(candidate: Candidate, ids: list[Any], contexts: Tensor) -> None:
    for start in range(0, len(ids), BATCH):
        candidate.put(ids[start : start + BATCH], contexts[start : start + BATCH])


def put_singly(candidate: Candidate, ids: list[Any], contexts: Tensor) -> None:
    for place in range(SINGLE):
        candidate.put(ids[place : place + 1], contexts[place : place + 1])


def get_all(candidate: Candidate, ids: list[Any], contexts: Tensor) -> None:
    """In parts of 1000, and compared with what was put."""
    for start in range(0, len(ids), 1000):
        if not torch.equal(candidate.get(ids[start : start + 1000]), contexts[start : start + 1000]):
            raise SystemExit("a candidate returned other contexts than were put; nothing was written")


def compare(count: int, rounds: int) -> dict[str, Any]:
    """Candidate → operation → contexts per second, medians over the rounds; and bytes on the disk for a context."""
    ids, contexts = make(count)
    some = random.Random(1).sample(range(count), min(10_000, count))
    some_ids, some_contexts = [ids[place] for place in some], contexts[some]
    some_contexts[:SINGLE] += 1  # SQLite would not write a value that is there already
    rates_of: dict[str, Any] = {}
    for _ in range(rounds):
        for name, candidate_of in CANDIDATES.items():
            if candidate_of is LMDB and not importlib.util.find_spec("lmdb"):
                continue
            folder = Path(tempfile.mkdtemp(prefix="cavia-store-"))
            try:
                candidate = candidate_of(folder)
                actions: tuple[Callable[[], object], ...] = (
                    lambda one=candidate: put_all(one, ids, contexts),  # type: ignore[misc]
                    lambda one=candidate: put_singly(one, some_ids, some_contexts),  # type: ignore[misc]
                    lambda one=candidate: get_all(one, some_ids, some_contexts),  # type: ignore[misc]
                    lambda one=candidate: sum(map(len, one.scan())),  # type: ignore[misc]
                )
                for operation, action, units in zip(
                    OPERATIONS, actions, (count, SINGLE, len(some), count), strict=True
                ):
                    rates = clock(action, units)
                    for kind, rate in rates.items():
                        rates_of.setdefault(name, {}).setdefault(operation, {}).setdefault(kind, []).append(rate)
                candidate.close()
                size = sum(
                    file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.name != "lock.mdb"
                )
                rates_of[name]["bytes"] = round(size / count)
            finally:
                shutil.rmtree(folder)
    for part in rates_of.values():
        for operation in OPERATIONS:
            part[operation] = {kind: round(statistics.median(rates)) for kind, rates in part[operation].items()}
    return rates_of


def measure(count: int, kind: str) -> dict[str, Any]:
    """The store with `count` contexts: rates, seconds of a search, MB by which a search raises the peak memory."""
    ids, contexts = make(count)
    names: list[Any] = list(range(count)) if kind == "int" else ids
    folder = Path(tempfile.mkdtemp(prefix="cavia-store-"))
    try:
        with cavia.ContextStore(folder / "store", VERSION) as store:
            measured: dict[str, Any] = {"put": clock(lambda: put_all(Rows(folder, store), names, contexts), count)}
            measured["get"] = clock(lambda: get_all(Rows(folder, store), names, contexts), count)
            measured["batches"] = clock(lambda: sum(len(part) for _, part in store.batches()), count)
            measured = {name: {key: round(rate) for key, rate in rates.items()} for name, rates in measured.items()}
            queries = contexts[:100] + 0.1
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for name, asked in zip(SEARCHES, (queries[:1], queries[1:2], queries), strict=True):
                rates = clock(lambda asked=asked: store.nearest(asked, 10), 1)  # type: ignore[misc]
                measured[name] = {key: round(1 / rate, 3) for key, rate in rates.items()}
            measured["nearest_raises_peak_mb"] = round(
                (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            )
            near, _ = store.nearest(queries[:1], 1)[0][0]
            if near != names[int(torch.cdist(queries[:1].double(), contexts.double()).argmin())]:
                raise SystemExit("the search found another task than a search in memory; nothing was written")
        measured["bytes"] = round((folder / "store").stat().st_size / count)
    finally:
        shutil.rmtree(folder)
    return measured


def markdown(result: dict[str, Any]) -> str:
    compared = "\n".join(
        f"| {name} | "
        + " | ".join(f"{part[o]['cpu']:,} ({part[o]['wall']:,})" for o in OPERATIONS)
        + f" | {part['bytes']} |"
        for name, part in result["candidates"].items()
    )
    million = "\n".join(
        f"| {kind} | "
        + " | ".join(f"{part[o]['cpu']:,} ({part[o]['wall']:,})" for o in ("put", "get", "batches"))
        + " | "
        + " | ".join(f"{part[o]['cpu']:g} s ({part[o]['wall']:g} s)" for o in SEARCHES)
        + f" | {part['bytes']} |"
        for kind, part in result["store"].items()
    )
    memory = result["store"]["int"]["nearest_raises_peak_mb"]  # of the first run: the next one stays below its peak
    command = f"--tasks {result['tasks']} --compared {result['compared']} --rounds {result['rounds']}"
    return f"""# Contexts on disk

`python benchmarks/store.py {command}`: contexts of {SIZE} floats, one thread. Contexts
per second of CPU time, in brackets per second of wall time, which waiting for the disk and other jobs on the machine
lengthen. Every put is on the disk when it returns.

## The store with {result["tasks"]:,} contexts

| ids | put {BATCH:,} | get 1,000 | all, in batches | 10 nearest to one | again | to each of 100 | bytes each |
|---|---|---|---|---|---|---|---|
{million}

Every context that was read was compared with the one that was put. A search compares all contexts;
the first keeps them in memory for the next. The searches, with int ids, raised the peak memory of the
process by {memory} MB; all contexts are {result["tasks"] * BYTES / 1e6:g} MB.

## Other layouts, {result["compared"]:,} contexts, medians of {result["rounds"]} interleaved rounds

| | put {BATCH:,} | put one again | get 1,000 at random | read all | bytes each |
|---|---|---|---|---|---|
{compared}

The store is timed with all its checks, the others without any. "A file per put" keeps all ids in memory, and would read
every file to find them again.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--compared", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "tasks": options.tasks,
        "compared": options.compared,
        "rounds": options.rounds,
        "store": {kind: measure(options.tasks, kind) for kind in ("int", "str")},
        "candidates": compare(options.compared, options.rounds),
    }
    publish(options.out / "store", result, markdown(result))


if __name__ == "__main__":
    main()

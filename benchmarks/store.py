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
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

import cavia
from cavia.tensor_file import write_atomically
from interleaved import publish

SIZE, BYTES, BATCH, SINGLE, VERSION = 50, 200, 10_000, 50, "0123456789abcdef"
BLOCK = 64  # contexts in a row of the blocked layout
SCANNED = 8192  # contexts read at a time
OPERATIONS = ("put", "put one", "get", "read all")
SEARCHES = ("nearest to 1", "nearest to 1 again", "nearest to 100")


class Candidate(Protocol):
    """A way to keep contexts [T, SIZE] on the disk, by id."""

    def put(self, ids: list[str], contexts: Tensor) -> None: ...
    def get(self, ids: list[str]) -> Tensor: ...
    def scan(self) -> Iterator[Tensor]: ...
    def close(self) -> None: ...


def pieces(contexts: Tensor, count: int = 1) -> list[memoryview]:
    """The bytes of every `count` contexts."""
    content = memoryview(contexts.contiguous().view(torch.uint8).numpy().data).cast("B")
    return [content[start : start + count * BYTES] for start in range(0, len(content), count * BYTES)]


def joined(contexts: Any) -> Tensor:
    return torch.frombuffer(bytearray(b"".join(contexts)), dtype=torch.float32).view(-1, SIZE)


class Rows:
    """cavia.ContextStore: SQLite, a row per context, with all its checks."""

    def __init__(self, folder: Path, store: cavia.ContextStore | None = None):
        self.store = cavia.ContextStore(folder / "rows", VERSION) if store is None else store
        self.put, self.close = self.store.put, self.store.close

    def get(self, ids: list[str]) -> Tensor:
        return self.store.get(ids).context

    def scan(self) -> Iterator[Tensor]:
        return (contexts for _, contexts in self.store.batches(SCANNED))


class Blocks:
    """SQLite, 64 contexts in a row, and a table of where each id is."""

    def __init__(self, folder: Path):
        self.connection = sqlite3.connect(folder / "blocks", isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "PRAGMA cache_size = -65536",
            "PRAGMA wal_autocheckpoint = 8192",
            "CREATE TABLE places (id TEXT PRIMARY KEY, place INTEGER) WITHOUT ROWID",
            "CREATE TABLE blocks (number INTEGER PRIMARY KEY, contexts BLOB)",
        ):
            self.connection.execute(statement)
        self.close, self.count = self.connection.close, 0

    def put(self, ids: list[str], contexts: Tensor) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        known = self._places(ids)
        for one, context in zip(ids, contexts, strict=True):
            if one in known:
                block, place = divmod(known[one], BLOCK)
                query = "SELECT contexts FROM blocks WHERE number = ?"
                content = bytearray(self.connection.execute(query, (block,)).fetchone()[0])
                content[place * BYTES : (place + 1) * BYTES] = pieces(context)[0]
                self.connection.execute("UPDATE blocks SET contexts = ? WHERE number = ?", (content, block))
        if not known:  # enough for this comparison: a batch is all new and starts a block
            start = -(-self.count // BLOCK) * BLOCK
            places = zip(ids, range(start, start + len(ids)), strict=True)
            self.connection.executemany("INSERT INTO places VALUES (?, ?)", places)
            numbered = enumerate(pieces(contexts, BLOCK), start // BLOCK)
            self.connection.executemany("INSERT INTO blocks VALUES (?, ?)", numbered)
            self.count = start + len(ids)
        self.connection.execute("COMMIT")

    def _places(self, ids: list[str]) -> dict[str, int]:
        places: dict[str, int] = {}
        for start in range(0, len(ids), 1000):
            part = ids[start : start + 1000]
            marks = ",".join("?" * len(part))
            places.update(self.connection.execute(f"SELECT id, place FROM places WHERE id IN ({marks})", part))
        return places

    def get(self, ids: list[str]) -> Tensor:
        marks = ",".join("?" * len(ids))
        query = (
            f"SELECT id, substr(contexts, 1 + place % {BLOCK} * {BYTES}, {BYTES}) FROM places "
            f"JOIN blocks ON number = place / {BLOCK} WHERE id IN ({marks})"
        )
        by_key = dict(self.connection.execute(query, ids))
        return joined([by_key[one] for one in ids])

    def scan(self) -> Iterator[Tensor]:
        cursor = self.connection.execute("SELECT contexts FROM blocks ORDER BY number")
        while rows := cursor.fetchmany(SCANNED // BLOCK):
            yield joined(row[0] for row in rows)


class LMDB:
    """LMDB: a memory-mapped B-tree, id → context."""

    def __init__(self, folder: Path):
        import lmdb

        self.environment = lmdb.open(str(folder / "lmdb"), map_size=2**33)
        self.close = self.environment.close

    def put(self, ids: list[str], contexts: Tensor) -> None:
        with self.environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(list(zip((one.encode() for one in ids), pieces(contexts), strict=True)))

    def get(self, ids: list[str]) -> Tensor:
        keys = [one.encode() for one in ids]
        with self.environment.begin() as transaction, transaction.cursor() as cursor:
            by_key = dict(cursor.getmulti(keys))
        return joined([by_key[key] for key in keys])

    def scan(self) -> Iterator[Tensor]:
        with self.environment.begin() as transaction, transaction.cursor() as cursor:
            values: list[bytes] = []
            for value in cursor.iternext(keys=False):
                values.append(value)
                if len(values) == SCANNED:
                    yield joined(values)
                    values = []
            if values:
                yield joined(values)


class Files:
    """A file per put, written atomically, and a dictionary of all ids in memory."""

    def __init__(self, folder: Path):
        self.folder, self.batches = folder / "files", 0
        self.where: dict[str, tuple[int, int]] = {}

    def put(self, ids: list[str], contexts: Tensor) -> None:
        content = "\n".join(ids).encode() + b"\0" + bytes(contexts.contiguous().view(torch.uint8).numpy().data)
        write_atomically(self.folder / str(self.batches), content)
        self.where.update((one, (self.batches, place)) for place, one in enumerate(ids))
        self.batches += 1

    def get(self, ids: list[str]) -> Tensor:
        places = [self.where[one] for one in ids]
        read = {batch: self._read(batch) for batch in {batch for batch, _ in places}}
        return torch.stack([read[batch][place] for batch, place in places])

    def _read(self, batch: int) -> Tensor:
        return joined([(self.folder / str(batch)).read_bytes().partition(b"\0")[2]])

    def scan(self) -> Iterator[Tensor]:
        return (self._read(batch) for batch in range(self.batches))

    def close(self) -> None:
        pass


CANDIDATES: dict[str, Callable[[Path], Candidate]] = {
    "SQLite, a row per context (the store)": Rows,
    "SQLite, 64 contexts in a row": Blocks,
    "LMDB": LMDB,
    "a file per put": Files,
}


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

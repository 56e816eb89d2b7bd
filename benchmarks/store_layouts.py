"""Ways to keep contexts on the disk: the store, and others to compare it with."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

import cavia
from cavia.tensor_file import write_atomically

SIZE, BYTES, VERSION = 50, 200, "0123456789abcdef"
BLOCK = 64  # contexts in a row of the blocked layout
SCANNED = 8192  # contexts read at a time


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

"""The rows of a store: an id, its context, and a checksum of both that is compared whenever they are read."""

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from torch import Tensor

from cavia.errors import CaviaError, shown
from cavia.store.database import SUMMED, set_format
from cavia.store.ids import first_few
from cavia.store.layout import DTYPES, Layout

TABLES = {  # a whole number is its own row number; strings have an index
    "int": "CREATE TABLE contexts (id INTEGER PRIMARY KEY, context BLOB NOT NULL, checksum INTEGER)",
    "str": "CREATE TABLE contexts "
    "(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, context BLOB NOT NULL, checksum INTEGER)",
}
PUT = (
    "INSERT INTO contexts (id, context, checksum) VALUES (?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET context = excluded.context, checksum = excluded.checksum"
)
ASKED = 1000  # ids in one query
FIRST_ROW, LAST_ROW = -(2**63), 2**63 - 1
UPGRADED = 8192  # rows in memory at a time


class Rows(NamedTuple):
    """How the rows of a store are read and written.

    version: of the learner. It is part of every checksum, as are the type and the size of contexts.
    where:   the file, for messages.
    summed:  whether rows have checksums: those of files that earlier versions wrote have none until the next write.
    """

    layout: Layout
    version: str
    where: Path
    summed: bool

    @classmethod
    def of(cls, about: dict[str, Any], where: Path, summed: bool) -> "Rows | None":
        """From the table `about`; None as long as nothing was put."""
        if "kind" not in about:
            return None
        kind, dtype, size = about["kind"], about.get("dtype"), about.get("size")
        if kind not in TABLES or dtype not in DTYPES or not isinstance(size, int) or size < 1:
            wrong = {name: value for name, value in about.items() if name != "version"}
            raise CaviaError(f"{where} is damaged: it says of its contexts {shown(wrong)}; restore it from a copy")
        return cls(Layout(kind, DTYPES[dtype], size), about["version"], where, summed)

    @property
    def columns(self) -> str:
        """What `contexts` takes of each row."""
        return "id, context, checksum" if self.summed else "id, context, NULL"

    def put(self, connection: sqlite3.Connection, ids: Sequence[Any], contexts: Tensor) -> None:
        """Write T rows: contexts [T, C] on the CPU, in one block of memory."""
        start = self._start
        packed = zip(ids, self.layout.pack(contexts), strict=True)
        connection.executemany(PUT, ((one, context, _checksum(one, context, start)) for one, context in packed))

    def contexts(self, rows: Sequence[tuple[Any, Any, Any]]) -> Tensor:
        """The contexts [T, C] of T rows, if they are what was put. rows: id, context and checksum of each."""
        length, start, summed = self.layout.length, self._start, self.summed
        wrong = [
            one
            for one, context, checksum in rows
            if type(context) is not bytes
            or len(context) != length
            or (summed and checksum != _checksum(one, context, start))
        ]
        if wrong:
            raise self._damaged(wrong)
        return self.layout.unpack([context for _, context, _ in rows])

    def after(self, connection: sqlite3.Connection, first: int, count: int) -> list[tuple[Any, ...]]:
        """So many rows from that number on: the number of each, and its columns."""
        query = f"SELECT rowid, {self.columns} FROM contexts WHERE rowid >= ? ORDER BY rowid LIMIT ?"
        return connection.execute(query, (first, count)).fetchall()

    def delete(self, connection: sqlite3.Connection, rows: Collection[tuple[Any, int]]) -> None:
        """Delete the rows of these ids and numbers."""
        deleted = connection.executemany("DELETE FROM contexts WHERE +id = ? AND rowid = ?", rows).rowcount
        if rows and deleted != len(rows):  # "+": not by the index, which may lead to other rows
            raise self._damaged([one for one, _ in rows])

    def add_checksums(self, connection: sqlite3.Connection) -> "Rows":
        """Give the rows of a file that an earlier version wrote their checksums; earlier versions then refuse it."""
        connection.execute("ALTER TABLE contexts ADD COLUMN checksum INTEGER")
        begin, start = FIRST_ROW, self._start
        while begin <= LAST_ROW and (block := self.after(connection, begin, UPGRADED)):
            sums = [(_checksum(one, kept, start), row) for row, one, kept, _ in block if isinstance(kept, bytes)]
            connection.executemany("UPDATE contexts SET checksum = ? WHERE rowid = ?", sums)
            begin = block[-1][0] + 1
        set_format(connection, SUMMED)
        return self._replace(summed=True)

    def _damaged(self, ids: Sequence[Any]) -> CaviaError:
        return CaviaError(
            f"{self.where} is damaged: the contexts of {len(ids)} ids are not what was put, {first_few(ids)}; adapt to "
            "these tasks again and put them, or restore the file from a copy"
        )

    @property
    def _start(self) -> int:
        """What all checksums begin with."""
        return crc32(f"{self.version} {self.layout.dtype} {self.layout.size} ".encode())


def look_up(connection: sqlite3.Connection, columns: str, key: str, values: list[Any]) -> Iterator[Any]:
    """Rows whose key is among the values, in any order."""
    for start in range(0, len(values), ASKED):
        part = values[start : start + ASKED]
        marks = ",".join("?" * len(part))
        yield from connection.execute(f"SELECT {columns} FROM contexts WHERE {key} IN ({marks})", part)


def _checksum(id: Any, context: bytes | memoryview, start: int) -> int:
    return crc32(context, crc32(str(id).encode(errors="surrogatepass"), start))

"""The rows of a store in an SQLite file."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from torch import Tensor

from cavia.store.backend import BLOCK, Transaction
from cavia.store.layout import Layout
from cavia.store.rows import FIRST_ROW, LAST_ROW, Row, Rows

PLAIN, SUMMED = 1, 2  # formats: rows without and with checksums
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


class FileTransaction(Transaction):
    """On a connection to the file that has begun one."""

    def __init__(self, connection: sqlite3.Connection):
        self.connection = connection
        self.summed = format_of(connection) == SUMMED

    def about(self) -> dict[str, Any]:
        return dict(self.connection.execute("SELECT name, value FROM about"))

    def note(self, about: dict[str, Any]) -> None:
        self.connection.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", about.items())

    def make_table(self, layout: Layout) -> None:
        self.connection.execute(TABLES[layout.kind])
        set_format(self.connection, SUMMED)

    def put(self, layout: Layout, rows: Iterable[Row], contexts: Tensor) -> None:
        self.connection.executemany(PUT, rows)

    def rows(self, key: Literal["id", "number"], values: Sequence[Any]) -> list[Row]:
        return self._look_up(self._columns, {"id": "id", "number": "rowid"}[key], values)

    def numbers(self, ids: Sequence[Any]) -> list[tuple[Any, int]]:
        return self._look_up("id, rowid", "id", ids)

    def after(self, first: int, count: int) -> list[tuple[int, Any, Any, Any]]:
        query = f"SELECT rowid, {self._columns} FROM contexts WHERE rowid >= ? ORDER BY rowid LIMIT ?"
        return self.connection.execute(query, (first, count)).fetchall()

    def delete(self, rows: Sequence[tuple[Any, int]]) -> int:
        # "+": not by the index, which may lead to other rows
        return self.connection.executemany("DELETE FROM contexts WHERE +id = ? AND rowid = ?", rows).rowcount

    def count(self) -> int:
        return self.connection.execute("SELECT count(*) FROM contexts").fetchone()[0]

    def upgraded(self, rows: Rows) -> Rows:
        """Give the rows of a file that an earlier version wrote their checksums; earlier versions then refuse it."""
        if rows.summed:
            return rows
        self.connection.execute("ALTER TABLE contexts ADD COLUMN checksum INTEGER")
        begin = FIRST_ROW
        while begin <= LAST_ROW and (block := self.after(begin, BLOCK)):
            sums = [(rows.checksum(one, kept), row) for row, one, kept, _ in block if isinstance(kept, bytes)]
            self.connection.executemany("UPDATE contexts SET checksum = ? WHERE rowid = ?", sums)
            begin = block[-1][0] + 1
        set_format(self.connection, SUMMED)
        self.summed = True
        return rows._replace(summed=True)

    @property
    def _columns(self) -> str:
        return "id, context, checksum" if self.summed else "id, context, NULL"

    def _look_up(self, columns: str, key: str, values: Sequence[Any]) -> list[Any]:
        rows: list[Any] = []
        for start in range(0, len(values), ASKED):
            part = values[start : start + ASKED]
            marks = ",".join("?" * len(part))
            rows += self.connection.execute(f"SELECT {columns} FROM contexts WHERE {key} IN ({marks})", part)
        return rows


def set_format(connection: sqlite3.Connection, form: int) -> None:
    """Set the file's format; part of the transaction."""
    connection.execute(f"PRAGMA user_version = {form}")


def format_of(connection: sqlite3.Connection) -> int:
    """The format that the file has now."""
    return connection.execute("PRAGMA user_version").fetchone()[0]

"""Adapted contexts by task id, thousands or millions of them, in one file that outlives the process."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_positive
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.store.database import Database
from cavia.store.ids import Id, checked_ids, first_few
from cavia.store.layout import DTYPES, Layout, checked_contexts
from cavia.store.nearest import nearest_rows
from cavia.store.parquet import write_parquet
from cavia.tasks.batch import shape
from cavia.tensor_file import checked_path

BLOCK = 8192  # contexts in memory at a time, where a call goes through all of them
ASKED = 1000  # ids in one query
TABLES = {  # a whole number is its own row number; strings have an index
    "int": "CREATE TABLE contexts (id INTEGER PRIMARY KEY, context BLOB NOT NULL)",
    "str": "CREATE TABLE contexts (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, context BLOB NOT NULL)",
}
PUT = "INSERT INTO contexts (id, context) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET context = excluded.context"
BATCH = "SELECT rowid, id, context FROM contexts WHERE rowid >= ? ORDER BY rowid LIMIT ?"
FIRST_ROW, LAST_ROW = -(2**63), 2**63 - 1


class ContextStore:
    """The contexts of many tasks in one file: `put` after adapting, `get` before predicting.

    path:    the file, made if a model is given. SQLite keeps two more beside it while it is open.
    model:   the learner, or its `version`, that the contexts belong to: a store holds those of one version, and
             another is refused. Given a learner, every `put` makes sure that it was not trained any further. Without
             a model, an existing store is opened for whichever version it holds.
    timeout: seconds to wait while another process writes.

    Ids are int or str, one kind in a store. When `put` or `delete` returns, its change is on the disk; each happens
    as a whole or not at all. Any number of threads and processes may read while one writes.

    >>> from tempfile import TemporaryDirectory
    >>> learner = CAVIA(MLP(inputs=1, outputs=1, context=5), loss="mse")
    >>> with TemporaryDirectory() as folder, ContextStore(f"{folder}/users.store", learner) as store:
    ...     store.put(["ann", "bob", "cleo"], learner.adapt(torch.rand(3, 10, 1), torch.rand(3, 10, 1)))
    ...     y = learner.predict(torch.rand(2, 4, 1), store.get(["cleo", "ann"]))
    ...     len(store), "bob" in store, y.shape
    (3, True, torch.Size([2, 4, 1]))
    """

    def __init__(self, path: str | PathLike[str], model: Learner | str | None = None, timeout: float = 30.0):
        self.path = checked_path(path)
        if model == "" or not isinstance(model, Learner | str | None):
            raise CaviaError(f"model must be a learner or its version, got {model!r}")
        self._learner = model if isinstance(model, Learner) else None
        asked = model.version if isinstance(model, Learner) else model
        self._database = Database(self.path, asked is not None, require_positive("timeout", timeout))
        self._layout: Layout | None = None
        try:
            self.version = self._settle_version(asked)
        except BaseException:
            self.close()
            raise

    def put(self, ids: Iterable[Id], contexts: Tensor | Adapted) -> None:
        """Store the contexts of T tasks, in place of those that these ids had.

        contexts: what `adapt` returned, or [T, C].
        """
        ids = checked_ids(ids)
        if len(set(ids)) < len(ids):
            raise CaviaError(f"id {Counter(ids).most_common(1)[0][0]!r} is given twice; every task has one context")
        contexts = checked_contexts(ids, contexts, self._learner.model.context if self._learner else None)
        if self._learner and self._learner.version != self.version:
            raise CaviaError(
                f"the learner was trained since {self.path} was opened: it is version {self._learner.version}, the "
                f"store holds contexts of {self.version}; adapt again, into a store of its own"
            )
        if not ids:
            return
        layout = Layout.of(ids, contexts)
        with self._database.writing() as connection:
            self._settle_layout(connection, layout)
            connection.executemany(PUT, zip(ids, layout.pack(contexts), strict=True))

    def get(self, ids: Iterable[Id]) -> Adapted:
        """These T tasks, in this order, for `predict`. Ids that are not there are an error that names them."""
        ids = checked_ids(ids)
        with self._database.reading() as connection:
            return Adapted.of({CONTEXT: self._get(connection, ids)})

    def delete(self, ids: Iterable[Id]) -> None:
        """Forget these tasks. If one of them is not there, all stay."""
        ids = checked_ids(ids)
        with self._database.writing() as connection:
            rows = self._select(connection, "rowid", ids)
            if rows:
                connection.executemany("DELETE FROM contexts WHERE rowid = ?", ((row,) for row in rows.values()))

    def __len__(self) -> int:
        with self._database.reading() as connection:
            if self._find_layout(connection) is None:
                return 0
            return connection.execute("SELECT count(*) FROM contexts").fetchone()[0]

    def __contains__(self, id: object) -> bool:
        wanted = checked_ids([id])
        with self._database.reading() as connection:
            layout = self._find_layout(connection)
            if layout is None or layout.kind != type(wanted[0]).__name__:
                return False
            return connection.execute("SELECT 1 FROM contexts WHERE id = ?", wanted).fetchone() is not None

    @property
    def ids(self) -> list[Any]:
        """All ids: numbers in rising order, strings in the order in which they were first put."""
        with self._database.reading() as connection:
            if self._find_layout(connection) is None:
                return []
            return [row[0] for row in connection.execute("SELECT id FROM contexts ORDER BY rowid")]

    def batches(self, size: int = BLOCK) -> Iterator[tuple[list[Any], Tensor]]:
        """All ids and contexts [B, C], at most `size` at a time, in the order of `ids`.

        The store may be changed meanwhile: each batch shows it as it is when the batch is read.
        """
        require_at_least("size", size, 1)
        start = FIRST_ROW
        while start <= LAST_ROW:
            with self._database.reading() as connection:
                layout = self._find_layout(connection)
                block = connection.execute(BATCH, (start, size)).fetchall() if layout else []
            if not block or layout is None:
                return
            rows, ids, contexts = zip(*block, strict=True)
            yield list(ids), layout.unpack(contexts, self.path)
            start = rows[-1] + 1

    def nearest(self, tasks: Tensor | Iterable[Id], k: int = 10) -> list[list[tuple[Any, float]]]:
        """The k tasks whose contexts are nearest to each of Q: Q lists of (id, Euclidean distance), nearest first.

        tasks: contexts [Q, C], or a list of Q ids, of which none finds itself.
        Every stored context is compared, and read once for all Q; memory does not grow with their number.
        """
        require_at_least("k", k, 1)
        with self._database.reading() as connection:
            layout, own = self._find_layout(connection), None
            if isinstance(tasks, Tensor) and tasks.is_floating_point():
                queries = self._checked_queries(tasks, layout)
            else:
                ids = checked_ids(tasks)
                queries, rows = self._get(connection, ids).double(), self._select(connection, "rowid", ids)
                own = torch.tensor([rows[one] for one in ids], dtype=torch.int64)
            if layout is None or not len(queries):
                return [[] for _ in queries]
            nearest = nearest_rows(self._scan(connection, layout, "rowid"), queries, k, own)
            return [
                self._ranked(connection, layout, query, [row for row in near if own is None or row != own[place]])
                for place, (query, near) in enumerate(zip(queries, nearest.tolist(), strict=True))
            ]

    def export(self, path: str | PathLike[str]) -> None:
        """Write everything to a Parquet file with the columns `id` and `context`; needs the extra `cavia[tables]`."""
        with self._database.reading() as connection:
            layout = self._find_layout(connection)
            if layout is None:
                raise CaviaError(f"{self.path} is empty: there is nothing to export")
            write_parquet(checked_path(path), self._scan(connection, layout, "id"), layout, self.version)

    def close(self) -> None:
        """Close the file; it holds everything that was put."""
        self._database.close()

    def __enter__(self) -> "ContextStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ContextStore({str(self.path)!r}, {self.version!r})"

    def _settle_version(self, asked: str | None) -> str:
        """The version of the file's contexts, which a new file is given now."""
        query = "SELECT value FROM about WHERE name = 'version'"
        with self._database.reading() as connection:
            row = connection.execute(query).fetchone()
        if row is None and asked is None:
            raise CaviaError(f"{self.path} is empty; give the learner, or its version")
        if row is None:
            with self._database.writing() as connection:
                connection.execute("INSERT OR IGNORE INTO about VALUES ('version', ?)", (asked,))
                row = connection.execute(query).fetchone()
        if asked not in (None, row[0]):
            raise CaviaError(
                f"{self.path} holds contexts of model version {row[0]}, not of {asked}; "
                "adapt again with the new model, into a store of its own"
            )
        return row[0]

    def _find_layout(self, connection: sqlite3.Connection) -> Layout | None:
        """None as long as nothing was put, by whichever process."""
        if self._layout is None:
            about = dict(connection.execute("SELECT name, value FROM about"))
            if "kind" in about:
                self._layout = Layout(about["kind"], DTYPES[about["dtype"]], about["size"])
        return self._layout

    def _settle_layout(self, connection: sqlite3.Connection, layout: Layout) -> None:
        """Raise unless contexts of this layout belong here; the first ones decide."""
        settled = self._find_layout(connection)
        if settled is not None:
            settled.check(layout, self.path)
            return
        connection.execute(TABLES[layout.kind])
        about = {"kind": layout.kind, "dtype": str(layout.dtype).removeprefix("torch."), "size": layout.size}
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())

    def _get(self, connection: sqlite3.Connection, ids: list[Any]) -> Tensor:
        packed = self._select(connection, "context", ids)
        layout = self._find_layout(connection)
        return layout.unpack([packed[one] for one in ids], self.path) if layout else torch.empty(0, 0)

    def _select(self, connection: sqlite3.Connection, column: str, ids: list[Any]) -> dict[Any, Any]:
        """id → value of a column; an error if one of the ids is not there."""
        layout = self._find_layout(connection)
        if layout and ids:
            layout.check_kind(type(ids[0]).__name__, self.path)
        values = dict(_look_up(connection, f"id, {column}", "id", ids if layout else []))
        missing = [one for one in ids if one not in values]
        if missing:
            raise CaviaError(f"{len(missing)} of {len(ids)} ids are not in {self.path}: {first_few(missing)}")
        return values

    def _scan(self, connection: sqlite3.Connection, layout: Layout, column: str) -> Iterator[tuple[Any, Tensor]]:
        """Ids, or row numbers as a tensor [B], and contexts [B, C] of the whole store, block by block."""
        cursor = connection.execute(f"SELECT {column}, context FROM contexts ORDER BY rowid")
        while block := cursor.fetchmany(BLOCK):
            values, contexts = zip(*block, strict=True)
            yield torch.tensor(values) if column == "rowid" else list(values), layout.unpack(contexts, self.path)

    def _ranked(
        self, connection: sqlite3.Connection, layout: Layout, query: Tensor, rows: list[int]
    ) -> list[tuple[Any, float]]:
        """The ids of these rows and their distances from query [C], nearest first."""
        near_rows = list(_look_up(connection, "id, context", "rowid", rows))
        contexts = layout.unpack([context for _, context in near_rows], self.path).double()
        distances = (contexts - query).norm(dim=1).tolist()
        near = [(one, distance) for (one, _), distance in zip(near_rows, distances, strict=True)]
        return sorted(near, key=lambda neighbour: neighbour[1])

    def _checked_queries(self, contexts: Tensor, layout: Layout | None) -> Tensor:
        """Contexts [Q, C] to look for, in double precision."""
        if contexts.ndim != 2 or (layout and contexts.shape[1] != layout.size):
            raise CaviaError(f"contexts must be [Q, {layout.size if layout else 'C'}], got {shape(contexts)}")
        if not contexts.isfinite().all():
            raise CaviaError("the contexts whose neighbours are asked for are not finite")
        return contexts.detach().cpu().double()


def _look_up(connection: sqlite3.Connection, columns: str, key: str, values: list[Any]) -> Iterator[Any]:
    """Rows whose key is among the values, in any order."""
    for start in range(0, len(values), ASKED):
        part = values[start : start + ASKED]
        marks = ",".join("?" * len(part))
        yield from connection.execute(f"SELECT {columns} FROM contexts WHERE {key} IN ({marks})", part)

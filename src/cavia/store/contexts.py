"""Adapted contexts by task id, thousands or millions of them, in one file that outlives the process."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_positive, shown
from cavia.kinds import checked
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.store.database import SUMMED, Database, format_of, set_format
from cavia.store.ids import Id, checked_ids, first_few
from cavia.store.layout import Layout, checked_contexts, has_numbers
from cavia.store.nearest import lengths, nearest_rows
from cavia.store.parquet import write_parquet
from cavia.store.rows import FIRST_ROW, LAST_ROW, TABLES, Rows, look_up
from cavia.tasks.batch import shape
from cavia.tensor_file import checked_path

BLOCK = 8192  # contexts in memory at a time, where a call goes through all of them


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

    @checked
    def __init__(self, path: str | PathLike[str], model: Learner | str | None = None, timeout: float = 30.0):
        self.path = checked_path(path)
        if (isinstance(model, str) and not model.isprintable()) or model == "":
            raise CaviaError(f"model must be a learner or its version, got {shown(model)}")
        self._learner = model if isinstance(model, Learner) else None
        asked = model.version if isinstance(model, Learner) else model
        self._database = Database(self.path, asked is not None, require_positive("timeout", timeout))
        self._rows: Rows | None = None
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
            self._settle_rows(connection, layout).put(connection, ids, contexts)

    def get(self, ids: Iterable[Id]) -> Adapted:
        """These T tasks, in this order, for `predict`. Ids that are not there are an error that names them."""
        ids = checked_ids(ids)
        with self._database.reading() as connection:
            return Adapted.of({CONTEXT: self._get(connection, ids)})

    def delete(self, ids: Iterable[Id]) -> None:
        """Forget these tasks. If one of them is not there, all stay."""
        ids = checked_ids(ids, ordered=False)
        with self._database.writing() as connection:
            found = self._select(connection, "id, rowid", ids)
            if rows := self._upgraded(connection):
                rows.delete(connection, found.values())

    def __len__(self) -> int:
        with self._database.reading() as connection:
            if self._find_rows(connection) is None:
                return 0
            return connection.execute("SELECT count(*) FROM contexts").fetchone()[0]

    def __contains__(self, id: object) -> bool:
        wanted = checked_ids([id])
        with self._database.reading() as connection:
            rows = self._find_rows(connection)
            if rows is None or rows.layout.kind != type(wanted[0]).__name__:
                return False
            return connection.execute("SELECT 1 FROM contexts WHERE id = ?", wanted).fetchone() is not None

    @property
    def ids(self) -> list[Any]:
        """All ids: numbers in rising order, strings in the order in which they were first put."""
        with self._database.reading() as connection:
            rows = self._find_rows(connection)
            return [one for _, ids, _ in self._scan(connection, rows) for one in ids] if rows else []

    @checked
    def batches(self, size: int = BLOCK) -> Iterator[tuple[list[Any], Tensor]]:
        """All ids and contexts [B, C], at most `size` at a time, in the order of `ids`.

        The store may be changed meanwhile: each batch shows it as it is when the batch is read.
        """
        return self._batches(require_at_least("size", size, 1))

    def _batches(self, size: int) -> Iterator[tuple[list[Any], Tensor]]:
        start = FIRST_ROW
        while start <= LAST_ROW:
            with self._database.reading() as connection:
                rows = self._find_rows(connection)
                block = rows.after(connection, start, size) if rows else []
            if not block or rows is None:
                return
            yield [row[1] for row in block], rows.contexts([row[1:] for row in block])
            start = block[-1][0] + 1

    @checked
    def nearest(self, tasks: Tensor | Iterable[Id], k: int = 10) -> list[list[tuple[Any, float]]]:
        """The k tasks whose contexts are nearest to each of Q: Q lists of (id, Euclidean distance), nearest first.

        tasks: contexts [Q, C], or a list of Q ids, of which none finds itself.
        Every stored context is compared, and read once for all Q; memory does not grow with their number.
        """
        require_at_least("k", k, 1)
        with self._database.reading() as connection:
            rows, own = self._find_rows(connection), None
            if isinstance(tasks, Tensor) and tasks.is_floating_point():
                queries = self._checked_queries(tasks, rows.layout if rows else None)
            else:
                ids = checked_ids(tasks)
                queries, found = self._get(connection, ids).double(), self._select(connection, "id, rowid", ids)
                own = torch.tensor([found[one][1] for one in ids], dtype=torch.int64)
            if rows is None or not len(queries):
                return [[] for _ in queries]
            blocks = ((numbers, contexts) for numbers, _, contexts in self._scan(connection, rows))
            nearest = nearest_rows(blocks, queries, k, own)
            return [
                self._ranked(connection, rows, query, [row for row in near if own is None or row != own[place]])
                for place, (query, near) in enumerate(zip(queries, nearest.tolist(), strict=True))
            ]

    @checked
    def export(self, path: str | PathLike[str]) -> None:
        """Write everything to a Parquet file with the columns `id` and `context`; needs the extra `cavia[tables]`."""
        with self._database.reading() as connection:
            rows = self._find_rows(connection)
            if rows is None:
                raise CaviaError(f"{self.path} is empty: there is nothing to export")
            blocks = ((ids, contexts) for _, ids, contexts in self._scan(connection, rows))
            write_parquet(checked_path(path), blocks, rows.layout, self.version)

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
        if row is not None and not isinstance(row[0], str):
            raise CaviaError(f"{self.path} is damaged: its version must be a string, got {shown(row[0])}")
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

    def _find_rows(self, connection: sqlite3.Connection) -> Rows | None:
        """None as long as nothing was put, by whichever process."""
        if self._rows is None or not self._rows.summed:  # another process may put, or add checksums
            about = dict(connection.execute("SELECT name, value FROM about"))
            self._rows = Rows.of(about, self.path, format_of(connection) == SUMMED)
        return self._rows

    def _settle_rows(self, connection: sqlite3.Connection, layout: Layout) -> Rows:
        """Raise unless contexts of this layout belong here; the first ones decide."""
        if settled := self._upgraded(connection):
            settled.layout.check(layout, self.path)
            return settled
        connection.execute(TABLES[layout.kind])
        about = {"kind": layout.kind, "dtype": str(layout.dtype).removeprefix("torch."), "size": layout.size}
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        set_format(connection, SUMMED)
        return Rows(layout, self.version, self.path, True)

    def _upgraded(self, connection: sqlite3.Connection) -> Rows | None:
        """The rows, with checksums, before they are written to."""
        rows = self._find_rows(connection)
        return rows if rows is None or rows.summed else rows.add_checksums(connection)

    def _get(self, connection: sqlite3.Connection, ids: list[Any]) -> Tensor:
        rows = self._find_rows(connection)
        found = self._select(connection, rows.columns if rows else "id", ids)
        return rows.contexts([found[one] for one in ids]) if rows else torch.empty(0, 0)

    def _select(self, connection: sqlite3.Connection, columns: str, ids: list[Any]) -> dict[Any, Any]:
        """id → these columns, the first of which is the id; an error if one of the ids is not there."""
        rows = self._find_rows(connection)
        if rows and ids:
            rows.layout.check_kind(type(ids[0]).__name__, self.path)
        found = {row[0]: row for row in look_up(connection, columns, "id", ids if rows else [])}
        missing = [one for one in ids if one not in found]
        if missing:
            raise CaviaError(f"{len(missing)} of {len(ids)} ids are not in {self.path}: {first_few(missing)}")
        return found

    def _scan(self, connection: sqlite3.Connection, rows: Rows) -> Iterator[tuple[Tensor, list[Any], Tensor]]:
        """Row numbers [B], ids and contexts [B, C] of the whole store, block by block."""
        cursor = connection.execute(f"SELECT rowid, {rows.columns} FROM contexts ORDER BY rowid")
        while block := cursor.fetchmany(BLOCK):
            numbers, ids = torch.tensor([row[0] for row in block]), [row[1] for row in block]
            yield numbers, ids, rows.contexts([row[1:] for row in block])

    def _ranked(
        self, connection: sqlite3.Connection, rows: Rows, query: Tensor, numbers: list[int]
    ) -> list[tuple[Any, float]]:
        """The ids of the rows of these numbers and their distances from query [C], nearest first."""
        near_rows = list(look_up(connection, rows.columns, "rowid", numbers))
        distances = lengths(rows.contexts(near_rows).double() - query).tolist()
        near = [(one, distance) for (one, _, _), distance in zip(near_rows, distances, strict=True)]
        return sorted(near, key=lambda neighbour: neighbour[1])

    def _checked_queries(self, contexts: Tensor, layout: Layout | None) -> Tensor:
        """Contexts [Q, C] to look for, in double precision."""
        if contexts.ndim != 2 or (layout and contexts.shape[1] != layout.size):
            raise CaviaError(f"contexts must be [Q, {layout.size if layout else 'C'}], got {shape(contexts)}")
        if not has_numbers(contexts) or not contexts.isfinite().all():
            raise CaviaError("the contexts whose neighbours are asked for are not finite")
        return contexts.detach().cpu().double()

"""Adapted contexts by task id, thousands or millions of them, in one file that outlives the process."""

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
from cavia.store.backend import BLOCK, Transaction
from cavia.store.ids import Id, checked_ids, first_few
from cavia.store.layout import Layout, checked_contexts, has_numbers
from cavia.store.matrix import Matrix
from cavia.store.nearest import lengths, nearest_rows
from cavia.store.opening import open_backend
from cavia.store.parquet import write_parquet
from cavia.store.rows import FIRST_ROW, LAST_ROW, Rows
from cavia.tasks.batch import shape
from cavia.tensor_file import checked_path


class ContextStore:
    """The contexts of many tasks in one file: `put` after adapting, `get` before predicting.

    path:    the file, created if a model is given. SQLite keeps two more next to it while it is open. Or the URL of a
             PostgreSQL database that several machines share, `postgresql://user:password@host:5432/database`; needs
             the extra `postgres`. `?store=users` names one of several stores in it.
    model:   the learner, or its `version`, that the contexts belong to: a store holds those of one version, and
             another is refused. Given a learner, every `put` makes sure that it was not trained any further. Without
             a model, an existing store is opened for whichever version it holds.
    timeout: seconds to wait while another process writes.

    Ids are int or str, one kind in a store. When `put` or `delete` returns, its change is on disk; each happens
    as a whole or not at all. Any number of threads and processes may read while one writes. Every read compares a
    checksum: a context that was damaged on the disk is an error that names its id.

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
        if isinstance(model, str) and (not model or not model.isprintable()):
            raise CaviaError(f"model must be a learner or its version, got {shown(model)}")
        self._learner = model if isinstance(model, Learner) else None
        asked = model.version if isinstance(model, Learner) else model
        self._database = open_backend(path, asked is not None, require_positive("timeout", timeout))
        self.path = self._database.path
        self._rows: Rows | None = None
        self._matrix: tuple[object, Matrix | None] = (None, None)  # what was searched last, and when it was read
        try:
            self.version = self._settle_version(asked)
        except BaseException:
            self.close()
            raise

    def put(self, ids: Iterable[Id], contexts: Tensor | Adapted) -> None:
        """Store the contexts of T tasks, replacing those that these ids had.

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
        with self._database.writing() as transaction:
            rows = self._settle_rows(transaction, layout)
            transaction.put(layout, rows.packed(ids, contexts), contexts)

    def get(self, ids: Iterable[Id]) -> Adapted:
        """These T tasks, in this order, for `predict`. Missing ids are an error that names them."""
        ids = checked_ids(ids)
        with self._database.reading() as transaction:
            return Adapted.of({CONTEXT: self._get(transaction, ids)})

    def delete(self, ids: Iterable[Id]) -> None:
        """Forget these tasks. If one of them is missing, all stay."""
        ids = checked_ids(ids, ordered=False)
        with self._database.writing() as transaction:
            numbers = self._numbers(transaction, ids)
            rows = self._upgraded(transaction)
            if rows and numbers and transaction.delete(list(numbers.items())) != len(numbers):
                raise rows.damaged(list(numbers))

    def __len__(self) -> int:
        with self._database.reading() as transaction:
            return transaction.count() if self._find_rows(transaction) else 0

    def __contains__(self, id: object) -> bool:
        wanted = checked_ids([id])
        with self._database.reading() as transaction:
            rows = self._find_rows(transaction)
            if rows is None or rows.layout.kind != type(wanted[0]).__name__:
                return False
            return bool(transaction.numbers(wanted))

    @property
    def ids(self) -> list[Any]:
        """All ids: numbers in rising order, strings in the order in which they were first put."""
        with self._database.reading() as transaction:
            rows = self._find_rows(transaction)
            return [one for _, ids, _ in self._scan(transaction, rows) for one in ids] if rows else []

    @checked
    def batches(self, size: int = BLOCK) -> Iterator[tuple[list[Any], Tensor]]:
        """All ids and contexts [B, C], at most `size` at a time, in the order of `ids`.

        The store may change between batches: each batch shows it at the moment of reading.
        """
        return self._batches(require_at_least("size", size, 1))

    def _batches(self, size: int) -> Iterator[tuple[list[Any], Tensor]]:
        start = FIRST_ROW
        while start <= LAST_ROW:
            with self._database.reading() as transaction:
                rows = self._find_rows(transaction)
                block = transaction.after(start, size) if rows else []
            if not block or rows is None:
                return
            yield [row[1] for row in block], rows.contexts([row[1:] for row in block])
            start = block[-1][0] + 1

    @checked
    def nearest(self, tasks: Tensor | Iterable[Id], k: int = 10) -> list[list[tuple[Any, float]]]:
        """The k tasks whose contexts are nearest to each of Q: Q lists of (id, Euclidean distance), nearest first.

        tasks: contexts [Q, C], or a list of Q ids; an id does not find itself.
        Every stored context is compared. A file's are kept in memory for the next search, if they take at most 512 MiB,
        until the file changes; larger ones are read once for all Q. On a server, pgvector compares them.
        """
        require_at_least("k", k, 1)
        with self._database.reading() as transaction:
            rows, own = self._find_rows(transaction), None
            if isinstance(tasks, Tensor) and tasks.is_floating_point():
                queries = self._checked_queries(tasks, rows.layout if rows else None)
            else:
                try:
                    ids = checked_ids(tasks)
                    queries, numbers = self._get(transaction, ids).double(), self._numbers(transaction, ids)
                except CaviaError as error:
                    raise CaviaError(f"tasks must be ids or contexts of the store: {error}") from error
                own = torch.tensor([numbers[one] for one in ids], dtype=torch.int64)
            if rows is None or not len(queries):
                return [[] for _ in queries]
            nearest = transaction.nearest(rows.layout, queries, k + (own is not None))
            if nearest is None and (matrix := self._in_memory(transaction, rows)):
                nearest = matrix.nearest(queries, k + (own is not None))
            if nearest is None:
                nearest = nearest_rows(self._numbered(transaction, rows), queries, k, own).tolist()
            return [
                self._ranked(transaction, rows, query, [row for row in near if own is None or row != own[place]])[:k]
                for place, (query, near) in enumerate(zip(queries, nearest, strict=True))
            ]

    @checked
    def export(self, path: str | PathLike[str]) -> None:
        """Write everything to a Parquet file with the columns `id` and `context`; needs the extra `tables`."""
        with self._database.reading() as transaction:
            rows = self._find_rows(transaction)
            if rows is None:
                raise CaviaError(f"{self.path} is empty: there is nothing to export")
            blocks = ((ids, contexts) for _, ids, contexts in self._scan(transaction, rows))
            write_parquet(self._database.beside(checked_path(path)), blocks, rows.layout, self.version)

    def close(self) -> None:
        """Close the file; it holds everything that was put."""
        self._database.close()
        self._matrix = (None, None)

    def __enter__(self) -> "ContextStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ContextStore({str(self.path)!r}, {self.version!r})"

    def _settle_version(self, asked: str | None) -> str:
        """The version of the file's contexts, which a new file is given now."""
        with self._database.reading() as transaction:
            about = transaction.about()
        if "version" not in about:
            if asked is None:
                raise CaviaError(f"{self.path} is empty; give the learner, or its version")
            with self._database.writing() as transaction:
                transaction.note({"version": asked})
                about = transaction.about()  # another process may have been quicker
        version = about["version"]
        if not isinstance(version, str):
            raise CaviaError(f"{self.path} is damaged: its version must be a string, got {shown(version)}")
        if asked not in (None, version):
            raise CaviaError(
                f"{self.path} holds contexts of model version {version}, not of {asked}; "
                "adapt again with the new model, into a store of its own"
            )
        return version

    def _find_rows(self, transaction: Transaction) -> Rows | None:
        """None until some process has put something."""
        if self._rows is None or not self._rows.summed:  # another process may put, or add checksums
            self._rows = Rows.of(transaction.about(), self.path, transaction.summed)
        return self._rows

    def _settle_rows(self, transaction: Transaction, layout: Layout) -> Rows:
        """Raise unless contexts of this layout belong here; the first ones decide."""
        if settled := self._upgraded(transaction):
            settled.layout.check(layout, self.path)
            return settled
        transaction.make_table(layout)
        dtype = str(layout.dtype).removeprefix("torch.")
        transaction.note({"kind": layout.kind, "dtype": dtype, "size": layout.size})
        return Rows(layout, self.version, self.path, True)

    def _upgraded(self, transaction: Transaction) -> Rows | None:
        """The rows, with checksums, before they are written to."""
        rows = self._find_rows(transaction)
        return transaction.upgraded(rows) if rows else None

    def _get(self, transaction: Transaction, ids: list[Any]) -> Tensor:
        rows = self._asked_rows(transaction, ids)
        by_id = {row[0]: row for row in transaction.rows("id", ids)} if rows else {}
        self._require_all(ids, by_id)
        return rows.contexts([by_id[one] for one in ids]) if rows else torch.empty(0, 0)

    def _numbers(self, transaction: Transaction, ids: list[Any]) -> dict[Any, int]:
        """id → the number of its row; an error if an id is missing."""
        numbers = dict(transaction.numbers(ids)) if self._asked_rows(transaction, ids) else {}
        self._require_all(ids, numbers)
        return numbers

    def _asked_rows(self, transaction: Transaction, ids: list[Any]) -> Rows | None:
        """The rows, if ids of this kind can be among them."""
        rows = self._find_rows(transaction)
        if rows and ids:
            rows.layout.check_kind(type(ids[0]).__name__, self.path)
        return rows

    def _require_all(self, ids: list[Any], by_id: dict[Any, Any]) -> None:
        missing = [one for one in ids if one not in by_id]
        if missing:
            raise CaviaError(f"{len(missing)} of {len(ids)} ids are not in {self.path}: {first_few(missing)}")

    def _scan(self, transaction: Transaction, rows: Rows) -> Iterator[tuple[Tensor, list[Any], Tensor]]:
        """Row numbers [B], ids and contexts [B, C] of the whole store, block by block."""
        for block in transaction.blocks():
            numbers, ids = torch.tensor([row[0] for row in block]), [row[1] for row in block]
            yield numbers, ids, rows.contexts([row[1:] for row in block])

    def _numbered(self, transaction: Transaction, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
        return ((numbers, contexts) for numbers, _, contexts in self._scan(transaction, rows))

    def _in_memory(self, transaction: Transaction, rows: Rows) -> Matrix | None:
        """All contexts, read again if the store was changed; None if they are too many, or changes cannot be told."""
        stamp = self._database.stamp()
        if stamp is None or self._matrix[0] != stamp:
            self._matrix = (None, None)  # the memory is free before it is taken again
            count = transaction.count() if stamp is not None else 0
            if Matrix.fits(rows.layout, count):
                self._matrix = (stamp, Matrix(rows.layout, count, self._numbered(transaction, rows)))
        return self._matrix[1]

    def _ranked(
        self, transaction: Transaction, rows: Rows, query: Tensor, numbers: list[int]
    ) -> list[tuple[Any, float]]:
        """The ids of the rows of these numbers and their distances from query [C], nearest first."""
        near_rows = transaction.rows("number", numbers)
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

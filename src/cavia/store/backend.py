"""What a store needs from its database: transactions of a few operations, and none open during a fork."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from cavia.errors import CaviaError
from cavia.store.layout import Layout
from cavia.store.rows import FIRST_ROW, LAST_ROW, Row, Rows

BLOCK = 8192  # contexts in memory at a time, where a call goes through all of them


class Transaction(ABC):
    """Operations on one snapshot of a store; writes if it was begun for writing.

    Every row has a number: a whole-number id is its own, strings are numbered in the order in which they were put.
    """

    summed = True  # whether rows have checksums

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """The store's metadata: `version`, and after the first `put` also `kind`, `dtype` and `size`."""

    @abstractmethod
    def note(self, about: dict[str, Any]) -> None:
        """Set this metadata, unless the name is set already."""

    @abstractmethod
    def make_table(self, layout: Layout) -> None:
        """Make the table of contexts."""

    @abstractmethod
    def put(self, layout: Layout, rows: Iterable[Row], contexts: Tensor) -> None:
        """Write rows, replacing those of the same ids. contexts: theirs, [T, C]."""

    @abstractmethod
    def rows(self, key: Literal["id", "number"], values: Sequence[Any]) -> list[Row]:
        """The rows with these ids, or with these numbers, in any order."""

    @abstractmethod
    def numbers(self, ids: Sequence[Any]) -> list[tuple[Any, int]]:
        """(id, number) of the ids that are there, in any order; who writes keeps others from changing them."""

    @abstractmethod
    def after(self, first: int, count: int) -> list[tuple[int, Any, Any, Any]]:
        """This many rows, starting at that number: number, id, context and checksum of each."""

    @abstractmethod
    def delete(self, rows: Sequence[tuple[Any, int]]) -> int:
        """Delete the rows of these ids and numbers; how many there were."""

    @abstractmethod
    def count(self) -> int:
        """The number of rows."""

    def upgraded(self, rows: Rows) -> Rows:
        """The same rows in the present format, before they are written to."""
        return rows

    def nearest(self, layout: Layout, queries: Tensor, k: int) -> list[list[int]] | None:
        """Numbers of rows among which the k nearest to each of queries [Q, C] are; None if all must be compared."""
        return None

    def blocks(self) -> Iterator[list[tuple[int, Any, Any, Any]]]:
        """All rows in the order of their numbers, as `after` gives them."""
        start = FIRST_ROW
        while start <= LAST_ROW and (block := self.after(start, BLOCK)):
            yield block
            start = block[-1][0] + 1


class Backend(ABC):
    """A database and this process's connection to it. Safe to share between threads.

    `reading` sees one moment of the store however long it lasts; `writing` happens as a whole or not at all, and what
    it wrote is on the disk when it ends.
    path: how messages name the store.
    """

    path: Path | str

    def __init__(self, timeout: float) -> None:
        self.timeout, self.lock, self._closed = timeout, threading.RLock(), False

    def beside(self, path: Path) -> Path:
        """The path of a file to write, or an error if it is one of the store's own."""
        own = (Path(f"{self.path}{ending}") for ending in ("", "-wal", "-shm"))
        if isinstance(self.path, Path) and path.exists() and any(one.exists() and one.samefile(path) for one in own):
            raise CaviaError(f"{path} is the store {self.path} itself; choose another name")
        return path

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """A transaction in which all queries see the store as it is now."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction whose changes are committed durably if the block ends without an error."""

    @abstractmethod
    def disconnect(self) -> None:
        """Drop the connection; the next transaction makes a new one."""

    def stamp(self) -> object:
        """What differs whenever the store may have changed, asked inside `reading`; None if this cannot be told."""
        return None

    def close(self) -> None:
        with self.lock:
            self.disconnect()
            self._closed = True
            _OPEN.discard(self)

    def opened(self) -> None:
        """From now on, drop the connection before a fork."""
        _OPEN.add(self)

    def require_open(self) -> None:
        if self._closed:
            raise CaviaError(f"the store {self.path} is closed; open it again")


# Connections, and the locks that SQLite remembers for them, must not be carried over a fork: none is open during one.
_OPEN: "weakref.WeakSet[Backend]" = weakref.WeakSet()
_HELD: list[Backend] = []


def _before_fork() -> None:
    for backend in list(_OPEN):
        backend.lock.acquire()
        backend.disconnect()
        _HELD.append(backend)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

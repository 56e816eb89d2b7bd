"""One SQLite file: durable transactions, one-line errors, and connections that survive a fork."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cavia.errors import CaviaError
from cavia.store.backend import Backend, Transaction
from cavia.store.database_rows import PLAIN, SUMMED, FileTransaction, set_format

APPLICATION = 0x43564941  # "CVIA" in the header of the file: a database of another program is left alone
CACHE_KIB = 64 * 1024  # pages kept in memory: the index of a million ids fits
CHECKPOINT_PAGES = 8192  # the log is copied into the file when it reaches 32 MB …
LOG_BYTES = 64 * 1024**2  # … and is cut back to this after a larger transaction


class Database(Backend):
    """A file of our format, made if `create`, and this process's connection to it.

    Other processes may read while one writes; a second writer waits its turn, at most `timeout` seconds.
    """

    path: Path

    def __init__(self, path: Path, create: bool, timeout: float):
        super().__init__(timeout)
        self.path, self._place = path, path.absolute()  # the process may go to another folder
        self._file: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._create = create
        self._connections = self._writes = 0
        try:
            exists = path.exists()
            if path.is_dir() or not (create or exists):
                raise CaviaError(f"there is no store {path}; to make one, give the model: a learner, or its version")
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CaviaError(f"cannot open {path}: {error.strerror or error}") from error
        self.read_only = not _is_writable(path)
        if self.read_only and not exists:
            raise CaviaError(f"cannot make {path}: the folder is read-only")
        self.opened()
        with self._errors():
            self.connection()

    def connection(self) -> sqlite3.Connection:
        self.require_open()
        if self._connection is None:
            self._connection = self._connect()
            self._file = self._found()
            self._connections += 1
            self._create = False
        return self._connection

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stamp(self) -> object:
        """SQLite counts what other connections commit, for each connection anew; what this one does is counted here."""
        version = self.connection().execute("PRAGMA data_version").fetchone()[0]
        return self._connections, version, self._writes

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self._transaction("BEGIN") as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        if self.read_only:
            raise CaviaError(f"cannot write {self.path}: the file or its folder is read-only")
        with self._transaction("BEGIN IMMEDIATE") as transaction:
            self._writes += 1
            yield transaction

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Transaction]:
        with self.lock, self._errors():
            connection = self.connection()
            self._require_there()
            connection.execute(begin)
            try:
                yield FileTransaction(connection)
                self._require_there()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite has itself rolled back when the disk is full
                    connection.execute("ROLLBACK")
                raise

    def _found(self) -> tuple[int, int] | None:
        """Which file is at the path; None: there is none."""
        try:
            there = self._place.stat()
        except OSError:
            return None
        return there.st_dev, there.st_ino

    def _require_there(self) -> None:
        """Raise unless the path is still that of the open file: what is written to a deleted one is lost."""
        if self._found() != self._file:
            raise CaviaError(f"{self.path} was moved, deleted or replaced since it was opened; open it again")

    def _connect(self) -> sqlite3.Connection:
        mode = "mode=rwc" if self._create else "mode=rw"
        if self.read_only:  # SQLite cannot put its locks beside the file; without a log there is nobody to lock out
            has_log = self.path.with_name(f"{self.path.name}-wal").exists()
            mode = "mode=ro" if has_log else "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"{self._place.as_uri()}?{mode}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,  # transactions are begun and ended here, not by the module
            check_same_thread=False,
        )
        try:
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute("BEGIN")  # another process may be making the file: look at one moment of it
            ours = self._is_ours(connection)
            connection.execute("COMMIT")
            if not ours and not self._create:
                raise CaviaError(f"{self.path} is empty; give the learner, or its version")
            if not ours:
                self._make(connection)
            if not self.read_only:
                connection.execute("PRAGMA synchronous = FULL")  # a commit returns when the log is on the disk
                connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """False if the file is empty; an error if it is another program's or of a later format."""
        application, form, tables = (
            connection.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if application != APPLICATION and (tables or application or self.read_only):
            raise CaviaError(f"{self.path} is a database of another program, not a cavia store")
        if application == APPLICATION and form not in (PLAIN, SUMMED):
            raise CaviaError(f"{self.path} has format {form}, this version of cavia reads {PLAIN} and {SUMMED}")
        return application == APPLICATION

    def _make(self, connection: sqlite3.Connection) -> None:
        self._use_log(connection)
        connection.execute("BEGIN IMMEDIATE")
        if not self._is_ours(connection):  # unless another process was quicker
            connection.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID")
            set_format(connection, SUMMED)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Turn on the write-ahead log, for good. This one statement does not wait for other processes by itself."""
        last = time.monotonic() + self.timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise CaviaError(self._explain(error)) from error
        except UnicodeDecodeError as error:  # in what should be a text: an id, or SQLite's own message
            raise CaviaError(f"{self.path} is damaged ({error}); restore it from a copy") from error

    def _explain(self, error: sqlite3.Error) -> str:
        match _code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return (
                    f"another process has been writing to {self.path} for more than {self.timeout:g} s; "
                    "try again, or open it with a larger timeout"
                )
            case sqlite3.SQLITE_FULL:
                return f"cannot write {self.path}: the disk is full; nothing of this call was stored"
            case sqlite3.SQLITE_NOTADB:
                return f"{self.path} is damaged or not a cavia store"
            case sqlite3.SQLITE_CORRUPT:
                return f"{self.path} is damaged ({error})"
            case _:
                return f"cannot use the store {self.path}: {error}"


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; the higher bits are variants."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))

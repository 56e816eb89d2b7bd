"""A store in a PostgreSQL database that several machines share."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cavia.errors import CaviaError, missing_package
from cavia.store.address import Address
from cavia.store.backend import Backend, Transaction
from cavia.store.postgres_rows import ServerTransaction, lock_number, tables

try:
    import psycopg
    from psycopg import errors, sql
except ImportError as error:
    raise missing_package("a store on a PostgreSQL server", "psycopg", "postgres") from error

FORMAT = 1
SHORTEST = 2  # seconds that libpq waits for a connection, at least
LOOK = "BEGIN ISOLATION LEVEL READ COMMITTED"
READ, WRITE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


class Server(Backend):
    """A store's two tables, made if `create`, and this process's connection to their server.

    Any number of processes write at once; who wants to change a row that another is changing waits for it, at most
    `timeout` seconds. A connection that was lost is made again by the next call.
    """

    path: str

    def __init__(self, url: str, create: bool, timeout: float):
        super().__init__(timeout)
        self._address = Address.of(url)
        self.path = self._address.shown
        self.about = sql.Identifier(tables(self._address.store)[0])
        self._connection: psycopg.Connection[Any] | None = None
        self._settings = f"SET LOCAL lock_timeout = {math.ceil(1000 * min(timeout, 1e6))}"
        self.opened()
        try:
            with self.lock, self._errors():
                self._find(self._begun(LOOK), create)
        except BaseException:
            self.close()
            raise

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self._transaction(READ, False) as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._transaction(WRITE, True) as transaction:
            yield transaction

    @contextmanager
    def _transaction(self, begin: str, writes: bool) -> Iterator[Transaction]:
        with self.lock, self._errors():
            connection = self._begun(begin)
            try:
                yield ServerTransaction(connection, self._address.store, writes)
                connection.execute("COMMIT")
            except BaseException:
                self._give_up(connection)
                raise

    def _begun(self, begin: str) -> "psycopg.Connection[Any]":
        """A connection that has begun a transaction: the present one, or a new one if its server has gone since."""
        self.require_open()
        order = f"{begin}; {self._settings}"
        if self._connection is not None:
            try:
                self._connection.execute(order)
                return self._connection
            except psycopg.OperationalError:  # nothing has been asked for yet, so nothing is lost
                self.disconnect()
        connection = self._connection = self._connect()
        connection.execute(order)
        return connection

    def _connect(self) -> "psycopg.Connection[Any]":
        options = {"connect_timeout": max(SHORTEST, math.ceil(min(self.timeout, 1e6))), "application_name": "cavia"}
        connection = psycopg.connect(
            **{**options, **self._address.options},
            autocommit=True,  # transactions are begun and ended here, not by the module
            prepare_threshold=None,  # prepared statements do not survive a pooler
        )
        committing = connection.execute("SHOW synchronous_commit").fetchone()
        if committing == ("off",):  # a commit returns when it is on the disk
            connection.execute("SET synchronous_commit = on")
        return connection

    def _give_up(self, connection: "psycopg.Connection[Any]") -> None:
        """Roll the transaction back after an error."""
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            with suppress(psycopg.Error):
                connection.close()
        if connection.closed:
            self._connection = None

    def _find(self, connection: "psycopg.Connection[Any]", create: bool) -> None:
        """Look for the store's tables, in a transaction that has begun, and make what is missing."""
        try:
            if not self._exists(connection):
                if not create:
                    raise CaviaError(
                        f"there is no store {self.path}; to make one, give the model: a learner, or its version"
                    )
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(self._address.store)])
                # another process may have been quicker, which to_regclass would not see in this transaction
                table = "CREATE TABLE IF NOT EXISTS {about} (name text PRIMARY KEY, value jsonb NOT NULL)"
                note = "INSERT INTO {about} VALUES ('format', %s) ON CONFLICT (name) DO NOTHING"
                connection.execute(sql.SQL(table).format(about=self.about))
                connection.execute(sql.SQL(note).format(about=self.about), [str(FORMAT)])
            connection.execute("COMMIT")
        except BaseException:
            self._give_up(connection)
            raise

    def _exists(self, connection: "psycopg.Connection[Any]") -> bool:
        """False if there is no such table; an error if it is another program's or of a later format."""
        row = connection.execute("SELECT to_regclass(%s)", [self.about.as_string(connection)]).fetchone()
        if row == (None,):
            return False
        try:
            query = sql.SQL("SELECT value FROM {} WHERE name = 'format'").format(self.about)
            form = connection.execute(query).fetchone()
        except (errors.UndefinedColumn, errors.WrongObjectType):
            form = None
        if form is None:
            raise CaviaError(f"{self.path} is a table of another program, not a cavia store; choose another ?store=")
        if form[0] != FORMAT:
            raise CaviaError(f"{self.path} has format {form[0]}, this version of cavia reads {FORMAT}")
        return True

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn PostgreSQL's errors into ours. They are not chained: those of libpq may quote what they were given."""
        try:
            yield
        except psycopg.Error as error:
            raise CaviaError(self._explain(error)) from None

    def _explain(self, error: "psycopg.Error") -> str:
        said = " ".join((error.diag.message_primary or str(error)).split())
        for name in ("password", "sslpassword"):
            if secret := self._address.options.get(name):
                said = said.replace(str(secret), "…")
        match error:
            case errors.LockNotAvailable() | errors.DeadlockDetected():
                return (
                    f"another process has been writing to {self.path} for more than {self.timeout:g} s; "
                    "try again, or open it with a larger timeout"
                )
            case errors.DiskFull():
                return f"cannot write {self.path}: the disk is full; nothing of this call was stored"
            case errors.ReadOnlySqlTransaction() | errors.InsufficientPrivilege():
                return f"cannot use the store {self.path}: {said}; ask for the right to read and write its tables"
            case errors.UndefinedTable():
                return f"the store {self.path} was deleted meanwhile; open it again"
            case psycopg.OperationalError() if self._connection is None or self._connection.closed:
                return (
                    f"cannot reach the store {self.path}: {said}; "
                    "a call that was under way may or may not have been kept, try it again"
                )
            case _:
                return f"cannot use the store {self.path}: {said}"

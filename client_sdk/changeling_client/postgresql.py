"""A store in a PostgreSQL database, which pods share: an account that answers in two of them answers once.

A transaction holds the store's one row of `format`, so it is alone among all pods, as it is in a file. Whoever reports
holds a lock of its session, which ends with it: nothing here works through a pooler that shares sessions out by
transaction. What a connection had begun when it was lost is undone; a commit whose answer was lost may stand.
"""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any

from . import store
from .errors import ClientError, StoreBusy, StoreFull, StoreReadOnly, StoreUnusable
from .store import (
    APPLICATION,
    DAMAGE,
    TABLE_NAMES,
    TABLES,
    VERSION,
    ClientStore,
    ReportingLock,
    StoreConnection,
    Wrapping,
    survive,
)

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import TransactionStatus
except ImportError as error:
    raise ImportError("a store in a database needs psycopg: pip install 'changeling-client[postgres]'") from error

_LIMITS: dict[str, str | int] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "application_name": "changeling",
}
"""Time limits of libpq, in seconds and milliseconds, unless the app's connection string says it."""
_SESSION = (
    "SET synchronous_commit = on",
    "SET default_transaction_isolation = 'read committed'",  # who waited for a transaction sees what it has done
    "SET client_min_messages = error",
    "SET tcp_keepalives_idle = 30",  # of a machine that is gone, the database else learns after two hours
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    "SET idle_in_transaction_session_timeout = '30s'",  # of a process that was stopped
)
_OWN_SCHEMA = """
SELECT set_config('search_path', quote_ident(coalesce(
    (SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE pg_class.oid = to_regclass('format')),
    current_schema()
)), false) WHERE current_schema() IS NOT NULL
"""
"""Nothing but the schema that the store is in, or would be made in, is looked into from now on: where one of its tables
is gone, another's of that name is left alone."""
_MAKING = f"SELECT pg_advisory_xact_lock({APPLICATION})"
_REPORTING = f"({APPLICATION}::bigint << 32) | 'format'::regclass::oid::bigint"
_MARK = "a store of changeling-client"
"""The comment on the table `format`, by which a store is known for one, however damaged."""
_TABLES = (
    "CREATE TABLE format (version BIGINT NOT NULL);",  # one row, which every transaction holds
    f"COMMENT ON TABLE format IS '{_MARK}';",
    TABLES.replace(" INTEGER", " BIGINT").replace(" BLOB", " BYTEA").replace(" WITHOUT ROWID", ""),
    "ALTER TABLE entries ALTER private SET STATISTICS 0; ALTER TABLE drawn ALTER nodes SET STATISTICS 0;",
    "ALTER TABLE closings ALTER reports SET STATISTICS 0; ALTER TABLE closings ALTER id SET STATISTICS 0;",
    "ALTER TABLE hand_over ALTER secret SET STATISTICS 0;",
)
"""Without statistics of what hangs on answers, which would be copies of them."""
_ANSWERS = ("entries", "drawn", "closings", "hand_over")
_OLDER = """
SELECT count(*) FROM (
    SELECT greatest(age(backend_xid), age(backend_xmin)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND (datid IS NULL OR datname = current_database())
    UNION ALL SELECT age(xmin) FROM pg_replication_slots
    UNION ALL SELECT age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
) AS others (age) WHERE age > age(pg_current_xact_id()::xid)
"""
"""How many transactions may see what was there before: for them it is kept, whatever is rewritten."""
_BUSY = ("55P03", "57014", "40P01", "25P03")
"""A lock was waited for in vain, or a transaction ended as it took too long."""


@dataclass(frozen=True, slots=True)
class StoreDatabase:
    """The place of a store that is in a database; printed, it shows no password.

    told: a connection string, as libpq reads it. Raises ValueError for one that cannot be read.
    """

    told: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.told)
        except psycopg.Error:
            raise ValueError("the database is a connection string, such as postgresql://USER@HOST/DATABASE") from None

    def __str__(self) -> str:
        told = conninfo_to_dict(self.told)
        return " ".join(
            ["PostgreSQL", *(f"{name}={told[name]}" for name in ("host", "port", "dbname") if name in told)]
        )

    def connect(self) -> "psycopg.Connection[Any]":
        """Connects; each statement is a transaction of its own, unless one is begun."""
        told = conninfo_to_dict(self.told)
        limits = {name: value for name, value in _LIMITS.items() if name not in told}
        connection = psycopg.connect(
            make_conninfo(self.told, **limits), autocommit=True, cursor_factory=psycopg.RawCursor
        )
        try:
            connection.execute(_OWN_SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    def exists(self) -> bool:
        """True if the store's tables are there. Raises StoreBusy if the database cannot be reached."""
        with _store_errors(str(self)), self.connect() as connection:
            tables = _tables_there(connection)
            return "format" in tables or tables >= TABLE_NAMES

    def open(self, key: bytes | None) -> "PostgreSQLStore":
        """Opens the store, and makes its tables if there are none. Raises a store's errors."""
        return PostgreSQLStore(self, key)

    def is_ours(self) -> bool:
        """True if there are all tables of a store, or its mark. Raises StoreBusy if the database cannot be reached."""
        with _store_errors(str(self)), self.connect() as connection:
            mark = connection.execute("SELECT obj_description(to_regclass('format'), 'pg_class')").fetchone()
            return mark == (_MARK,) or _tables_there(connection) >= TABLE_NAMES

    def destroy(self) -> None:
        """Drops all tables of a store. Raises StoreReadOnly."""
        with _store_errors(str(self)), self.connect() as connection:
            connection.execute(f"SET lock_timeout = '{store.BUSY_SECONDS}s'")
            connection.execute(f"DROP TABLE IF EXISTS {', '.join(('format', *sorted(TABLE_NAMES)))} CASCADE")


def _tables_there(connection: "psycopg.Connection[Any]") -> set[str]:
    """The names of the tables in the store's own schema."""
    rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {name for (name,) in rows}


class _Connection:
    """A connection of psycopg, which takes statements as SQLite does."""

    def __init__(self, opened: "psycopg.Connection[Any]") -> None:
        self.opened = opened

    @property
    def is_lost(self) -> bool:
        """True if nothing can be asked through it any more."""
        return self.opened.closed

    @property
    def in_transaction(self) -> bool:
        return self.opened.info.transaction_status != TransactionStatus.IDLE

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self.opened.execute(_numbered(statement), values or None)

    def executemany(self, statement: str, values: Sequence[Sequence[Any]]) -> "psycopg.Cursor[Any]":
        """Sends all of them on one journey."""
        cursor = self.opened.cursor()
        cursor.executemany(_numbered(statement), values)
        return cursor

    def close(self) -> None:
        self.opened.close()


@lru_cache(maxsize=256)
def _numbered(statement: str) -> bytes:
    """The statement with its places for values numbered, as PostgreSQL does it."""
    number = count(1)
    return re.sub(r"\?", lambda _: f"${next(number)}", statement).encode()


class PostgreSQLStore(ClientStore):
    """An open store, made with its tables if there are none.

    key: 32 bytes under which what it keeps of answers is encrypted; None for none.
    Raises StoreUnusable if the tables are not a sound store of our version and key; StoreBusy if the database cannot be
    reached, StoreFull, StoreReadOnly.
    """

    _connection: _Connection | None

    def __init__(self, where: StoreDatabase, key: bytes | None) -> None:
        super().__init__(str(where), Wrapping(key))
        self._where = where
        self.reporting: SessionLock = SessionLock(self)
        with self._errors():
            self._connected()
        survive(self)

    def _connect(self) -> StoreConnection:
        connection = _Connection(self._where.connect())
        try:
            for setting in (*_SESSION, f"SET lock_timeout = '{store.BUSY_SECONDS}s'"):
                connection.execute(setting)
            self._make(connection)
            (check,) = connection.execute("SELECT key_check FROM device").fetchone()
            if not self.wrapping.fits(check):
                raise StoreUnusable(f"{self.place} was made with another key, or with none where one is brought")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make(self, connection: _Connection) -> None:
        """Makes the tables, unless another pod does so first."""
        with connection.opened.transaction():
            connection.execute(_MAKING)
            if "format" not in _tables_there(connection.opened):  # to_regclass may remember that it was not there
                query = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
                if connection.execute(query).fetchone() != (0,):
                    raise StoreUnusable(
                        f"the tables in the schema of {self.place} are of something else: make a schema of the store's "
                        "own, and add ?options=-csearch_path%3DSCHEMA to its connection string"
                    )
                for statements in _TABLES:
                    connection.execute(statements)
                connection.execute("INSERT INTO format VALUES (?)", (VERSION,))
                connection.execute("INSERT INTO device VALUES (?, 0, 0, ?)", (os.urandom(16), self.wrapping.check()))
            (version,) = connection.execute("SELECT version FROM format").fetchone()
        self._check(version)

    def _check(self, version: int) -> None:
        if version != VERSION:
            raise StoreUnusable(f"{self.place} is a store of version {version}; this SDK reads {VERSION}")

    def _begun(self) -> _Connection:
        """Begins once more on another connection if the one at hand was lost since it was last used."""
        connection: _Connection = self._connected()
        try:
            self._begin(connection)
        except psycopg.OperationalError:
            if not connection.is_lost:
                raise
            self._connection = None
            connection = self._connected()
            self._begin(connection)
        return connection

    def _begin(self, connection: _Connection) -> None:
        """Waits for the row that only one transaction holds; its version is another if a newer pod came meanwhile."""
        if self.reporting.is_lost(connection):
            raise StoreBusy(f"the connection to {self.place} was lost, and another process may report")
        try:
            begun = connection.opened.execute("BEGIN; SELECT version FROM format FOR UPDATE")
            begun.nextset()
            self._check(*begun.fetchone() or (0,))
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: _Connection) -> None:
        with suppress(psycopg.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if connection.is_lost:
            self._connection = None

    def _rewrite(self, connection: _Connection) -> bool:
        """Rewrites the tables with answers, once no transaction of another can see what was in them.

        PostgreSQL's log, its replicas and its backups keep what they have: under a `key` they hold it encrypted.
        """
        (older,) = connection.execute(_OLDER).fetchone()
        if older:
            return False
        try:
            connection.execute("SET lock_timeout = '100ms'")
            for table in _ANSWERS:
                connection.execute(f"VACUUM (FULL) {table}")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DiskFull):
            return False
        finally:
            with suppress(psycopg.Error):
                connection.execute(f"SET lock_timeout = '{store.BUSY_SECONDS}s'")
        return True

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with _store_errors(self.place):
                yield
        finally:
            if self._connection is not None and self._connection.is_lost:
                self._connection = None

    def _let_go(self) -> None:
        """The parent keeps its connection, and what it holds."""

    def _leave_to_parent(self, connection: _Connection) -> None:
        """Closes the child's handle of the socket, so that the database sees when the parent ends."""
        with suppress(OSError, psycopg.Error):
            os.close(connection.opened.fileno())


class SessionLock(ReportingLock):
    """A lock of the database's; it ends with the connection."""

    def __init__(self, of: PostgreSQLStore) -> None:
        super().__init__()
        self._store = of
        self._held: tuple[int, StoreConnection] | None = None
        """Which thread has taken it, on which connection."""

    def _take(self) -> tuple[tuple[int, StoreConnection] | None] | None:
        with self._store.transaction() as db:
            (taken,) = db.execute(f"SELECT pg_try_advisory_lock({_REPORTING})").fetchone()
        if not taken:
            return None
        before, self._held = self._held, (threading.get_ident(), db)
        return (before,)

    def _give(self, taken: tuple[tuple[int, StoreConnection] | None]) -> None:
        if self._held is not None:
            with suppress(ClientError), self._store.transaction() as db:
                db.execute(f"SELECT pg_advisory_unlock({_REPORTING})")
            (self._held,) = taken

    def is_lost(self, connection: StoreConnection) -> bool:
        """True if this thread has taken the lock on another connection: then it reports no more."""
        return self._held is not None and self._held[0] == threading.get_ident() and self._held[1] is not connection

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and does not hang on this process."""
        super().forget()
        self._held = None


@contextmanager
def _store_errors(place: str) -> Iterator[None]:
    """Makes a ClientError of what psycopg, the operating system, or a damaged row raises; a ValueError goes on.

    What is raised does not hold the database's own words, as those may hold a row.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _client_error(error, place) from None
    except OSError as error:
        raise StoreBusy(f"{place} cannot be reached: {error.strerror}") from error
    except DAMAGE as error:
        raise StoreUnusable(f"{place} holds a row that cannot be read: {type(error).__name__}") from None


def _client_error(error: psycopg.Error, place: str) -> ClientError:
    state = error.sqlstate or ""
    if state in _BUSY:
        return StoreBusy(f"another process has held {place} for too long")
    if state.startswith("53") and state != "53300":
        return StoreFull(f"there is no room for {place}")
    if state in ("25006", "42501"):
        return StoreReadOnly(f"{place} cannot be written to: {type(error).__name__}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreBusy(f"{place} cannot be reached: {type(error).__name__}")
    return StoreUnusable(f"{place} cannot be read or written: {type(error).__name__}")

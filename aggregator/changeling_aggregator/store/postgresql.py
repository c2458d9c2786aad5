"""A store in a PostgreSQL database, or in a schema of one, for several servers at once.

Readers see one state (repeatable read); writers wait for one another where they touch the same rows (read committed).
An acknowledged commit is flushed to disk there, whatever the database's own settings say. A connection that was lost
fails its transaction, and the next one makes its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import psycopg
from changeling_protocol import UnixMilliseconds
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import URL, Connection, ExceptionContext, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ..errors import Overtaken, StoreError
from .database import Database, Transactions, in_use

_CONNECTING = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "target_session_attrs": "read-write",
    "application_name": "changeling",
}
"""Defaults, which the URL may override. With these a server that was cut off knows it within half a minute."""
_SESSION = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "idle_in_transaction_session_timeout": "120s",
    "default_transaction_isolation": "read committed",
}
"""So that PostgreSQL, too, lets go of the locks of a server that was cut off, or that stands still; and so that a
statement with no words around it is what `writer` says, whatever the database's own settings are."""
_CONNECTIONS = 8
_MORE_CONNECTIONS = 8
_CLASS = 0x6368676C
"""The class of the advisory locks: "chgl"."""
_LOCK_TIMEOUT = "55P03"

_UNREACHABLE = "PostgreSQL cannot be reached: uploads are turned away until it is back"
_ASK_SECONDS = 0.5
_OLDER = """
SELECT count(*) FROM (
    SELECT greatest(age(backend_xid), age(backend_xmin)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND (datid IS NULL OR datname = current_database())
    UNION ALL SELECT age(xmin) FROM pg_replication_slots
    UNION ALL SELECT age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
) AS others (age) WHERE age > age(%s::xid)
"""
"""How many transactions may see what was there before one: for them PostgreSQL keeps it, whatever is rewritten."""
_OLDER_SECONDS, _LOOK_SECONDS = 0.5, 0.05
"""How long those are waited for, and how often it is looked."""
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service", "options")
_HELD = f"{_CLASS + 1}, hashtext(current_schema())"
"""The lock that whoever has the store open holds, on each connection: so that it is held again once one was lost."""
_HOLDERS = """
SELECT DISTINCT application_name || ' at ' || coalesce(host(client_addr), 'the database''s own machine')
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND classid::bigint = %s AND objid::bigint = hashtext(current_schema())::bigint & 4294967295
AND granted AND pid <> pg_backend_pid()
"""
_ON_CONNECT = (
    "SELECT current_setting('fsync'), pg_try_advisory_lock{mode}("
    + _HELD
    + "), "
    + ", ".join(
        [
            "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
            "ELSE current_setting('synchronous_commit') END, false)",
            *(f"set_config('{name}', '{value}', false)" for name, value in _SESSION.items()),
        ]
    )
)
MUCH_BYTES = 2**17
"""A commit of so many bytes is copied; a smaller one is one statement, which is then the whole commit.

Measured with 64 requests of 150 bytes: one statement for all 7.1 ms a commit, COPY 8.6; with 16 of 120 kB, COPY 84 ms
and half the database's processor time, the one statement 138.
"""
_ADVANCE = """
WITH given AS (
    UPDATE store
    SET arrival = greatest(arrival + CASE WHEN stream > %(stream)s THEN 1 ELSE 0 END, %(now)s), stream = %(stream)s
    RETURNING arrival
), longer AS (
    UPDATE streams SET length = length + %(count)s WHERE id = %(stream)s RETURNING length
)
"""
"""Does as `log.WriteLog.advance_arrival`, and gives a stream's new length. An update that waited for another
transaction's begins again with what that one left, so the order of arrivals is that of commits here, too."""
_APPEND = f"""{_ADVANCE}
INSERT INTO log (stream, position, arrival, envelope)
SELECT %(stream)s, longer.length - %(count)s + sent.number, given.arrival, sent.envelope
FROM given, longer, unnest(%(sent)b::bytea[]) WITH ORDINALITY AS sent (envelope, number)
"""  # noqa: S608
_ADVANCED = f"{_ADVANCE} SELECT given.arrival, longer.length FROM given, longer"  # noqa: S608
_COPY = "COPY log (stream, position, arrival, envelope) FROM STDIN (FORMAT binary)"
_COPIED_TYPES = ("int4", "int8", "int8", "bytea")


class PostgreSQLDatabase(Database):
    """A database that is there already.

    url: as libpq reads it, without a password: that comes from $PGPASSWORD or a password file, which libpq reads.
    alone: whether to hold it alone, on one connection.
    Raises ValueError where the URL cannot be read or shows a password.
    """

    def __init__(self, url: str, alone: bool = False) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            raise ValueError("that is no URL of a PostgreSQL database: postgresql://USER@HOST:PORT/DATABASE") from None
        if {"password", "sslpassword"} & given.keys():
            raise ValueError(
                "leave the password out of the store's URL, where `ps` shows it: put it into $PGPASSWORD, or into a "
                "file that $PGPASSFILE names, with a line HOST:PORT:DATABASE:USER:PASSWORD"
            )
        self.name = "PostgreSQL, " + make_conninfo("", **{k: v for k, v in given.items() if k in _SHOWN})
        self._lost, self._alone = False, alone
        self._version: int | None = None
        self._noticing, self._closed = Lock(), Event()
        self.engine = create_engine(
            URL.create("postgresql+psycopg"),
            connect_args={**_CONNECTING, **given},
            isolation_level="READ COMMITTED",
            pool_size=1 if alone else _CONNECTIONS,
            max_overflow=0 if alone else _MORE_CONNECTIONS,
            pool_timeout=10,
            hide_parameters=True,
        )
        event.listen(self.engine, "connect", self._prepare)
        event.listen(self.engine, "handle_error", self._notice)

    def reader(self) -> Connection:
        """A connection that sees what was there at the first statement of its transaction."""
        return self.engine.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def writer(self, once: bool = False) -> Connection:
        """A connection each of whose statements sees what was committed before it."""
        return self._plain() if once else self.engine.connect()

    def _plain(self) -> Connection:
        """With no words around a statement, each of which would be a way to the database and back."""
        return self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def appends_at_once(self, bodies: Sequence[bytes]) -> bool:
        """Little is; the words that begin and end a transaction would be ways to the database and back of their own."""
        return sum(map(len, bodies)) < MUCH_BYTES

    def keep_others_out(self, connection: Connection) -> None:
        """A lock that ends with the transaction."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CLASS}, 0)")

    def insist_on(self, version: int) -> None:
        """Whoever lost all its connections does not hold the store: others may have changed its tables meanwhile."""
        self._version = version

    @contextmanager
    def turn(self) -> Iterator[Transactions | None]:
        """A lock of one connection, on which all transactions of the turn run: with it the lock is lost, and they are.

        The lock is named for this store's table, so that stores in two schemas have one each.
        """
        with self.engine.connect() as connection:
            with connection.begin():
                taken = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_CLASS}, 'store'::regclass::int)")
                mine = taken.scalar_one()
            session = connection.connection.dbapi_connection

            @contextmanager
            def write() -> Iterator[Connection]:
                if connection.invalidated or connection.connection.dbapi_connection is not session:
                    raise Overtaken("the connection that held the turn to fold was lost")
                with connection.begin():
                    yield connection

            try:
                yield write if mine else None
            finally:
                if mine and not connection.invalidated:
                    self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        try:
            with connection.begin():
                connection.exec_driver_sql(f"SELECT pg_advisory_unlock({_CLASS}, 'store'::regclass::int)")
        except DBAPIError:
            connection.invalidate()  # the lock ends with its session

    def forget_overwritten(self) -> bool:
        """Rewrite the table of private keys, which is small, once nobody sees what it was; waits a second or so.

        What else is deleted is freed by PostgreSQL's own vacuum, and its log of changes goes when it goes.
        """
        connection = self._plain()
        try:
            with connection:
                if not self._unseen(connection):
                    return False
                connection.exec_driver_sql("SET lock_timeout = '1s'")
                try:
                    connection.exec_driver_sql("VACUUM (FULL) keys")
                finally:
                    connection.exec_driver_sql("RESET lock_timeout")
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _LOCK_TIMEOUT:
                return False
            raise
        return True

    def _unseen(self, connection: Connection) -> bool:
        """Tell whether nobody sees what was changed before this; a copy of the table would hold it for those who do."""
        now = connection.exec_driver_sql("SELECT pg_current_xact_id()::xid::text").scalar_one()
        end = monotonic() + _OLDER_SECONDS
        while connection.exec_driver_sql(_OLDER, (now,)).scalar_one():
            if monotonic() >= end or self._closed.wait(_LOOK_SECONDS):
                return False
        return True

    def bytes_kept(self) -> int:
        """The size of the log and the ids, with what its vacuum has not freed."""
        with self._plain() as connection:
            query = "SELECT pg_total_relation_size('log') + pg_total_relation_size('runs')"
            return int(connection.exec_driver_sql(query).scalar_one())

    def trouble(self) -> str | None:
        """Tell whether it could be reached when it was asked last; while it cannot, it is asked twice a second."""
        return _UNREACHABLE if self._lost else None

    def close(self) -> None:
        """Close the connections, and ask no more."""
        self._closed.set()
        super().close()

    def _prepare(self, connection: "psycopg.Connection[tuple[Any, ...]]", _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_ON_CONNECT.format(mode="" if self._alone else "_shared"))
            fsync, holds, *_ = cursor.fetchone() or ("", False)
            if holds is False:
                cursor.execute(_HOLDERS, (_CLASS + 1,))
                who = ", ".join(sorted(str(each) for (each,) in cursor.fetchall())) or "another session"
                connection.close()
                raise StoreError(in_use(self.name, who, self._alone))
            if self._version is not None:
                found = cursor.execute("SELECT version FROM store").fetchall()
                if found != [(self._version,)]:
                    connection.close()
                    raise StoreError(f"the tables of {self.name} were changed meanwhile: start this program again")
        connection.commit()
        if fsync != "on":
            raise StoreError(f"{self.name} runs with fsync = off, so that a crash loses what is acknowledged: set it")

    def _notice(self, context: ExceptionContext) -> None:
        with self._noticing:
            if self._lost or self._closed.is_set() or not (context.is_disconnect or context.connection is None):
                return
            self._lost = True
        Thread(target=self._ask, name="postgresql", daemon=True).start()

    def _ask(self) -> None:
        """Ends once there is an answer: nobody else asks where every upload is turned away."""
        while self._lost and not self._closed.wait(_ASK_SECONDS):
            with suppress(SQLAlchemyError, StoreError), self.engine.connect() as connection:
                connection.exec_driver_sql("SELECT 1")
                self._lost = False


def append_at_once(connection: Connection, stream: int, envelopes: Sequence[bytes], now: UnixMilliseconds) -> None:
    """As `log.WriteLog.append`, on PostgreSQL, where each statement is a way to the database and back."""
    values = {"stream": stream, "now": now, "count": len(envelopes)}
    if sum(map(len, envelopes)) < MUCH_BYTES:
        connection.exec_driver_sql(_APPEND, {**values, "sent": list(envelopes)})
        return
    arrival, length = connection.exec_driver_sql(_ADVANCED, values).one()
    first = length - len(envelopes) + 1
    _copy(connection, [(stream, position, arrival, each) for position, each in enumerate(envelopes, first)])


def _copy(connection: Connection, rows: Sequence[tuple[int, int, int, bytes]]) -> None:
    """The driver's own; what it raises is told as SQLAlchemy tells it."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101
    try:
        with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.set_types(_COPIED_TYPES)
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        if driver.closed:
            connection.invalidate()
        raise DBAPIError(_COPY, (), error, hide_parameters=True) from error

"""Opening the store, and transactions on it.

The embedded store is one SQLite file, readable by its owner alone: WAL, every commit on disk before it returns,
writers one at a time from their first statement on, deleted bytes overwritten.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection as SQLiteConnection

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.exc import DatabaseError

from ..errors import StoreError
from . import schema
from .at_rest import IN_CLEAR, AtRest

_PRAGMAS = (
    "busy_timeout = 10000",
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "wal_autocheckpoint = 20000",  # the fold does it before: who appends should not wait for it
)

LEAST_FREE_BYTES = 32 * 2**20
"""With less than that on its disk a store is as good as full. The rest is for the fold, for sealing, and for destroying
keys."""


class Store:
    """An open store. Threads may share it; a transaction belongs to one of them.

    at_rest: what its private keys are encrypted under.
    """

    def __init__(self, engine: Engine, path: Path, at_rest: AtRest) -> None:
        self.engine, self.at_rest = engine, at_rest
        self._path, self._file = path, _identity(path)
        self._overwritten = True  # by a process that was killed, perhaps

    @classmethod
    def open(cls, path: Path, at_rest: AtRest = IN_CLEAR) -> "Store":
        """The embedded store in this file, made if there is none. Raises StoreError, or OSError.

        at_rest: what its private keys are encrypted under; needed only by who makes or uses them.
        """
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        # hide_parameters: what is stored never shows in an error message.
        # URL.create and an absolute path: no character of its name is taken for anything else.
        engine = create_engine(URL.create("sqlite", database=str(path.absolute())), hide_parameters=True)
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
        store = cls(engine, path, at_rest)
        try:
            store._claim(path)
        except DatabaseError as error:
            engine.dispose()
            raise StoreError(f"{path} cannot be used as a store: {error.orig}") from error
        except StoreError:
            engine.dispose()
            raise
        return store

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the store."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that may write. It is on disk when it ends, and nothing of it is kept where it raises.

        In SQLite writers come one at a time, from their first statement on.
        """
        connection = self.engine.connect().execution_options(writer=True)
        with connection, connection.begin():
            yield connection

    def forget_overwritten(self, changed: bool) -> None:
        """Empty the write-ahead log, in which bytes that were overwritten since may still stand.

        changed: whether anything was overwritten since the last time. Appending has to wait for this, so where somebody
        is reading for longer than a second it is left for the next call, which then does it in any case.
        """
        self._overwritten |= changed
        if not self._overwritten:
            return
        connection = self.engine.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute("PRAGMA busy_timeout = 1000")
            (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            cursor.execute(f"PRAGMA {_PRAGMAS[0]}")
            self._overwritten = bool(busy)
        finally:
            connection.close()

    def write_back(self) -> None:
        """Bring what was written into its place in the file, where nobody has to wait for it."""
        with self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")

    def bytes_kept(self) -> int:
        """About how many bytes all that it holds takes, without what was deleted."""
        with self.reading() as connection:
            pages, free, size = (
                int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * size

    def in_place(self) -> bool:
        """Whether its file still is where it was opened."""
        try:
            return _identity(self._path) == self._file
        except OSError:
            return False

    def trouble(self) -> str | None:
        """Why no upload should be appended to it, as far as the file system tells; None where all is well."""
        try:
            if _identity(self._path) != self._file:
                return "the store's file was replaced by another: start the server again"
            if os.statvfs(self._path).f_flag & os.ST_RDONLY or not os.access(self._path, os.W_OK):
                return "the store's file cannot be written"
            if shutil.disk_usage(self._path).free < LEAST_FREE_BYTES:
                return f"the disk is full: less than {LEAST_FREE_BYTES // 2**20} MiB are free"
        except OSError as error:
            return f"the store's file is gone: {error.strerror}"
        return None

    def close(self) -> None:
        """Close its connections; a transaction in hand is lost."""
        self.engine.dispose()

    def _claim(self, path: Path) -> None:
        with self.writing() as connection:
            tables = inspect(connection).get_table_names()
            if not tables:
                schema.metadata.create_all(connection)
                row = {"program": schema.PROGRAM, "version": schema.VERSION, "arrival": 0, "stream": 0}
                row |= {"held": 0, "told": 0, "jumped": False}
                connection.execute(insert(schema.store).values(row))
            elif schema.store.name not in tables:
                raise StoreError(f"{path} belongs to another program: name a file of its own for the store")
            written_by = connection.execute(select(schema.store.c.program, schema.store.c.version)).one()
        if written_by.program != schema.PROGRAM:
            raise StoreError(f"{path} belongs to {written_by.program}: name a file of its own for the store")
        if written_by.version != schema.VERSION:
            raise StoreError(
                f"{path} has schema version {written_by.version}, this program knows {schema.VERSION}: "
                "use the version of changeling that wrote it, or a later one"
            )


def _identity(path: Path) -> tuple[int, int]:
    """Which file this is, whatever it is called."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _prepare(connection: SQLiteConnection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where _begin says, not where the driver guesses
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    writer = connection.get_execution_options().get("writer", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

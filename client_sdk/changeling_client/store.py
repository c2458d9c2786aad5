"""The store: one SQLite file, on disk when a transaction ends, safe for several threads and processes.

The file is made whole or not at all, so one that is empty, damaged, foreign or of a later version is never taken for
a new store. Knows nothing of surveys; the tables are in `schema`.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

from . import schema
from .errors import StoreBusy, StoreUnusable

BUSY_SECONDS = 10.0
"""How long a transaction waits for another process."""
_NOT_NOW = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR_WRITE")
"""Errors for which the past is erased later: another process is at work, or there is no room on the disk."""
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "foreign_keys = ON",
    "temp_store = MEMORY",  # no copy of an answer in a temporary file
)


class Store:
    """An open store, made if there is no file.

    Raises StoreUnusable if the file is not a sound store of our version, or cannot be made; StoreBusy.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lock = threading.Lock()
        file = Path(path).absolute()
        with _store_errors(file):
            if not file.exists():
                _create(file)
            self._connection = _connect(file)
            try:
                _check(self._connection, file)
                _set_up(self._connection)
            except BaseException:
                self._connection.close()
                raise
        self._file = file
        self._past_left = True  # by a process that was killed, perhaps
        self.erase_past()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it is on disk when it ends, or nothing. No other thread or process writes meanwhile.

        Raises StoreBusy, or StoreUnusable if the file can no longer be read or written.
        """
        with self._lock, _store_errors(self._file):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def erase_past(self, changed: bool = True) -> None:
        """Rewrites the file and empties its log, so that no copy is left of answers and counts that were overwritten.

        SQLite's secure_delete zeroes rows that are deleted, but not copies that stay in a page when rows move.
        changed: whether anything was overwritten since the last time.
        If another process is at work, or the disk has no room for a second copy, it is done the next time.
        """
        if not (changed or self._past_left):
            return
        with self._lock, _store_errors(self._file):
            self._past_left = True
            try:
                self._connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith(_NOT_NOW):
                    raise
                return
            (busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._past_left = bool(busy)

    def close(self) -> None:
        """Closes the file, once no thread is in a transaction."""
        with self._lock:
            self._connection.close()


def _create(file: Path) -> None:
    try:
        _make(file)
    except OSError as error:
        raise StoreUnusable(f"no store can be made at {file}: {error.strerror}") from error


def _make(file: Path) -> None:
    handle, draft = mkstemp(prefix=f"{file.name}.", suffix=".new", dir=file.parent)
    os.close(handle)
    try:
        with closing(_connect(Path(draft))) as connection:
            _set_up(connection)
            connection.executescript(
                f"BEGIN; {schema.TABLES} PRAGMA application_id = {schema.APPLICATION};"
                f"PRAGMA user_version = {schema.VERSION}; COMMIT;"
            )
        with suppress(FileExistsError):  # another process was first
            os.link(draft, file)
    finally:
        os.unlink(draft)
    if os.name == "posix":
        directory = os.open(file.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{file.as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _set_up(connection: sqlite3.Connection) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _check(connection: sqlite3.Connection, file: Path) -> None:
    """Raises StoreUnusable unless the file is a sound store. Writes nothing: another's file stays as it is."""

    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    if pragma("application_id") != schema.APPLICATION:
        raise StoreUnusable(f"{file} is empty, or the file of something else: it is no store")
    if (version := pragma("user_version")) != schema.VERSION:
        raise StoreUnusable(f"{file} is a store of version {version}; this SDK reads version {schema.VERSION}")
    if pragma("quick_check(1)") != "ok":
        raise StoreUnusable(f"{file} is damaged")


@contextmanager
def _store_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreBusy(f"another process has held {file} for {BUSY_SECONDS:g} seconds") from error
        raise StoreUnusable(f"{file} cannot be read or written: {name}") from error

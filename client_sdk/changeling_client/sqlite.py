"""A store in one SQLite file, which the processes of one machine share.

The file is made whole or not at all, so one that is empty, damaged, foreign or of another version is never taken for a
new store.
"""

import errno
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
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
    Wrapping,
    survive,
    sync_folder,
)

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_MARK_AT = 68
"""Where a file of SQLite says which program it belongs to."""
_NOT_NOW = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR_WRITE")
"""Errors for which the past is erased later: another process is at work, or there is no room on the disk."""
_NOT_READABLE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY", "SQLITE_IOERR")
"""Errors that say nothing of what is in a file."""
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "fullfsync = ON",  # macOS keeps nothing through a loss of power without it
    "secure_delete = ON",
    "foreign_keys = ON",
    "temp_store = MEMORY",  # no copy of an answer in a temporary file
)


@dataclass(frozen=True, slots=True)
class StoreFile:
    """The place of a store that is a file. path: absolute."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """True if there is a file, whatever is in it."""
        return self.path.exists()

    def open(self, key: bytes | None) -> "SQLiteStore":
        """Opens the store, made with its folder if there is no file. Raises a store's errors."""
        return SQLiteStore(self.path, key)

    def is_ours(self) -> bool:
        """True if a file that cannot be opened was a store of ours: by the mark in its head; or by the lock beside it,
        unless it is a sound database of somebody else."""
        try:
            with open(self.path, "rb") as content:
                head = content.read(_MARK_AT + 4)
        except OSError:
            return False
        if head[_MARK_AT:] == APPLICATION.to_bytes(4):
            return True
        return _beside(self.path, ".lock").exists() and not self._is_of_another()

    def _is_of_another(self) -> bool:
        """True if the file has tables, and not a store's; or if that cannot be told at the moment."""
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as connection:
                names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        except sqlite3.Error as error:
            return getattr(error, "sqlite_errorname", "").startswith(_NOT_READABLE)
        return bool(names) and not names >= TABLE_NAMES

    def destroy(self) -> None:
        """Overwrites and deletes the file, with all files beside it that SQLite made. Raises StoreReadOnly."""
        try:
            for file in (self.path, *(_beside(self.path, suffix) for suffix in ("-wal", "-shm", "-journal"))):
                with suppress(FileNotFoundError):
                    with open(file, "r+b") as content:
                        content.write(bytes(file.stat().st_size))
                        content.flush()
                        os.fsync(content.fileno())
                    file.unlink()
        except OSError as error:
            raise StoreReadOnly(f"{self.path} cannot be destroyed: {error.strerror}") from error


def _beside(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


class SQLiteStore(ClientStore):
    """An open store, made with its folder if there is no file.

    file: absolute. key: 32 bytes under which what it keeps of answers is encrypted; None for none.
    Raises StoreUnusable if the file is not a sound store of our version and key; StoreFull, StoreReadOnly, StoreBusy.
    """

    _connection: sqlite3.Connection | None

    def __init__(self, file: Path, key: bytes | None) -> None:
        self.file = file
        super().__init__(str(self.file), Wrapping(key))
        self.reporting = ProcessLock(_beside(self.file, ".lock"))
        with self._errors():
            if not self.file.exists():
                self._make()
            self._connected()
        survive(self)

    def _connect(self) -> sqlite3.Connection:
        connection = _connect(self.file)
        try:
            self._check(connection)
            _set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begun(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _rewrite(self, connection: sqlite3.Connection) -> bool:
        """SQLite's secure_delete zeroes rows that are deleted, but not copies that stay in a page when rows move."""
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            connection.execute("VACUUM")
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NOT_NOW):
                raise
            return False
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * store.BUSY_SECONDS)}")
        return not busy

    def _errors(self) -> AbstractContextManager[None]:
        return _store_errors(self.file)

    def _let_go(self) -> None:
        """SQLite's locks are not inherited, and a parent that closes a file deletes the log under its child."""
        self._disconnect()

    def _leave_to_parent(self, connection: sqlite3.Connection) -> None:
        """Nothing can be let go of without the parent losing it."""

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raises StoreUnusable unless the file is a sound store. Another's file stays as it is."""
        if _pragma(connection, "application_id") != APPLICATION:
            raise StoreUnusable(f"{self.file} is empty, or the file of something else: it is no store")
        version = _pragma(connection, "user_version")
        if version != VERSION:
            raise StoreUnusable(f"{self.file} is a store of version {version}; this SDK reads {VERSION}")
        if _pragma(connection, "quick_check(1)") != "ok":
            raise StoreUnusable(f"{self.file} is damaged")
        (check,) = connection.execute("SELECT key_check FROM device").fetchone()
        if not self.wrapping.fits(check):
            raise StoreUnusable(f"{self.file} was made with another key, or with none where one is brought")

    def _make(self) -> None:
        """Makes the file, unless another process does so first."""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            deadline = time.monotonic() + store.BUSY_SECONDS
            while not self.file.exists():
                with self.reporting.tried() as taken:
                    if taken and not self.file.exists():
                        _make(self.file, self.wrapping.check())
                if not taken and time.monotonic() > deadline:
                    raise StoreBusy(f"another process has been making {self.file} for {store.BUSY_SECONDS:g} seconds")
        except (FileExistsError, NotADirectoryError) as error:
            raise StoreReadOnly(f"no store can be made at {self.file}: one of the folders named is a file") from error
        except OSError as error:
            raise StoreReadOnly(f"no store can be made at {self.file}: {error.strerror}") from error


def _make(file: Path, key_check: bytes) -> None:
    draft = _beside(file, ".new")  # no other process makes one: `reporting` is held
    for left in (draft, *(_beside(draft, suffix) for suffix in ("-wal", "-shm", "-journal"))):
        left.unlink(missing_ok=True)  # of a process that was killed here
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(_connect(draft)) as connection:
            _set_up(connection)
            connection.executescript(
                f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
            connection.execute("INSERT INTO device VALUES (?, 0, 0, ?)", (os.urandom(16), key_check))
        os.rename(draft, file)
    except BaseException:
        os.unlink(draft)
        raise
    sync_folder(file.parent)


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{file.as_uri()}?mode=rw",
        uri=True,
        timeout=store.BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _set_up(connection: sqlite3.Connection) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@contextmanager
def _store_errors(file: Path) -> Iterator[None]:
    """Makes a ClientError of what SQLite, the operating system, or a damaged row raises; a ValueError goes on.

    What is raised in place of another error does not hold it, as that may hold a piece of a row.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _client_error(error, file) from (error if hasattr(error, "sqlite_errorname") else None)
    except OSError as error:
        raise _of_system(error, file) from error
    except DAMAGE as error:
        raise StoreUnusable(f"{file} holds a row that cannot be read: {type(error).__name__}") from None


def _of_system(error: OSError, file: Path) -> ClientError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreBusy(f"no file beside {file} can be opened: {error.strerror}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"there is no room for {file}")
    return StoreReadOnly(f"{file}, or what lies beside it, cannot be used: {error.strerror}")


def _client_error(error: sqlite3.Error, file: Path) -> ClientError:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(f"another process has held {file} for {store.BUSY_SECONDS:g} seconds")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE")):  # the latter beyond a quota
        return StoreFull(f"there is no room for {file}")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StoreReadOnly(f"{file} cannot be written to: {name}")
    return StoreUnusable(f"{file} cannot be read or written: {name}")


class ProcessLock(ReportingLock):
    """A lock on a file. file: made if missing; its content is never looked at."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._held: int | None = None

    def _take(self) -> int | None:
        with _store_errors(self._file):
            handle = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            if not _lock(handle):
                os.close(handle)
                return None
        self._held = handle
        return handle

    def _give(self, taken: int) -> None:
        if self._held == taken:  # else `forget` was first
            self._held = None
            _unlock(taken)
            os.close(taken)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and does not hang on this process."""
        super().forget()
        if self._held is not None:
            held, self._held = self._held, None
            os.close(held)


if sys.platform == "win32":

    def _lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:

    def _lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)

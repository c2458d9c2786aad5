"""The store: one SQLite file, on disk when a transaction ends, safe for threads, processes, forks and signal handlers.

The file is made whole or not at all, so one that is empty, damaged, foreign or of another version is never taken for a
new store. Knows nothing of surveys but the tables in which they are kept.
"""

import errno
import os
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import wraps
from pathlib import Path
from tempfile import mkstemp
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

import msgpack

from .errors import ClientClosed, ClientError, StoreBusy, StoreFull, StoreReadOnly, StoreUnusable
from .schema import APPLICATION, MIGRATIONS, TABLES, VERSION

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

KEY_BYTES = 32
BUSY_SECONDS = 5.0
"""How long a transaction waits for another process."""
_THREAD_SECONDS = 30.0
"""How long a thread waits for another of its process to report, which does the same as it would."""
_NOT_NOW = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR_WRITE")
"""Errors for which the past is erased later: another process is at work, or there is no room on the disk."""
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "fullfsync = ON",  # macOS keeps nothing through a loss of power without it
    "secure_delete = ON",
    "foreign_keys = ON",
    "temp_store = MEMORY",  # no copy of an answer in a temporary file
)
_DAMAGE = (TypeError, LookupError, ArithmeticError, AttributeError, UnicodeError, msgpack.UnpackException)
"""Raised where a row holds something else than was written into it."""
_P = ParamSpec("_P")
_Row = TypeVar("_Row")
_NONCE_BYTES = 12
_FRESH_BYTES = 8
_CHECK = b"changeling store"
_abandoned: list[sqlite3.Connection] = []


class ClientStore:
    """An open store, made with its folder if there is no file.

    key: 32 bytes under which what it keeps of answers is encrypted; None for none.
    Raises StoreUnusable if the file is not a sound store of our version and key; StoreFull, StoreReadOnly, StoreBusy.
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes | None = None) -> None:
        self.file = Path(path).absolute()
        self.wrapping = Wrapping(key)
        self.reporting = ProcessLock(self.file.with_name(f"{self.file.name}.lock"))
        """Held by the one process that reports."""
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inside: set[int] = set()
        """The threads that are in a transaction, or wait for one."""
        self._catching_up: int | None = None
        self._later: deque[Callable[[], None]] = deque()
        self._closed = False
        self._past_left = True  # by a process that was killed, perhaps
        with _store_errors(self.file):
            if not self.file.exists():
                self._make()
            self._connected()
        survive(self)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it is on disk when it ends, or nothing. No other thread or process writes meanwhile.

        A child that is forked in the middle of it has no part in it: there it raises StoreBusy, as it does in a signal
        handler that interrupts one of its own thread.
        Raises ClientClosed, StoreBusy, StoreFull, StoreReadOnly, or StoreUnusable if the file can no longer be read.
        """
        thread = threading.get_ident()
        if thread in self._inside:
            raise StoreBusy("a transaction of this thread is interrupted, and goes on when the signal is handled")
        try:
            self._inside.add(thread)
            with self._lock, _store_errors(self.file):
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    if connection is not self._connection:
                        raise StoreBusy("the process was forked in a transaction, which is the parent's")
                    connection.execute("COMMIT")
                except BaseException:
                    if connection is self._connection and connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        finally:
            self._inside.discard(thread)
            self._catch_up()

    def interrupts(self) -> bool:
        """Tells a signal handler that has interrupted a transaction of its own thread, the wait for one, or what is
        done after it."""
        return (thread := threading.get_ident()) in self._inside or thread == self._catching_up

    def afterwards(self, act: Callable[[], None]) -> None:
        """Acts as soon as the interrupted transaction has ended, before whoever began it goes on."""
        self._later.append(act)

    def _catch_up(self) -> None:
        """Does what signal handlers have left to be done, one after the other however many there are."""
        while self._later and self._catching_up is None:
            self._catching_up = threading.get_ident()
            try:
                while self._later:
                    self._later.popleft()()
            finally:
                self._catching_up = None

    def erase_past(self, changed: bool = True) -> bool:
        """Rewrites the file and empties its log, so that no copy is left of answers and counts that were overwritten.

        SQLite's secure_delete zeroes rows that are deleted, but not copies that stay in a page when rows move.
        changed: whether anything was overwritten since the last time.
        Nobody is waited for: if another process is at work, or the disk has no room for a second copy, it is done the
        next time. Returns whether nothing is left.
        """
        if not (changed or self._past_left):
            return True
        with self._lock, _store_errors(self.file):
            self._past_left = True
            connection = self._connected()
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                connection.execute("VACUUM")
                (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._past_left = bool(busy)
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith(_NOT_NOW):
                    raise
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_SECONDS)}")
            return not self._past_left

    def close(self) -> None:
        """Closes the file, once no thread is in a transaction; all later calls raise ClientClosed."""
        if self.interrupts():
            self.afterwards(self._close)
        else:
            self._close()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def abandon(self) -> None:
        """Closes the file for good, whatever is wrong with it: it is about to be destroyed."""
        with suppress(ClientError), _store_errors(self.file):
            self._close()
        self._connection = None

    def before_fork(self) -> None:
        """Takes the lock and closes the file; it is opened again by who needs it first."""
        self._lock.acquire()
        if threading.get_ident() not in self._inside:
            self._disconnect()

    def after_fork(self, in_child: bool) -> None:
        """Releases the lock; a child begins with one of its own."""
        if in_child:
            self._lock = threading.RLock()
            self._inside &= {threading.get_ident()}
            self._later.clear()  # the parent does it
            self._catching_up = None
            self.reporting.forget()
            if self._connection is not None:  # forked in a transaction: to close it would undo the parent's
                _abandoned.append(self._connection)
                self._connection = None
        else:
            self._lock.release()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._closed:
                raise ClientClosed(f"the client of {self.file} was closed")
            connection = _connect(self.file)
            try:
                self._check(connection)
                _set_up(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raises StoreUnusable unless the file is a sound store. Another's file stays as it is."""
        if _pragma(connection, "application_id") != APPLICATION:
            raise StoreUnusable(f"{self.file} is empty, or the file of something else: it is no store")
        version = _pragma(connection, "user_version")
        if version not in (*MIGRATIONS, VERSION):
            raise StoreUnusable(f"{self.file} is a store of version {version}; this SDK reads {VERSION}")
        if _pragma(connection, "quick_check(1)") != "ok":
            raise StoreUnusable(f"{self.file} is damaged")
        if version != VERSION:
            _migrate(connection)
        (check,) = connection.execute("SELECT key_check FROM device").fetchone()
        if not self.wrapping.fits(check):
            raise StoreUnusable(f"{self.file} was made with another key, or with none where one is brought")

    def _make(self) -> None:
        """Makes the file, unless another process does so first."""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            deadline = time.monotonic() + BUSY_SECONDS
            while not self.file.exists():
                with self.reporting.tried() as taken:
                    if taken and not self.file.exists():
                        _make(self.file, self.wrapping.check())
                if not taken and time.monotonic() > deadline:
                    raise StoreBusy(f"another process has been making {self.file} for {BUSY_SECONDS:g} seconds")
        except (FileExistsError, NotADirectoryError) as error:
            raise StoreReadOnly(f"no store can be made at {self.file}: one of the folders named is a file") from error
        except OSError as error:
            raise StoreReadOnly(f"no store can be made at {self.file}: {error.strerror}") from error


def _make(file: Path, key_check: bytes) -> None:
    handle, draft = mkstemp(prefix=f"{file.name}.", suffix=".new", dir=file.parent)
    os.close(handle)
    try:
        with closing(_connect(Path(draft))) as connection:
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


def _migrate(connection: sqlite3.Connection) -> None:
    """Brings the tables to the present version, wholly or not at all, unless another process does so first."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        while (version := _pragma(connection, "user_version")) != VERSION:
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _connect(file: Path) -> sqlite3.Connection:
    uri = f"{file.as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


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
    except _DAMAGE as error:
        raise StoreUnusable(f"{file} holds a row that cannot be read: {type(error).__name__}") from None


def _of_system(error: OSError, file: Path) -> ClientError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreBusy(f"no file beside {file} can be opened: {error.strerror}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"there is no room for {file}")
    return StoreReadOnly(f"{file}, or what lies beside it, cannot be used: {error.strerror}")


def reading(decode: Callable[_P, _Row]) -> Callable[_P, _Row]:
    """Makes StoreUnusable of what a function raises that reads rows, and is given nothing by the app: one is bad."""

    @wraps(decode)
    def read(*args: _P.args, **options: _P.kwargs) -> _Row:
        try:
            return decode(*args, **options)
        except (ValueError, *_DAMAGE) as error:
            raise StoreUnusable(f"the store holds a row that cannot be read: {type(error).__name__}") from None

    return read


def _client_error(error: sqlite3.Error, file: Path) -> ClientError:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(f"another process has held {file} for {BUSY_SECONDS:g} seconds")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE")):  # the latter beyond a quota
        return StoreFull(f"there is no room for {file}")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StoreReadOnly(f"{file} cannot be written to: {name}")
    return StoreUnusable(f"{file} cannot be read or written: {name}")


class Wrapping:
    """Encrypts what the store keeps of answers under a key that the app brings; without one it stays as it is.

    AES-256-GCM under a random nonce. The row that a piece belongs to is authenticated with it, so that none can be put
    in another's place. Rows, their number and their length are in the open.
    key: 32 bytes, or None. Raises ValueError for another length.
    """

    def __init__(self, key: bytes | None) -> None:
        self._cipher = None
        if key is not None:
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise ValueError(f"a store's key is {KEY_BYTES} bytes")
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(key)

    @property
    def has_key(self) -> bool:
        """True if anything is encrypted."""
        return self._cipher is not None

    def fresh(self) -> bytes:
        """Random bytes for a row: with them it is another each time, or SQLite would not write what has not changed."""
        return os.urandom(_FRESH_BYTES)

    def wrap(self, piece: bytes, place: bytes) -> bytes:
        """The piece as it is stored. place: which row it belongs to."""
        if self._cipher is None:
            return piece
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, piece, place)

    def unwrap(self, stored: bytes, place: bytes) -> bytes:
        """The piece again. Raises StoreUnusable if it was wrapped with another key, for another place, or altered."""
        if self._cipher is None:
            return stored
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(stored[:_NONCE_BYTES], stored[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise StoreUnusable("a piece of the store does not open with this key") from None

    def check(self) -> bytes:
        """Words by which the key is known again; empty without a key."""
        return self.wrap(_CHECK, b"") if self._cipher is not None else b""

    def fits(self, check: bytes) -> bool:
        """True if a store with these words was made with this key, or both are without."""
        if self._cipher is None:
            return not check
        try:
            return self.unwrap(check, b"") == _CHECK
        except StoreUnusable:
            return False


class ProcessLock:
    """A lock on a file between processes, and between threads of one; it ends with the process that holds it.

    One that is held as a process forks stays with the parent.
    file: made if missing; its content is never looked at.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held: int | None = None
        self._threads = threading.RLock()

    @contextmanager
    def tried(self, seconds: float = _THREAD_SECONDS) -> Iterator[bool]:
        """Takes the lock for the block if no other process has it; waits so long for another thread of this one.

        Yields whether it did. Raises StoreReadOnly or StoreBusy if the file cannot be opened.
        """
        threads = self._threads
        if not threads.acquire(timeout=seconds):
            yield False
            return
        try:
            with _store_errors(self._file):
                handle = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
                taken = _lock(handle)
            self._held = handle if taken else self._held
            try:
                yield taken
            finally:
                if taken and self._held == handle:
                    _unlock(handle)
                if taken:
                    self._held = None
                with suppress(OSError):  # `forget` was first
                    os.close(handle)
        finally:
            if threads is self._threads:  # else this is a child, and has others
                threads.release()

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and does not hang on this process."""
        self._threads = threading.RLock()
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


def sync_folder(folder: Path) -> None:
    """Has the names of a folder's files on disk before it returns, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Forks(Protocol):
    """Something that lives through a fork: SQLite files and locks do not survive one while they are in use.

    POSIX locks are not inherited, and a parent that closes a file deletes the write-ahead log under its child.
    """

    def before_fork(self) -> None:
        """Waits until nothing is half done, and lets nothing begin until the fork is over."""
        ...

    def after_fork(self, in_child: bool) -> None:
        """Goes on. in_child: whether this is the child, in which no other thread lives on."""
        ...


_registered: WeakSet[Forks] = WeakSet()
_forking: list[Forks] = []


def survive(each: Forks) -> None:
    """Tells it of every fork from now on, as long as it lives."""
    _registered.add(each)


def _before_fork() -> None:
    _forking[:] = _registered
    for each in _forking:
        each.before_fork()


def _after_fork(in_child: bool) -> None:
    for each in reversed(_forking):
        each.after_fork(in_child)
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )

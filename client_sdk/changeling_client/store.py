"""The store: one transaction at a time, durable when it ends, safe for threads, processes, forks and signal handlers.

Here is what a store promises whatever keeps it, a file (`sqlite`), or a database that several pods share
(`postgresql`), and its tables. What stands in their rows is `entries`' to know.
"""

import os
import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

import msgpack

from .errors import ClientClosed, ClientError, StoreBusy, StoreUnusable

APPLICATION = int.from_bytes(b"chlg")
"""Stands in the file's header: the file is one of ours."""
VERSION = 2
"""Of the tables. A store of another version is refused: none was released."""
TABLES = """
CREATE TABLE device (             -- one row
    identity BLOB NOT NULL,       -- 16 random bytes, drawn with each generation, then those before: what a witness saw
    generation INTEGER NOT NULL,  -- how often answers were drawn, or surveys left
    witnessed INTEGER NOT NULL,   -- whether a witness has seen it; 2 where it has to hear that surveys were left
    key_check BLOB NOT NULL       -- known words, as the app's key encrypts them; empty without a key
);

CREATE TABLE servers (            -- what is known of each server or relay that is asked
    url TEXT PRIMARY KEY,
    seen_ms INTEGER NOT NULL,     -- the latest time that a flush or an enrolment has seen, less the lead known then
    lead_ms INTEGER NOT NULL,     -- how far the device was ahead of the server when they last spoke
    failed_ms INTEGER NOT NULL,   -- when it failed last; what follows is counted from then on
    silence_ms INTEGER NOT NULL,  -- for how long it asked not to be asked
    pause_ms INTEGER NOT NULL,    -- and for how long after that nobody asks unbidden
    failures INTEGER NOT NULL,    -- how often in a row it failed
    whole_ms INTEGER NOT NULL     -- when its budget of requests in vain is whole again
) WITHOUT ROWID;

CREATE TABLE looks (              -- when several closings were due, and no server had told the time yet
    url TEXT NOT NULL,
    at_ms INTEGER NOT NULL,       -- by the device's clock
    PRIMARY KEY (url, at_ms)
) WITHOUT ROWID;

CREATE TABLE sealing_keys (
    url TEXT NOT NULL,
    signed BLOB NOT NULL,         -- verified again at each use
    PRIMARY KEY (url, signed)
) WITHOUT ROWID;

CREATE TABLE surveys (            -- never deleted, so that none is ever joined twice
    id BLOB PRIMARY KEY,
    status INTEGER NOT NULL,
    entries INTEGER NOT NULL,     -- how many numbers were given, those of entries that left as well
    one_person INTEGER NOT NULL,  -- whether all entries are one person's, who then pays for each
    asked_ms INTEGER NOT NULL,    -- when the app asked to join it
    url TEXT NOT NULL,            -- who its answers go to
    charge_micro INTEGER NOT NULL,-- what it counts against the budget; 0 until it is joined
    payload BLOB NOT NULL,        -- the bytes that were signed, verified on joining; empty until they are known
    stratum BLOB NOT NULL,        -- what the app told, until the survey is known
    reason TEXT NOT NULL,         -- why it was refused
    handed_over INTEGER NOT NULL  -- whether a life that was left is counted by another store as well
) WITHOUT ROWID;

CREATE TABLE entries (
    survey BLOB NOT NULL REFERENCES surveys,
    number INTEGER NOT NULL,
    answered INTEGER NOT NULL,    -- every node that ends by this period is answered or dropped
    delay_ms INTEGER NOT NULL,    -- drawn for the next closing
    standing INTEGER NOT NULL,    -- what the next closing that is answered says of those before it
    stratum INTEGER NOT NULL,     -- public, as the app told it
    stratum_changes INTEGER NOT NULL,
    dropped INTEGER NOT NULL,     -- closings past grace
    private BLOB NOT NULL,        -- group, slots, mutations, states: encrypted if the app brings a key
    PRIMARY KEY (survey, number)
) WITHOUT ROWID;

CREATE TABLE departed (           -- entries that left: their numbers are never given again
    survey BLOB NOT NULL REFERENCES surveys,
    number INTEGER NOT NULL,
    PRIMARY KEY (survey, number)
) WITHOUT ROWID;

CREATE TABLE drawn (              -- of entries that report only some nodes of a track: those not yet answered
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    nodes BLOB NOT NULL,
    PRIMARY KEY (survey, entry),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;

CREATE TABLE closings (           -- what an entry answered at a period's close
    survey BLOB NOT NULL,
    entry INTEGER NOT NULL,
    period INTEGER NOT NULL,
    batch INTEGER NOT NULL,       -- the first period of those that are uploaded together; 0 once acknowledged
    id BLOB NOT NULL,             -- empty once acknowledged
    standing INTEGER NOT NULL,
    stratum INTEGER NOT NULL,
    refused INTEGER NOT NULL,     -- how often the server refused it; who was refused least is sent first
    reports BLOB NOT NULL,        -- with the entry's group: encrypted if the app brings a key
    PRIMARY KEY (survey, entry, period),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;
CREATE INDEX waiting ON closings (survey, entry, period) WHERE batch > 0;

CREATE TABLE hand_over (          -- from this store, and to it
    role TEXT PRIMARY KEY,        -- giver, or taker
    secret BLOB NOT NULL,         -- its private key, encrypted if the app brings one; a taker's goes with the parcel
    peer BLOB NOT NULL,           -- a giver's invitation, a taker's giver
    parcel BLOB NOT NULL          -- a giver's sealed parcel; a taker's hash of the one that it has unpacked
) WITHOUT ROWID;

CREATE TABLE drops (              -- what was not kept or not sent, by its reason
    reason TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;
"""
TABLE_NAMES = frozenset(re.findall(r"CREATE TABLE (\w+)", TABLES))
KEY_BYTES = 32
BUSY_SECONDS = 5.0
"""How long a transaction waits for another process."""
THREAD_SECONDS = 30.0
"""How long a thread waits for another of its process to report, which does the same as it would."""
DAMAGE = (TypeError, LookupError, ArithmeticError, AttributeError, UnicodeError, msgpack.UnpackException)
"""Raised where a row holds something else than was written into it."""
_P = ParamSpec("_P")
_Row = TypeVar("_Row")
_NONCE_BYTES = 12
_FRESH_BYTES = 8
_CHECK = b"changeling store"
_abandoned: list["StoreConnection"] = []


class Forks:
    """Something that lives through a fork: SQLite files and locks do not survive one while they are in use.

    POSIX locks are not inherited, and a parent that closes a file deletes the write-ahead log under its child.
    """

    def before_fork(self) -> None:
        """Waits until nothing is half done, and lets nothing begin until the fork is over. This one does neither."""

    def after_fork(self, in_child: bool) -> None:
        """Goes on. in_child: whether this is the child, in which no other thread lives on."""


class StoreConnection(Protocol):
    """A connection to what keeps a store. Statements are such as SQLite and PostgreSQL both take, values are `?`.

    What a statement gives are cursors of `sqlite3` and psycopg, of which `fetchone`, `fetchall`, `rowcount` and going
    through the rows are alike.
    """

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Any:
        """Runs a statement."""
        ...

    def executemany(self, statement: str, values: Sequence[Sequence[Any]], /) -> Any:
        """Runs a statement that changes something, with each of these values in turn."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class ReportingLock(ABC):
    """A lock that one process holds, the one that reports; it ends with the process.

    One that is held as a process forks stays with the parent.
    """

    def __init__(self) -> None:
        self._threads = threading.RLock()

    @contextmanager
    def tried(self, seconds: float = THREAD_SECONDS) -> Iterator[bool]:
        """Takes the lock for the block if no other process has it; waits so long for another thread of this one.

        Yields whether it did. Raises a store's errors.
        """
        threads = self._threads
        if not threads.acquire(timeout=seconds):
            yield False
            return
        try:
            taken = self._take()
            try:
                yield taken is not None
            finally:
                if taken is not None:
                    self._give(taken)
        finally:
            if threads is self._threads:  # else this is a child, and has others
                threads.release()

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and does not hang on this process."""
        self._threads = threading.RLock()

    @abstractmethod
    def _take(self) -> Any:
        """Takes the lock from other processes. Returns what `_give` is called with; None if one has it."""

    @abstractmethod
    def _give(self, taken: Any) -> None:
        """Lets go of it, unless this is a child."""


class StorePlace(Protocol):
    """Where a store is, or would be; as a string, in words."""

    def exists(self) -> bool:
        """True if there is something that would be opened, a store or not. Raises StoreBusy if that cannot be told."""
        ...

    def open(self, key: bytes | None) -> "ClientStore":
        """Opens the store; makes it if there is none. Raises a store's errors."""
        ...

    def is_ours(self) -> bool:
        """True if what cannot be opened was a store of ours."""
        ...

    def destroy(self) -> None:
        """Destroys the store, whatever is wrong with it. Raises StoreReadOnly."""
        ...


class ClientStore(ABC, Forks):
    """An open store.

    place: where it is, in words. wrapping: encrypts what it keeps of answers. reporting: held by the one process that
    reports.
    """

    reporting: ReportingLock

    def __init__(self, place: str, wrapping: "Wrapping") -> None:
        self.place, self.wrapping = place, wrapping
        self._lock = threading.RLock()
        self._connection: Any = None
        self._inside: set[int] = set()
        """The threads that use the connection, or wait for it."""
        self._catching_up: int | None = None
        self._later: deque[Callable[[], None]] = deque()
        self._closed = False
        self._past_left = True  # by a process that was killed, perhaps

    @contextmanager
    def transaction(self) -> Iterator[StoreConnection]:
        """A transaction: all of it is kept when it ends, or nothing. No other thread or process writes meanwhile.

        A child that is forked in the middle of it has no part in it: there it raises StoreBusy, as it does in a signal
        handler that interrupts one of its own thread.
        Raises ClientClosed, StoreBusy, StoreFull, StoreReadOnly, or StoreUnusable if the store can no longer be read.
        """
        with self._alone():
            connection = self._begun()
            try:
                yield connection
                if connection is not self._connection:
                    raise StoreBusy("the process was forked in a transaction, which is the parent's")
                connection.execute("COMMIT")
            except BaseException:
                if connection is self._connection:
                    self._roll_back(connection)
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lets no other thread use the connection, nor a signal handler of this one, and makes its errors our own."""
        thread = threading.get_ident()
        if thread in self._inside:
            raise StoreBusy("a transaction of this thread is interrupted, and goes on when the signal is handled")
        try:
            self._inside.add(thread)
            with self._lock, self._errors():
                yield
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

    def overwrote(self) -> None:
        """Notes that something of answers was overwritten or deleted: the next `erase_past` has work to do."""
        self._past_left = True

    def erase_past(self, changed: bool = True) -> bool:
        """Rewrites the store, so that no copy is left of answers and counts that were overwritten or deleted.

        changed: whether anything was since the last time.
        Nobody is waited for: if another process is at work, or there is no room for a second copy, it is done the next
        time. Returns whether nothing is left.
        """
        if changed or self._past_left:
            with self._alone():
                self._past_left = True
                self._past_left = not self._rewrite(self._connected())
        return not self._past_left

    def close(self) -> None:
        """Closes the store, once no thread is in a transaction; all later calls raise ClientClosed."""
        if self.interrupts():
            self.afterwards(self._close)
        else:
            self._close()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def abandon(self) -> None:
        """Closes the store for good, whatever is wrong with it: it is about to be destroyed."""
        with suppress(ClientError), self._errors():
            self._close()
        self._connection = None

    def before_fork(self) -> None:
        """Takes the lock, and lets go of what does not live through a fork."""
        self._lock.acquire()
        if threading.get_ident() not in self._inside:
            self._let_go()

    def after_fork(self, in_child: bool) -> None:
        """Releases the lock; a child begins with one of its own, and with a connection of its own."""
        if in_child:
            self._lock = threading.RLock()
            self._inside &= {threading.get_ident()}
            self._later.clear()  # the parent does it
            self._catching_up = None
            self.reporting.forget()
            if self._connection is not None:  # to close it would undo the parent's transaction
                self._leave_to_parent(self._connection)
                _abandoned.append(self._connection)
                self._connection = None
        else:
            self._lock.release()

    def _connected(self) -> Any:
        if self._connection is None:
            if self._closed:
                raise ClientClosed(f"the client of {self.place} was closed")
            self._connection = self._connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @abstractmethod
    def _connect(self) -> StoreConnection:
        """A connection to the store, which is of our version and key."""

    @abstractmethod
    def _begun(self) -> StoreConnection:
        """The connection, on which a transaction has begun that no other process has part in."""

    @abstractmethod
    def _roll_back(self, connection: Any) -> None:
        """Ends the transaction, if it still goes on."""

    @abstractmethod
    def _rewrite(self, connection: Any) -> bool:
        """Does what `erase_past` says. Returns whether nothing is left."""

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """Makes a ClientError of whatever is raised but a ValueError."""

    @abstractmethod
    def _let_go(self) -> None:
        """Before a fork, outside of a transaction."""

    @abstractmethod
    def _leave_to_parent(self, connection: Any) -> None:
        """In a forked child: does not use the parent's connection, nor keep it open."""


def reading(decode: Callable[_P, _Row]) -> Callable[_P, _Row]:
    """Makes StoreUnusable of what a function raises that reads rows, and is given nothing by the app: one is bad."""

    @wraps(decode)
    def read(*args: _P.args, **options: _P.kwargs) -> _Row:
        try:
            return decode(*args, **options)
        except (ValueError, *DAMAGE) as error:
            raise StoreUnusable(f"the store holds a row that cannot be read: {type(error).__name__}") from None

    return read


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

    def wrap(self, piece: bytes, survey: bytes, *numbers: int) -> bytes:
        """The piece as it is stored. survey, numbers: which row it belongs to."""
        if self._cipher is None:
            return piece
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, piece, _row_name(survey, numbers))

    def unwrap(self, stored: bytes, survey: bytes, *numbers: int) -> bytes:
        """The piece again. Raises StoreUnusable if it was wrapped with another key, for another place, or altered."""
        if self._cipher is None:
            return stored
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(stored[:_NONCE_BYTES], stored[_NONCE_BYTES:], _row_name(survey, numbers))
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


def _row_name(survey: bytes, numbers: Sequence[int]) -> bytes:
    return survey + b"".join(number.to_bytes(8) for number in numbers)


def sync_folder(folder: Path) -> None:
    """Has the names of a folder's files on disk before it returns, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_registered: WeakSet[Forks] = WeakSet()
_forking: list[list[Forks]] = []
"""Those that the fork in hand waits for; the last, where a signal's handler forked as well."""
_forks = threading.RLock()
"""One fork at a time: threads that fork at once would wait for each other's locks."""


def survive(each: Forks) -> None:
    """Tells it of every fork from now on, as long as it lives."""
    _registered.add(each)


def _before_fork() -> None:
    _forks.acquire()
    _forking.append([*_registered])
    for each in _forking[-1]:
        each.before_fork()


def _after_fork(in_child: bool) -> None:
    try:
        for each in reversed(_forking.pop()):
            each.after_fork(in_child)
    finally:
        _forks.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )

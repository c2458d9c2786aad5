"""A store in one SQLite file, readable by its owner alone.

WAL, every commit on disk before it returns, writers one at a time from their first statement on, deleted bytes
overwritten.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import SQLITE_BUSY, Cursor, OperationalError
from sqlite3 import Connection as SQLiteConnection
from time import monotonic, sleep
from weakref import finalize

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from ..durable_files import give_to_folders_owner, share_lock, take_lock
from ..errors import StoreError
from .database import Database, Transactions, in_use

WAITING_SECONDS = 10.0
"""So long a transaction waits for another writer's to end, before it raises."""
_LOOK_SECONDS = 0.0005
"""How often it looks. SQLite's own waiting looks less and less often, down to ten times a second: an upload would wait
for tens of milliseconds where the fold's transaction takes a few."""
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "wal_autocheckpoint = 100000",  # servers and folds do it before, as with so much each commit would try it
)

MOST_LOG_PAGES = 4096
"""A write-ahead log of more pages is begun anew when it is written back."""
WRITING_BACK_SECONDS = 0.005
"""So long writing back waits for other writers, and then once more for readers."""
EMPTIED_SECONDS = 3600.0
"""So often the write-ahead log is emptied: it may hold what was deleted, and overwritten in the file, long ago."""
LEAST_GIVEN_BACK_BYTES, MOST_REWRITTEN_BYTES = 256 * 2**20, 64 * 2**20
"""A file of which so much is free, and no more than so much is in use, is made small again."""
LEAST_FREE_BYTES = 32 * 2**20
"""With less than that on its disk a store is as good as full. The rest is for the fold, for sealing, and for destroying
keys."""


class EmbeddedDatabase(Database):
    """A SQLite file, made if there is none. alone: whether to hold it alone.

    Raises OSError, or StoreError where it is held by others.
    """

    def __init__(self, path: Path, alone: bool = False) -> None:
        self.name, self._path = str(path), path.absolute()
        with suppress(FileExistsError):  # to close one that is there would end the locks that this process has on it
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            give_to_folders_owner(path)
        try:
            held = share_lock(self._path.with_name(self._path.name + "-held"), alone)
        except BlockingIOError as error:
            raise StoreError(in_use(str(path), str(error), alone)) from None
        self._let_go = finalize(self, os.close, held)
        self._file = _identity(path)
        self._emptied = monotonic()
        # The path is never parsed as a URL. hide_parameters: what is stored never shows in an error message.
        # The connection that was used last comes first: it has what it wrote in memory, and need not read it again.
        url = URL.create("sqlite", database=str(self._path))
        self.engine = create_engine(url, hide_parameters=True, pool_use_lifo=True)
        event.listen(self.engine, "connect", _prepare)
        event.listen(self.engine, "begin", _begin)

    def reader(self, once: bool = False) -> Connection:
        """A connection that sees what was there when its transaction began."""
        del once  # here the words around a statement cost next to nothing
        return self.engine.connect()

    def writer(self, once: bool = False) -> Connection:
        """A connection that is the only writer from the beginning of its transaction on."""
        del once
        return self.engine.connect().execution_options(writer=True)

    def appends_at_once(self, bodies: Sequence[bytes]) -> bool:
        """It makes no difference here."""
        del bodies
        return False

    def keep_others_out(self, connection: Connection) -> None:
        """A writer is alone already."""

    def insist_on(self, version: int) -> None:
        """They have it for as long as the file is held, which is without a break."""

    @contextmanager
    def turn(self) -> Iterator[Transactions | None]:
        """A lock on a file beside the store's, which ends with the process."""
        lock = take_lock(self._path.with_name(self._path.name + "-fold"))
        try:
            yield None if lock is None else self._write
        finally:
            if lock is not None:
                lock.release()  # also where a child that was forked has the file open

    def forget_overwritten(self) -> bool:
        """Empty the write-ahead log. Appending has to wait for this, so it waits a second at most for readers."""
        self.write_back()  # most of it, while they go on
        with self._waiting(1) as cursor:
            return self._emptied_by(cursor)

    def write_back(self) -> None:
        """Bring the write-ahead log into the file while others write, and then the little that they wrote meanwhile.

        The last step keeps writers out for a few ms, and has them begin the log anew, where nobody is reading: under
        uploads that never stop it would else grow for ever. What they do not come to write over is taken out of it at
        times.
        """
        with self._waiting(WRITING_BACK_SECONDS) as cursor:
            (_, pages, _) = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if monotonic() >= self._emptied + EMPTIED_SECONDS:
                self._emptied_by(cursor)
            elif pages > MOST_LOG_PAGES:
                cursor.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def _emptied_by(self, cursor: Cursor) -> bool:
        """Cut the write-ahead log to nothing; False where somebody is reading."""
        (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not busy:
            self._emptied = monotonic()
        return not busy

    def give_back(self) -> None:
        """Write the file anew where little of a large one is left. Appending waits for it, a second or so.

        Who reads meanwhile keeps it from being done, until the next time. The copy that it takes is in memory: on the
        disk nobody would overwrite it.
        """
        used, free = self._sizes()
        if free < LEAST_GIVEN_BACK_BYTES or used > MOST_REWRITTEN_BYTES:
            return
        with self._waiting(1) as cursor:
            cursor.execute("PRAGMA temp_store = MEMORY")
            with suppress(OperationalError):
                cursor.execute("VACUUM")
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            cursor.execute("PRAGMA temp_store = DEFAULT")

    @contextmanager
    def _waiting(self, seconds: float) -> Iterator[Cursor]:
        """Outside of transactions, waiting so long at most for what others hold."""
        connection = self.engine.raw_connection()
        try:
            driver = connection.driver_connection
            assert isinstance(driver, SQLiteConnection)  # noqa: S101
            _wait(driver, connection.info, seconds)
            yield driver.cursor()
        finally:
            connection.close()

    def bytes_kept(self) -> int:
        """The whole file's pages, without those that are free."""
        return self._sizes()[0]

    def free_bytes(self) -> int | None:
        """Ask the file system."""
        return shutil.disk_usage(self._path.parent).free

    def _sizes(self) -> tuple[int, int]:
        """How many bytes of the file are in use, and how many are free."""
        with self.engine.connect() as connection:
            pages, free, size = (
                int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * size, free * size

    def in_place(self) -> bool:
        """Tell whether its file still is where it was opened: SQLite writes on into one that has no name any more."""
        try:
            return _identity(self._path) == self._file
        except OSError:
            return False

    def trouble(self) -> str | None:
        """Ask the file system."""
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
        """Close the connections, then let others hold it alone."""
        super().close()
        self._let_go()

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self.writer() as connection, connection.begin():
            yield connection


def _identity(path: Path) -> tuple[int, int]:
    """Which file this is, whatever it is called."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _prepare(connection: SQLiteConnection, record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where _begin says, not where the driver guesses
    _wait(connection, record.info, WAITING_SECONDS)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _wait(connection: SQLiteConnection, info: dict[str, object], seconds: float) -> None:
    """Have SQLite wait so long for what others hold. info: of the connection, where this is remembered."""
    if info.get("waits") != seconds:
        connection.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}").close()
        info["waits"] = seconds


def _begin(connection: Connection) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, SQLiteConnection)  # noqa: S101
    if not connection.get_execution_options().get("writer", False):
        _wait(driver, connection.info, WAITING_SECONDS)
        connection.exec_driver_sql("BEGIN")
        return
    _wait(driver, connection.info, 0)
    end = monotonic() + WAITING_SECONDS
    while monotonic() < end:
        try:
            driver.execute("BEGIN IMMEDIATE").close()
            return
        except OperationalError as error:
            if error.sqlite_errorcode & 0xFF != SQLITE_BUSY:
                break
        sleep(_LOOK_SECONDS)
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # which raises what keeps it from that, as SQLAlchemy tells it

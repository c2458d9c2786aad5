"""The interface of a database, beyond the SQL that all of them speak; and the database in one SQLite file.

The tables have a version; a program that does not know it refuses the store in plain words. Private keys are encrypted
under the operator's store key, if there is one: then the file alone, or a copy of it, opens nothing.

The SQLite file is readable by its owner alone. It has a write-ahead log, and every commit is on disk before it returns.
One transaction writes at a time, from its first statement on. Deleted bytes are overwritten.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import SQLITE_BUSY, Cursor, OperationalError
from sqlite3 import Connection as SQLiteConnection
from time import monotonic, sleep
from typing import TypeAlias
from weakref import finalize

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, insert, inspect, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from ..durable_files import give_to_folders_owner, share_lock, take_lock
from ..errors import StoreError
from . import schema

Transactions: TypeAlias = Callable[[], AbstractContextManager[Connection]]
"""Each call is a transaction that may write, kept whole when it ends; or nothing of it is, when it raises."""
Migrations: TypeAlias = Mapping[int, Callable[[Connection], None]]
"""By the version that each begins with: it makes the tables of the next version of them."""

BACKUP = "backup"
"""The name of a table that a backup's file has and no store has: so no server starts on one."""
MIGRATIONS: Migrations = {}
"""Those of this program. One that was released never changes."""


class Database(ABC):
    """A database that holds a store, or may.

    Whoever has it open holds it together with others, or alone: then nobody else has it open, nor can open it. What is
    held ends with the process.
    name: what messages call it; never holds a password.
    """

    name: str
    engine: Engine

    @abstractmethod
    def reader(self) -> Connection:
        """A connection whose transactions see one state each, and write nothing."""

    @abstractmethod
    def writer(self, once: bool = False) -> Connection:
        """A connection whose transactions may write. once: each is one statement, which is whole by itself."""

    @contextmanager
    def writing(self, once: bool = False) -> Iterator[Connection]:
        """A transaction that may write, on such a connection."""
        with self.writer(once) as connection, connection.begin():
            yield connection

    def appends_at_once(self, bodies: Sequence[bytes]) -> bool:
        """Tell whether appending these requests to one stream is one statement."""
        del bodies
        return False

    def keep_others_out(self, connection: Connection) -> None:
        """Let no other process make or migrate the store until this transaction ends.

        A database does nothing here whose writers are alone anyway.
        """
        del connection

    def insist_on(self, version: int) -> None:
        """Use the store from now on only as long as its tables have this schema version.

        A database does nothing here that nobody else can change while it is open.
        """
        del version

    @abstractmethod
    def turn(self) -> AbstractContextManager[Transactions | None]:
        """The turn of this process to fold, until it is given back or the process ends; None where another has it.

        Gives the fold's transactions: one that begins, or ends, once the turn is lost raises.
        """

    @abstractmethod
    def forget_overwritten(self) -> bool:
        """Take bytes that were overwritten out of the database's files; False where somebody is reading them."""

    def write_back(self) -> None:  # noqa: B027
        """Move what was written to its place in the database's files, so that no upload has to, or waits for it.

        A database does nothing here that does so by itself.
        """

    def give_back(self) -> None:  # noqa: B027
        """Give free room in the database's files back to the disk, where that is worth the time that others wait.

        A database does nothing here that does so by itself, or never.
        """

    @abstractmethod
    def bytes_kept(self) -> int:
        """About how many bytes the log takes, and what else there is much of, without what was deleted."""

    def free_bytes(self) -> int | None:
        """How many bytes are free on its disk; None where that is another machine's."""
        return None

    def trouble(self) -> str | None:
        """Why no upload should be appended to it; None where all is well. Asked before each commit."""
        return None

    def close(self) -> None:
        """Close the connections; a transaction in hand is lost."""
        self.engine.dispose()


STORE_KEY_BYTES = 32
PRIVATE_BYTES = 32
_NONCE_BYTES = 12
_LOST_STORE_KEY = 'if that is lost, restore a backup into a new store: "The store key is lost" in docs/operator.md'


@dataclass(frozen=True, slots=True)
class AtRest:
    """The key that private keys are encrypted under. secret: the store key, 32 bytes; None leaves them in the clear."""

    secret: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.secret is not None and len(self.secret) != STORE_KEY_BYTES:
            raise ValueError(f"a store key has {STORE_KEY_BYTES} bytes, got {len(self.secret)}")

    def kept(self, private: bytes, id_: bytes) -> bytes:
        """A private key as it is stored. id_: the key's."""
        if self.secret is None:
            return private
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.secret).encrypt(nonce, private, id_)

    def holds(self, kept: bytes, id_: bytes) -> bool:
        """Tell whether what is stored is under this key; without one, whether it is in the clear."""
        if len(kept) == PRIVATE_BYTES or self.secret is None:
            return len(kept) == PRIVATE_BYTES and self.secret is None
        with suppress(StoreError):
            return bool(self.taken(kept, id_))
        return False

    def taken(self, kept: bytes, id_: bytes) -> bytes:
        """The private key in what is stored, encrypted or not. Raises StoreError where this is not its store key."""
        if len(kept) == PRIVATE_BYTES:
            return kept
        if self.secret is None:
            raise StoreError(
                f"the store's private keys are encrypted: give the store key that they are under; {_LOST_STORE_KEY}"
            )
        try:
            return AESGCM(self.secret).decrypt(kept[:_NONCE_BYTES], kept[_NONCE_BYTES:], id_)
        except InvalidTag:
            raise StoreError(
                f"the store's private keys are encrypted under another store key than the given; {_LOST_STORE_KEY}"
            ) from None


IN_CLEAR = AtRest()


class Bound:
    """A transaction on a store's tables. What is read and written of them is in the classes that inherit from this.

    at_rest: what private keys are encrypted under.
    """

    def __init__(self, connection: Connection, at_rest: AtRest) -> None:
        self._connection, self._at_rest = connection, at_rest

    def _inserted(self, table: Table, **row: object) -> bool:
        """Insert a row; False, and nothing is changed, where one with its primary key is there already.

        Waits for another process that is about to insert the same.
        """
        putting = self._insert(table).values(row).on_conflict_do_nothing().returning(*table.primary_key)
        return self._connection.execute(putting).first() is not None

    def _insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """An insertion that may say what to do with a row that is there already."""
        return (postgresql.insert if self._connection.dialect.name == "postgresql" else sqlite.insert)(table)


@contextmanager
def usable(database: Database) -> Iterator[None]:
    """Tell what the database raises within as a StoreError that names it."""
    try:
        yield
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        raise StoreError(f"{database.name} cannot be used as a store: {reason}") from error


def in_use(name: str, who: str, alone: bool) -> str:
    """The message where a store is not to be had. who: holds it. alone: whether it was to be held alone."""
    if alone:
        return f"{name} is in use by {who}, and nobody may use it meanwhile: stop every server and fold on it first"
    return f"{name} is being changed by {who}, alone: try again when that is done"


# The version of the tables


def claim(database: Database) -> None:
    """Make the tables where there are none. Raises StoreError where those that are there are not to be used."""
    with usable(database), database.writing() as connection:
        database.keep_others_out(connection)
        version = version_of(connection, database)
        if version is None:
            schema.metadata.create_all(connection)
            row = {"program": schema.PROGRAM, "version": schema.VERSION, "arrival": 0, "stream": 0, "floor": 0}
            connection.execute(insert(schema.store).values({**row, "believed": 0, "jumped": False}))
        elif version > schema.VERSION:
            raise _from_the_future(version, schema.VERSION, database)
        elif version < schema.VERSION:
            raise StoreError(
                f"{database.name} has schema version {version}, this program needs {schema.VERSION}: stop every server "
                "on it, make a backup, and run `changeling store upgrade`"
            )


def version_of(connection: Connection, database: Database) -> int | None:
    """The version of a store's tables; None where there are no tables. Raises StoreError for another program's."""
    inspector = inspect(connection)
    tables = inspector.get_table_names()
    if not tables:
        return None
    if BACKUP in tables:
        raise StoreError(f"{database.name} is a backup: put it into a new store with `changeling restore`")
    columns = {column["name"] for column in inspector.get_columns("store")} if "store" in tables else set()
    if "program" not in columns:
        raise StoreError(f"{database.name} belongs to another program: name one of its own for the store")
    program = connection.execute(select(schema.store.c.program)).scalar_one()
    if program != schema.PROGRAM:
        raise StoreError(f"{database.name} belongs to {program}: name one of its own for the store")
    if "version" not in columns:
        raise StoreError(f"{database.name} was written by a version of changeling before its first release: begin anew")
    return int(connection.execute(select(schema.store.c.version)).scalar_one())


def migrate(database: Database, migrations: Migrations = MIGRATIONS, to: int = schema.VERSION) -> int | None:
    """Bring a store to a later schema version, whole or not at all; returns the one before, None where there was none.

    The database is held alone. Raises StoreError where the store has a version that this program does not know.
    """
    with usable(database), database.writing() as connection:
        database.keep_others_out(connection)
        before = version_of(connection, database)
        if before is not None and before > to:
            raise _from_the_future(before, to, database)
        for version in range(to if before is None else before, to):
            migrations[version](connection)
            connection.execute(update(schema.store).values(version=version + 1))
    return before


def _from_the_future(version: int, known: int, database: Database) -> StoreError:
    return StoreError(
        f"{database.name} has schema version {version}, this program knows {known}: use the version of changeling that "
        "wrote it, or a later one"
    )


# A SQLite file

WAITING_SECONDS = 10.0
"""How long a transaction waits for another writer's to end, before it raises."""
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
"""How long writing back waits for other writers, and then once more for readers."""
EMPTIED_SECONDS = 3600.0
"""How often the write-ahead log is emptied: it may hold what was deleted, and overwritten in the file, long ago."""
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

    def reader(self) -> Connection:
        """A connection that sees what was there when its transaction began."""
        return self.engine.connect()

    def writer(self, once: bool = False) -> Connection:
        """A connection that is the only writer from the beginning of its transaction on."""
        del once  # here the words around a statement cost next to nothing
        return self.engine.connect().execution_options(writer=True)

    @contextmanager
    def turn(self) -> Iterator[Transactions | None]:
        """A lock on a file beside the store's, which ends with the process."""
        lock = take_lock(self._path.with_name(self._path.name + "-fold"))
        try:
            yield None if lock is None else self.writing
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


def _identity(path: Path) -> tuple[int, int]:
    """Identifies the file, whatever it is called."""
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

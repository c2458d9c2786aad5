"""The interface of a database, beyond the SQL that all of them speak; and the version of the tables in it.

`embedded` and `postgresql` answer it. The tables have a version, which a program uses or refuses in plain words.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from sqlalchemy import Connection, Engine, Table, insert, inspect, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from ..errors import StoreError
from . import schema
from .at_rest import AtRest

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
    def reader(self, once: bool = False) -> Connection:
        """A connection whose transactions see one state each, and write nothing. once: each is one statement."""

    @abstractmethod
    def writer(self, once: bool = False) -> Connection:
        """A connection whose transactions may write. once: each is one statement, which is whole by itself."""

    @abstractmethod
    def appends_at_once(self, bodies: Sequence[bytes]) -> bool:
        """Tell whether appending these requests to one stream is one statement."""

    @abstractmethod
    def keep_others_out(self, connection: Connection) -> None:
        """Let no other process make or migrate the store until this transaction ends; waits for one that does."""

    @abstractmethod
    def insist_on(self, version: int) -> None:
        """Use the store from now on only as long as its tables have this schema version."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[Transactions | None]:
        """The turn of this process to fold, until it is given back or the process ends; None where another has it.

        Gives the fold's transactions: one that begins, or ends, once the turn is lost raises.
        """

    @abstractmethod
    def forget_overwritten(self) -> bool:
        """Take bytes that were overwritten out of the database's files; False where somebody is reading them."""

    @abstractmethod
    def write_back(self) -> None:
        """Move what was written to its place in the database's files, so that no upload has to, or waits for it."""

    @abstractmethod
    def give_back(self) -> None:
        """Give free room in the database's files back to the disk, where that is worth the time that others wait."""

    @abstractmethod
    def bytes_kept(self) -> int:
        """About how many bytes the log takes, and what else there is much of, without what was deleted."""

    def free_bytes(self) -> int | None:
        """How many bytes are free on its disk; None where that is another machine's."""
        return None

    @abstractmethod
    def in_place(self) -> bool:
        """Tell whether it still is where it was opened; asked before each commit, so that none is in vain."""

    @abstractmethod
    def trouble(self) -> str | None:
        """Why no upload should be appended to it, as far as can be told without asking it; None where all is well."""

    def close(self) -> None:
        """Close the connections; a transaction in hand is lost."""
        self.engine.dispose()


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
        insert_ = postgresql.insert if self._connection.dialect.name == "postgresql" else sqlite.insert
        putting = insert_(table).values(row).on_conflict_do_nothing().returning(*table.primary_key)
        return self._connection.execute(putting).first() is not None


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
    with usable(database), database.writer() as connection, connection.begin():
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
    with usable(database), database.writer() as connection, connection.begin():
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

"""Opening the store, wherever it lies, and transactions on it."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from changeling_protocol import SurveyId, UnixMilliseconds
from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import DBAPIError

from ..errors import StoreError
from . import log, schema
from .at_rest import IN_CLEAR, STORE_KEY_BYTES, AtRest
from .catalogue import segment_bytes
from .database import Database
from .embedded import EmbeddedDatabase
from .file_lock import SUFFIX
from .surveys import add_survey
from .versions import claim, version_of
from .views import Transaction, Turn, View

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Store:
    """An open store. Threads may share it; a transaction belongs to one of them.

    place: where it lies, to open it in another process. at_rest: what its private keys are encrypted under.
    """

    def __init__(self, database: Database, place: Path | str, at_rest: AtRest) -> None:
        self.place, self.at_rest = place, at_rest
        self._database = database
        self._overwritten = True  # by a process that was killed, perhaps

    @classmethod
    def open(cls, place: Path | str, at_rest: AtRest = IN_CLEAR, *, alone: bool = False) -> "Store":
        """The store at this place, made if there is none. Raises StoreError, ValueError or OSError.

        place: a file's path, or the URL of a PostgreSQL database. at_rest: what its private keys are encrypted under;
        needed only by who makes or uses them. alone: whether nobody else may have it open meanwhile.
        """
        database = database_at(place, alone)
        try:
            with _usable(database), database.writer() as connection, connection.begin():
                claim(connection, database)
            database.insist_on(schema.VERSION)
        except BaseException:
            database.close()
            raise
        return cls(database, place, at_rest)

    @property
    def engine(self) -> Engine:
        """The database's."""
        return self._database.engine

    @contextmanager
    def reading(self, once: bool = False) -> Iterator[Connection]:
        """A transaction that sees one state of the store. once: it is one statement."""
        with self._database.reader(once) as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, once: bool = False) -> Iterator[Connection]:
        """A transaction that may write. It is on disk when it ends, and nothing of it is kept where it raises.

        once: it is one statement, which may be on disk as soon as that returns.
        Where the connection is lost as it ends it may be kept or not, and raises: nothing of it is acknowledged then.
        """
        with self._database.writer(once) as connection, connection.begin():
            yield connection

    @contextmanager
    def view(self, once: bool = False) -> Iterator[View]:
        """One state of the store, to read. once: it is asked one thing only."""
        with self.reading(once) as connection:
            yield View(connection, self.at_rest)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction that may write. It is on disk when it ends, and nothing of it is kept where it raises.

        Where the connection is lost as it ends it may be kept or not, and raises: nothing of it is acknowledged then.
        """
        with self.writing() as connection:
            yield Transaction(connection, self.at_rest)

    @contextmanager
    def turn_to_fold(self) -> Iterator[Turn | None]:
        """The turn of this process to fold, until the context ends; None where another process has it.

        A transaction of the turn that begins, or ends, once the turn is lost raises: Overtaken, or what the database
        raises.
        """
        with self._database.turn() as transactions:
            yield None if transactions is None else Turn(self, transactions)

    def open_stream(self, survey: SurveyId | None = None) -> int:
        """The number of a new, empty stream of a survey's requests, which no other process gets."""
        del survey
        with self.writing() as connection:
            return log.open_stream(connection)

    def append(self, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        """Put requests at a stream's end; they are on disk when this returns.

        stream: from `open_stream`. now: Unix milliseconds; they all arrive then, or later where that is past.
        """
        with self.writing(log.is_one_statement(self.engine, bodies)) as connection:
            log.append(connection, stream, bodies, now)

    def forget_overwritten(self, changed: bool) -> None:
        """Take bytes that were overwritten since out of the store's files, as far as the database lets us.

        changed: whether anything was overwritten since the last time. Where somebody is reading for longer than a
        second it is left for the next call, which then does it in any case.
        """
        self._overwritten |= changed
        if self._overwritten:
            self._overwritten = not self._database.forget_overwritten()

    def write_back(self) -> None:
        """Move what was written to its place in the database's files, so that no upload has to, or waits for it."""
        self._database.write_back()

    def give_back(self) -> None:
        """Give the disk back what was deleted, where hardly anything else is left."""
        self._database.give_back()

    def bytes_kept(self) -> int:
        """About how many bytes all that it holds takes, its segments with it, without what was deleted."""
        with self.reading(once=True) as connection:
            in_segments = segment_bytes(connection)
        return self._database.bytes_kept() + in_segments

    def in_place(self) -> bool:
        """Whether it is still where it was opened, so that nothing is appended in vain; asked before each commit."""
        return self._database.in_place()

    def trouble(self) -> str | None:
        """Why no upload should be appended to it, as far as can be told at once; None where all is well."""
        return self._database.trouble()

    def close(self) -> None:
        """Close its connections; a transaction in hand is lost."""
        self._database.close()

    def copy_of_counted(self, view: View, path: Path) -> "Store":
        """A new store in a file, whose fold counts again what this one has counted and not deleted.

        view: of this store. It has the surveys, the keys, under a store key that nobody else has, and the log, without
        the gaps of what was deleted.
        """
        copy = Store.open(path, AtRest(os.urandom(STORE_KEY_BYTES)))
        with copy.writing() as connection:
            for id_, signed in view.signed_surveys().items():
                add_survey(connection, id_, signed)
            stored = view._connection  # the old way
            for table in (schema.early_ends,):
                if kept := [dict(row) for row in stored.execute(select(table)).mappings()]:
                    connection.execute(insert(table), kept)
            keys = schema.sealing_keys
            for row in stored.execute(select(keys).where(keys.c.private.is_not(None))).mappings():
                private = copy.at_rest.kept(self.at_rest.taken(row["private"], row["id"]), row["id"])
                connection.execute(insert(keys).values({**row, "private": private}))
            for stream in stored.execute(select(schema.cursors.c.stream)).scalars().all():
                connection.execute(insert(schema.streams).values(id=stream, length=0))
                connection.execute(insert(schema.cursors).values(stream=stream, position=0, pruned=0))
        for rows in log.folded_requests(stored):
            stream = rows[0].stream
            with copy.writing() as connection:
                length = log.length_of(connection, stream)
                again = [
                    {"stream": stream, "position": position, "arrival": row.arrival, "envelope": row.body}
                    for position, row in enumerate(rows, length + 1)
                ]
                connection.execute(insert(schema.log), again)
                connection.execute(
                    update(schema.streams).where(schema.streams.c.id == stream).values(length=length + len(rows))
                )
        return copy


def version_at(place: Path | str) -> str | None:
    """The schema version of the store at a place; None where there is no store. Raises StoreError, ValueError, OSError.

    place: as `Store.open` takes it.
    """
    with connected(place) as database, database.reader() as connection, connection.begin():
        return version_of(connection, database)


def files_of(path: Path) -> list[Path]:
    """The files of a store in a file at this path, those that there may be with those that there are."""
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-fold", SUFFIX))]


def database_at(place: Path | str, alone: bool = False) -> Database:
    """The database at a file's path, or at a URL of PostgreSQL. alone: whether nobody else may have it open meanwhile.

    Raises ValueError for another URL, StoreError where the driver is not installed or others have it open, or OSError.
    """
    url = _SCHEME.match(place) if isinstance(place, str) else None
    if isinstance(place, Path) or url is None:
        return EmbeddedDatabase(Path(place), alone)
    if url[1] != "postgresql":
        raise ValueError(f"a store is a file, or a database at postgresql://…, not at {url[1]}://…")
    try:
        from .postgresql import PostgreSQLDatabase
    except ModuleNotFoundError as error:
        raise StoreError('a store on PostgreSQL needs its driver: pip install "changeling[postgres]"') from error
    return PostgreSQLDatabase(place, alone)


@contextmanager
def connected(place: Path | str, *, alone: bool = False) -> Iterator[Database]:
    """The database at this place for as long as the context lasts; for what it raises within, a StoreError names it.

    alone: whether nobody else may have it open meanwhile.
    """
    database = database_at(place, alone)
    try:
        with _usable(database):
            yield database
    finally:
        database.close()


@contextmanager
def _usable(database: Database) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        raise StoreError(f"{database.name} cannot be used as a store: {reason}") from error

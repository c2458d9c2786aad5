"""A store's backup: one file, read in one transaction while servers go on, without what must never be copied.

In it is all that was counted and published, and the ids of what is open: so what devices send again to a restored store
counts once. Left out are the log, in segments or not, and the private halves of keys. What was
not folded is lost with the log.
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from changeling_protocol import UnixMilliseconds
from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    NullPool,
    Select,
    Table,
    create_engine,
    func,
    insert,
    null,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from ..durable_files import give_to_folders_owner, sync_folder
from ..errors import StoreError
from . import schema
from .counts import ClosingKey
from .database import BACKUP
from .registry import KeyPurpose
from .store import Store

_about = Table(
    BACKUP,
    MetaData(),
    Column("version", Integer, nullable=False),
    Column("taken", BigInteger, nullable=False),
    Column("unfolded", BigInteger, nullable=False),
)
"""One row: the schema version of what is in the file, when it was read, and how much of the log was not folded then."""
_LEFT_OUT = {schema.log.name, schema.files.name}
_ROWS_AT_ONCE = 64
"""A row of ids has 64 KiB."""
_MOST_LOST_REVISIONS = 2**32
"""More than a store makes after its backup: at one a second that is a century."""
_ROWS: Mapping[str, Select[Any]] = {
    schema.keys.name: select(
        *(null().label("private") if column.name == "private" else column for column in schema.keys.c)
    ).where(schema.keys.c.signed.is_not(None), schema.keys.c.purpose == KeyPurpose.SEALING.value),
    # Without their envelopes streams end where the fold was.
    schema.streams.name: select(schema.streams.c.id, schema.cursors.c.position.label("length")).join(
        schema.cursors, schema.cursors.c.stream == schema.streams.c.id
    ),
    schema.cursors.name: select(
        schema.cursors.c.stream, schema.cursors.c.position, schema.cursors.c.position.label("deleted")
    ),
}
"""Rows that are kept of the tables that are not kept whole."""


class Backup(NamedTuple):
    """The content of a backup.

    taken: when it was read, in Unix milliseconds. unfolded: how many uploads were acknowledged and not folded then.
    open: the closings whose ids are in it, as they were not sealed.
    """

    taken: UnixMilliseconds
    unfolded: int
    open: Sequence[ClosingKey]


def back_up(store: Store, path: Path, now: UnixMilliseconds) -> Backup:
    """Write a backup of an open store, as it is at one moment, to a new file that its owner alone can read.

    now: Unix milliseconds. Nothing is left of the file where this raises.
    Raises FileExistsError, OSError, StoreError where ids lie in files, or what the store raises.
    """
    if path.exists():
        raise FileExistsError(17, "is there already, and a backup overwrites nothing", str(path))
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    give_to_folders_owner(part)
    try:
        with store.view() as view, _file(part).begin() as target:
            if view.id_files():
                raise StoreError("ids lie in files beside the store, where Spark folds: run `changeling fold` first")
            about = {"version": schema.VERSION, "taken": now, "unfolded": view.log_state().unfolded}
            _about.create(target)
            target.execute(insert(_about).values(about))
            for table in _tables():
                table.create(target)
                _copy(view._connection, _ROWS.get(table.name, select(table)), target, table)
            backup = _read(target)
        os.rename(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.absolute().parent)
    return backup


@contextmanager
def opened_backup(path: Path) -> Iterator[Connection]:
    """A backup's file, checked to be whole.

    Raises FileNotFoundError, or StoreError where it is no backup, is damaged, or has another schema version.
    """
    path.stat()
    with _file(path).connect() as connection:
        try:
            _check(connection, path)
        except DBAPIError as error:
            raise StoreError(f"{path} is no backup, or is damaged: {error.orig}") from error
        yield connection


def _check(backup: Connection, path: Path) -> None:
    if backup.exec_driver_sql("PRAGMA integrity_check").scalars().all() != ["ok"]:
        raise StoreError(f"{path} is damaged: take another backup")
    version = backup.execute(select(_about.c.version)).scalar_one()
    if version != schema.VERSION:
        raise StoreError(
            f"{path} has schema version {version}, this program has {schema.VERSION}: restore it with the version of "
            "changeling that wrote it, then run `changeling store upgrade` with this one"
        )


def restore(backup: Connection, store: Store) -> Backup:
    """Put a backup into a new store, whole or not at all. Raises StoreError where anything is in the store.

    backup: from `opened_backup`.
    """
    with store.transaction() as writing:
        writing.stop_appending()
        connection = writing._connection
        for table in schema.metadata.sorted_tables:
            if table is not schema.store and connection.execute(select(table).limit(1)).first() is not None:
                raise StoreError("a backup is restored into a new store, and there is something in this one")
        for table in _tables():
            if table is schema.store:
                row = backup.execute(select(table)).one()
                connection.execute(update(table).values(row._asdict()))
            else:
                _copy(backup, select(table), connection, table)
        _number_on(connection)
        _revise(connection)
    return _read(backup)


def _tables() -> list[Table]:
    return [table for table in schema.metadata.sorted_tables if table.name not in _LEFT_OUT]


def _copy(source: Connection, rows: Select[Any], target: Connection, table: Table) -> None:
    found = source.execute(rows, execution_options={"yield_per": _ROWS_AT_ONCE})
    for some in found.partitions():
        target.execute(insert(table), [row._asdict() for row in some])


def _read(backup: Connection) -> Backup:
    about = backup.execute(select(_about)).one()
    closings = select(schema.runs.c.survey, schema.runs.c.period).distinct()
    return Backup(about.taken, about.unfolded, [(row.survey, row.period) for row in backup.execute(closings)])


def _number_on(connection: Connection) -> None:
    """Where a database numbers streams by a counter, let it go on behind those that are there."""
    last = connection.execute(select(func.max(schema.streams.c.id))).scalar_one()
    if last is not None and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('streams', 'id'), {int(last)})")


def _revise(connection: Connection) -> None:
    """Let what is shown go on at revisions that nobody has seen, neither of the store that was lost nor of another that
    was restored from the same backup: else an entity tag of then stands for what is shown now."""
    beyond = _MOST_LOST_REVISIONS + secrets.randbelow(2**40)
    shown = update(schema.surveys).where(schema.surveys.c.revision > 0)
    connection.execute(shown.values(revision=schema.surveys.c.revision + beyond))


def _file(path: Path) -> Engine:
    """A backup's file; its connection is closed with its context."""
    url = URL.create("sqlite", database=str(path.absolute()))
    return create_engine(url, poolclass=NullPool, hide_parameters=True)

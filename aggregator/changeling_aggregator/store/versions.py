"""Which version of the tables a store has: made new, known, or not ours."""

from sqlalchemy import Connection, insert, inspect, select
from sqlalchemy.exc import NoResultFound

from ..errors import StoreError
from . import schema
from .database import Database


def claim(connection: Connection, database: Database) -> None:
    """Make the tables where there are none. Raises StoreError where those that are there are not to be used."""
    database.keep_others_out(connection)
    version = version_of(connection, database)
    if version is None:
        schema.metadata.create_all(connection)
        schema.versions.create(connection)
        connection.execute(insert(schema.versions).values(version_num=schema.VERSION))
        row = {"program": schema.PROGRAM, "arrival": 0, "stream": 0, "held": 0, "told": 0, "jumped": False}
        connection.execute(insert(schema.store).values(row))
    elif version > schema.VERSION:
        raise from_the_future(version, database)
    elif version < schema.VERSION:
        raise StoreError(
            f"{database.name} has schema version {version}, this program needs {schema.VERSION}: stop every server on "
            "it, make a backup, and run `changeling store upgrade`"
        )


def version_of(connection: Connection, database: Database) -> str | None:
    """The version of a store's tables; None where there are no tables. Raises StoreError for another program's."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if not {schema.store.name, schema.versions.name} <= {*tables}:
        raise StoreError(f"{database.name} belongs to another program: name one of its own for the store")
    program = connection.execute(select(schema.store.c.program)).scalar_one()
    if program != schema.PROGRAM:
        raise StoreError(f"{database.name} belongs to {program}: name one of its own for the store")
    try:
        version: str = connection.execute(select(schema.versions.c.version_num)).scalar_one()
    except NoResultFound:
        raise StoreError(f"{database.name} has no schema version: a downgrade took its tables away") from None
    return version


def from_the_future(version: str, database: Database) -> StoreError:
    """The error for a version that this program does not know."""
    return StoreError(
        f"{database.name} has schema version {version}, this program knows {schema.VERSION}: use the version of "
        f"changeling that wrote it, or a later one; to come back to this one, run its `changeling store downgrade "
        f"--to {schema.VERSION}` first"
    )

"""Putting a row where there may be one already, however many processes do so at once."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def inserted(connection: Connection, table: Table, **row: object) -> bool:
    """Insert a row; False, and nothing is changed, where one with its primary key is there already.

    Waits for another process that is about to insert the same.
    """
    putting = _unless_there(connection, table).values(row).returning(*table.primary_key)
    return connection.execute(putting).first() is not None


def insert_missing(connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert many rows in one go; those whose primary key is there already change nothing. Waits as `inserted` does."""
    if rows:
        connection.execute(_unless_there(connection, table), rows)


def _unless_there(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()

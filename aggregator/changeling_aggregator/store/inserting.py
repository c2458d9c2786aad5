"""Putting a row where there may be one already, however many processes do so at once."""

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def inserted(connection: Connection, table: Table, **row: object) -> bool:
    """Insert a row; False, and nothing is changed, where one with its primary key is there already.

    Waits for another process that is about to insert the same.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    putting = insert(table).values(row).on_conflict_do_nothing().returning(*table.primary_key)
    return connection.execute(putting).first() is not None

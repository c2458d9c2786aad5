"""Putting a row where there may be one already, however many processes do so at once."""

from sqlalchemy import Connection, Table, insert
from sqlalchemy.exc import IntegrityError


def inserted(connection: Connection, table: Table, **row: object) -> bool:
    """Insert a row; False, and nothing is changed, where one with its primary key is there already.

    A savepoint keeps the transaction usable, in databases where an error would otherwise end it.
    """
    try:
        with connection.begin_nested():
            connection.execute(insert(table).values(row))
    except IntegrityError:
        return False
    return True

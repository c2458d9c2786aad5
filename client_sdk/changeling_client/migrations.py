"""From one version of the store's tables to the next, and back: each within one transaction, so wholly or not at all.

A store of a version that is not known here is left as it is.
"""

import sqlite3
from collections.abc import Callable

from . import schema, surveys, version_3
from .wrapping import Wrapping

_FORWARD: dict[int, Callable[[sqlite3.Connection, Wrapping], None]] = {3: version_3.forward}
"""From each of these versions to the next one."""
_BACK: dict[int, Callable[[sqlite3.Connection, Wrapping], None]] = {3: version_3.back}
"""To each of these versions from the next one."""
READABLE = (*_FORWARD, schema.VERSION)
"""The versions that are brought to the present one as a store is opened."""


def upgrade(connection: sqlite3.Connection, wrapping: Wrapping) -> None:
    """Brings the tables of an open file to the present version, unless another process does so first."""
    if _version(connection) == schema.VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        while (version := _version(connection)) != schema.VERSION:
            _FORWARD[version](connection, wrapping)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def downgrade(db: sqlite3.Connection, wrapping: Wrapping, version: int) -> None:
    """Brings the tables back to an earlier version, within the caller's transaction.

    Raises ValueError for a version that there is no way back to, or that cannot hold what the store knows.
    """
    if version not in (*_BACK, schema.VERSION):
        raise ValueError(f"a store can be brought to the versions {min(_BACK)} to {schema.VERSION}, got {version}")
    for each in range(schema.VERSION - 1, version - 1, -1):
        _BACK[each](db, wrapping)
        db.execute(f"PRAGMA user_version = {each}")


def address(db: sqlite3.Connection, url: str) -> None:
    """Sends to the app's server, at this URL, what no relay of a survey's takes: it may have moved since.

    What an earlier version kept of the one server that it knew is that server's from now on.
    """
    surveys.follow(db, url)
    for table in ("servers", "sealing_keys"):
        db.execute(f"UPDATE OR REPLACE {table} SET url = ? WHERE url = ''", (url,))  # noqa: S608


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)

"""A store from one schema version to another, up or down, in one transaction: the files in `migrations`, by Alembic.

What `schema` describes is what the last of them makes. A file that a released program has run never changes.
"""

from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from .database import Database
from .schema import VERSION
from .versions import from_the_future, version_of

MIGRATIONS = Path(__file__).with_name("migrations")


@dataclass(frozen=True, slots=True)
class Move:
    """Schema versions before and after; before is None where there was no store."""

    before: str | None
    after: str


def found_version(database: Database) -> str | None:
    """The schema version of the store there; None where there is no store. Raises StoreError for what is not ours."""
    with database.reader() as connection, connection.begin():
        return version_of(connection, database)


def migrate(database: Database, to: str = VERSION, migrations: Path = MIGRATIONS) -> Move:
    """Bring a store to a schema version, whole or not at all; no server may be running on it.

    to: a version that this program knows. migrations: the folder of Alembic's files.
    Raises StoreError where the store has a version that this program does not know, and ValueError for such a `to`.
    """
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    known = sorted(script.revision for script in ScriptDirectory.from_config(config).walk_revisions())
    if to not in known:
        raise ValueError(f"this program knows schema version {' and '.join(known)}, not {to!r}")
    with database.writer() as connection, connection.begin():
        database.keep_others_out(connection)
        before = version_of(connection, database)
        if before is not None and before not in known:
            raise from_the_future(before, database)
        config.attributes["connection"] = connection
        (command.upgrade if before is None or before <= to else command.downgrade)(config, to)
    return Move(before, to)

"""PostgreSQL no longer keeps private keys, envelopes and ids among its statistics, where they outlived their tables."""

from alembic import op

revision = "0005"
down_revision = "0004"
_COLUMNS = (("sealing_keys", "private"), ("log", "envelope"), ("runs", "ids"))


def upgrade() -> None:
    """They are analysed no more; and what is known of a column goes where it is given a type, also the one it has."""
    if op.get_bind().dialect.name == "postgresql":
        for table, column in _COLUMNS:
            op.execute(f"ALTER TABLE {table} ALTER {column} SET STATISTICS 0, ALTER {column} TYPE bytea")
        for table, column in _COLUMNS[1:]:  # as it was: a type brings its own way of being stored
            op.execute(f"ALTER TABLE {table} ALTER {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    """As PostgreSQL does by itself."""
    if op.get_bind().dialect.name == "postgresql":
        for table, column in _COLUMNS:
            op.execute(f"ALTER TABLE {table} ALTER {column} SET STATISTICS -1")

"""The log may lie in segments, of which the store keeps the catalogue."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, String

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the catalogue."""
    op.add_column("streams", Column("place", String))
    op.add_column("streams", Column("files", String))
    op.add_column("streams", Column("frontier", BigInteger))
    op.create_table(
        "segments",
        Column("stream", Integer, primary_key=True, autoincrement=False),
        Column("first", BigInteger, primary_key=True, autoincrement=False),
        Column("last", BigInteger, nullable=False),
        Column("earliest", BigInteger, nullable=False),
        Column("latest", BigInteger, nullable=False),
        Column("name", String, nullable=False),
        Column("bytes", BigInteger, nullable=False),
        Column("cut", Boolean, nullable=False),
    )
    op.create_table(
        "dropped",
        Column("stream", Integer, primary_key=True, autoincrement=False),
        Column("position", BigInteger, primary_key=True, autoincrement=False),
    )
    op.create_table("doomed", Column("place", String, primary_key=True), Column("name", String, primary_key=True))


def downgrade() -> None:
    """Take the catalogue away, where all that is in segments is counted: the earlier program knows none."""
    waiting = op.get_bind().exec_driver_sql(
        "SELECT count(*) FROM streams JOIN cursors ON cursors.stream = streams.id "
        "WHERE streams.place IS NOT NULL AND (cursors.position < streams.length OR streams.frontier IS NOT NULL)"
    )
    if waiting.scalar_one():
        raise ValueError("there are segments that are not counted: run `changeling fold` with this version before")
    for name in ("doomed", "dropped", "segments"):
        op.drop_table(name)
    with op.batch_alter_table("streams") as streams:
        for name in ("frontier", "files", "place"):
            streams.drop_column(name)

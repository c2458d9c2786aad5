"""The tables that the first version has."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Identity, Integer, LargeBinary, String, insert, table
from sqlalchemy import column as named

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "store",
        Column("program", String, primary_key=True),
        Column("arrival", BigInteger, nullable=False),
        Column("stream", Integer, nullable=False),
        Column("held", BigInteger, nullable=False),
        Column("told", BigInteger, nullable=False),
        Column("jumped", Boolean, nullable=False),
    )
    row = {"program": "changeling-aggregator", "arrival": 0, "stream": 0, "held": 0, "told": 0, "jumped": False}
    op.execute(insert(table("store", *map(named, row))).values(row))
    op.create_table(
        "surveys",
        Column("id", LargeBinary(16), primary_key=True),
        Column("signed", LargeBinary, nullable=False),
        Column("public", Boolean, nullable=False),
    )
    op.create_table(
        "tokens",
        Column("hash", LargeBinary(32), primary_key=True),
        Column("name", String, nullable=False),
        Column("scopes", String, nullable=False),
        Column("created", BigInteger, nullable=False),
    )
    op.create_table(
        "early_ends",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("last", Integer, nullable=False),
        Column("signed", LargeBinary, nullable=False),
    )
    op.create_table(
        "sealing_keys",
        Column("id", LargeBinary(16), primary_key=True),
        Column("public", LargeBinary(32), nullable=False),
        Column("private", LargeBinary(32)),
        Column("signed", LargeBinary),
        Column("begins", BigInteger),
        Column("expires", BigInteger),
    )
    op.create_table(
        "streams",
        Column("id", Integer, Identity(), primary_key=True),
        Column("length", BigInteger, nullable=False),
    )
    op.create_table(
        "log",
        Column("stream", Integer, primary_key=True),
        Column("position", BigInteger, primary_key=True),
        Column("arrival", BigInteger, nullable=False),
        Column("envelope", LargeBinary, nullable=False),
    )
    op.create_table(
        "cursors",
        Column("stream", Integer, primary_key=True, autoincrement=False),
        Column("position", BigInteger, nullable=False),
        Column("pruned", BigInteger, nullable=False),
    )
    op.create_table(
        "held",
        Column("stream", Integer, primary_key=True),
        Column("position", BigInteger, primary_key=True),
        Column("until", BigInteger, nullable=False),
    )
    op.create_table(
        "thinned",
        Column("stream", Integer, primary_key=True, autoincrement=False),
        Column("grace", BigInteger, primary_key=True, autoincrement=False),
        Column("position", BigInteger, nullable=False),
    )
    op.create_table(
        "tallies",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("track", Integer, primary_key=True),
        Column("node", Integer, primary_key=True),
        Column("stratum", Integer, primary_key=True),
        Column("reports", BigInteger, nullable=False),
        Column("slots", LargeBinary, nullable=False),
    )
    op.create_table(
        "attendance",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("group", Integer, primary_key=True),
        Column("period", Integer, primary_key=True),
        Column("stratum", Integer, primary_key=True),
        Column("heard", BigInteger, nullable=False),
        Column("new", BigInteger, nullable=False),
        Column("missed", BigInteger, nullable=False),
    )
    op.create_table(
        "runs",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("period", Integer, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("first", LargeBinary(16), primary_key=True),
        Column("ids", LargeBinary, nullable=False),
    )
    op.create_table(
        "refusals",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("reason", String, primary_key=True),
        Column("count", BigInteger, nullable=False),
    )
    op.create_table(
        "sealed",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("period", Integer, nullable=False),
    )
    op.create_table(
        "snapshots",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("period", Integer, primary_key=True),
        Column("group", Integer, primary_key=True),
        Column("stratum", Integer, primary_key=True),
        Column("revision", BigInteger, nullable=False),
        Column("heard", BigInteger, nullable=False),
        Column("new", BigInteger, nullable=False),
        Column("missed", BigInteger, nullable=False),
        Column("cells", LargeBinary, nullable=False),
    )
    op.create_table(
        "shown",
        Column("survey", LargeBinary(16), primary_key=True),
        Column("revision", BigInteger, nullable=False),
        Column("final", Integer, nullable=False),
        Column("due", Integer, nullable=False),
        Column("folded", BigInteger, nullable=False),
    )

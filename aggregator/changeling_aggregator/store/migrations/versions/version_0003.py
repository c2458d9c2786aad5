"""Ids that were counted may lie in files, which the store names."""

from alembic import op
from sqlalchemy import BigInteger, Column, LargeBinary, String

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table that names them."""
    op.create_table(
        "id_files",
        Column("name", String, primary_key=True),
        Column("place", String, nullable=False),
        Column("survey", LargeBinary(16), nullable=False),
        Column("size", BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Take it away, where it names none: the earlier program would count what is in the files again."""
    if op.get_bind().exec_driver_sql("SELECT count(*) FROM id_files").scalar_one():
        raise ValueError("there are files of ids: run `changeling fold` with this version before")
    op.drop_table("id_files")

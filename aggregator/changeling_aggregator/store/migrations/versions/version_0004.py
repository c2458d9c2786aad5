"""PostgreSQL no longer tries to compress ciphertext and random ids, which took a third of the time to store them."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """What is stored from now on is stored as it is."""
    _store("EXTERNAL")


def downgrade() -> None:
    """As PostgreSQL does by itself."""
    _store("EXTENDED")


def _store(how: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE log ALTER envelope SET STORAGE {how}")
        op.execute(f"ALTER TABLE runs ALTER ids SET STORAGE {how}")

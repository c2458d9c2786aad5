"""The way back to an older release of an app, whose SDK reads an earlier version of the store."""

import os
from pathlib import Path

from . import migrations
from .store import Store


def migrate(path: str | os.PathLike[str], version: int, key: bytes | None = None) -> None:
    """Brings a store's tables to a version, for a release of the app that goes back to an older SDK.

    It is done wholly or not at all. Close all clients of the store before. Version 3 has no room for answers to a
    survey that was never fetched, for what was sent, and for the witness's number: those go.
    path: the store's. version: 3, or the present one, 4. key: what the store was made with; before version 4 there is
    none, and answers are kept as they are.
    Raises ValueError for another version, or if a survey was left or silenced that an older SDK would join again;
    FileNotFoundError; a store's errors.
    """
    file = Path(path).expanduser()
    if not file.exists():
        raise FileNotFoundError(f"there is no store at {file}")
    store = Store(file, key)
    try:
        with store.transaction() as db:
            migrations.downgrade(db, store.wrapping, version)
        store.erase_past()
    finally:
        store.close()

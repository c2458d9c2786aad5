"""What happens when a person does not want to take part, or not any more: everything goes, and a tombstone stays.

A tombstone is a survey's id and what it counted; the survey is never joined again.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

from . import enrolment, schema, surveys
from .store import Store
from .surveys import Known, Status

_MARK_AT = 68
"""Where a file of SQLite says which program it belongs to."""


def withdraw(db: sqlite3.Connection) -> None:
    """Leaves every survey, and forgets all that is kept besides: keys of servers, and what is known of their time."""
    for known in surveys.find_all(db):
        leave(db, known)
    for table in ("sealing_keys", "servers", "drops"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608


def leave(db: sqlite3.Connection, known: Known) -> None:
    """Leaves one survey: what it knew and what waits is deleted, and a tombstone stays.

    Of one that was never joined nothing stays but the tombstone either: the app has asked for it, and may have told.
    """
    if known.status is not Status.SILENCED:
        enrolment.end(db, known, Status.LEFT)


@contextmanager
def looking(opened: Store | None, path: Path, key: bytes | None) -> Iterator[sqlite3.Connection | None]:
    """A transaction of a store, to look at what is left of it where it is closed, as there is no consent.

    opened: the store, if it is open. path, key: as it is opened else. Gives None if there is none.
    """
    if opened is None and not path.exists():
        yield None
        return
    with nullcontext(opened) if opened is not None else closing(Store(path, key)) as store, store.transaction() as db:
        yield db


def is_ours(store: Path) -> bool:
    """Whether a file that cannot be opened was a store of ours: by the mark in its head, or the lock beside it."""
    with open(store, "rb") as content:
        head = content.read(_MARK_AT + 4)
    return head[_MARK_AT:] == schema.APPLICATION.to_bytes(4) or store.with_name(f"{store.name}.lock").exists()


def destroy(store: Path) -> None:
    """Overwrites and deletes a store that cannot be opened, with all files beside it that SQLite made."""
    for file in (store, *(store.with_name(store.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        with suppress(FileNotFoundError):
            with open(file, "r+b") as content:
                content.write(bytes(file.stat().st_size))
                content.flush()
                os.fsync(content.fileno())
            file.unlink()

"""Of all processes on a store one folds at a time; the others stand by. Where one dies its place is free.

Nothing is counted wrong without it, as the cursors are moved by compare-and-set: it spares work that would be thrown
away.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import func, select

from .database import Store

_NUMBER = 0x6368616E67656C
"""Names the lock among those of a database."""


@contextmanager
def only_folder(store: Store) -> Iterator[bool]:
    """Whether the caller may fold; until it leaves nobody else may."""
    if store.engine.dialect.name == "postgresql":
        with store.engine.connect() as connection:
            alone: bool = connection.execute(select(func.pg_try_advisory_lock(_NUMBER))).scalar_one()
            try:
                yield alone
            finally:
                if alone:
                    connection.execute(select(func.pg_advisory_unlock(_NUMBER)))
        return
    file = os.open(f"{store.engine.url.database}-fold", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)

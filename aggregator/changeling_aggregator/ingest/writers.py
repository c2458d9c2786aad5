"""Which writer a server has: one to rows of its store, to a folder, or to an object store."""

from collections.abc import Callable, Sequence

from changeling_protocol import RefusalCounts, UnixMilliseconds, UnixSeconds

from ..segments import place_at
from ..store import Store
from ..store.counted import add_refusals
from ..store.log import append, is_one_statement, open_stream, stop_appending
from .writing import LogWriter


class RowWriter(LogWriter):
    """Each write is a transaction of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.writing() as connection:
            self._stream = open_stream(connection)

    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Append rows."""
        once = bool(bodies) and not refused and is_one_statement(self._store.engine, bodies)
        with self._store.writing(once) as connection:
            if bodies:
                append(connection, self._stream, bodies, now)
            elif not refused:
                stop_appending(connection)  # which changes nothing, and is written all the same
            add_refusals(connection, refused)

    def flush(self) -> None:
        """The fold finds it already."""

    def close(self) -> None:
        """Nothing is open."""


def writer_for(store: Store, clock: Callable[[], UnixSeconds], segments: str | None) -> LogWriter:
    """What writes to a store. segments: the place where requests lie, as `checked_place` gives it; None for the store's
    own rows. Raises StoreError, Unwritable, or OSError where the place cannot be used."""
    if segments is None:
        return RowWriter(store)
    from ..segments.folder import Folder  # its libraries are not installed everywhere
    from .bucketed import BucketWriter
    from .journaled import JournalWriter

    place = place_at(segments)
    return JournalWriter(store, place, clock) if isinstance(place, Folder) else BucketWriter(store, place)

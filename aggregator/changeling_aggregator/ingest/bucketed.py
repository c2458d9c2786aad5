"""Uploads to an object store: each commit is an object, then a line of the catalogue, and then the acknowledgement.

The uploads that come while one object is on its way share the next.
"""

from collections.abc import Sequence
from secrets import token_hex

from changeling_protocol.quantities import UnixMilliseconds

from ..errors import Unwritable
from ..segments import Place
from ..segments.form import Row
from ..store import Store
from ..store.catalogue import Segment, add_segment
from ..store.counted import RefusalCounts, add_refusals
from ..store.log import advance_arrival, length_of, open_stream, stop_appending
from ..store.rolling import segment_name, write_segment
from .writing import LogWriter


class BucketWriter(LogWriter):
    """Requests arrive when the catalogue has them: so there are none that it does not have and that count."""

    def __init__(self, store: Store, place: Place) -> None:
        self._store, self._place, self._files = store, place, token_hex(8)
        with store.writing() as connection:
            self._stream = open_stream(connection, place.name, self._files)
        self._length: int | None = 0

    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """One object for all."""
        if self._length is None:  # a transaction failed, and may have been kept all the same
            with self._store.reading() as connection:
                self._length = length_of(connection, self._stream)
        rows = [Row(position, now, body) for position, body in enumerate(bodies, self._length + 1)]
        written = (
            write_segment(self._place, self._stream, segment_name(self._files, rows[0].position), rows)
            if rows
            else None
        )
        if written is None and not refused:
            self._place.put(f"{self._files}-probe", b"")
            self._place.remove(f"{self._files}-probe")
        length, self._length = self._length, None
        with self._store.writing() as connection:
            if written is not None:
                at = advance_arrival(connection, self._stream, now)
                last = rows[-1].position
                name, size = written.name, written.size
                if not add_segment(
                    connection, Segment(self._stream, length + 1, last, at, at, self._place.name, name, size)
                ):
                    raise Unwritable("another process writes to this server's stream")
            elif not refused:
                stop_appending(connection)
            add_refusals(connection, refused)
        self._length = length + len(rows)

    def trouble(self) -> str | None:
        """What the place tells."""
        return self._place.trouble()

    def flush(self) -> None:
        """The fold finds it already."""

    def close(self) -> None:
        """Nothing is open."""

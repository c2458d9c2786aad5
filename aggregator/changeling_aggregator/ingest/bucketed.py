"""Uploads to an object store: each commit is an object, then a line of the catalogue, and then the acknowledgement.

Several objects may be on their way at a time, each for a stream of its own. So one that fails or hangs refuses its own
uploads, and holds nobody else up: in a stream the next object follows only when the one before is in the catalogue.

Requests arrive when the catalogue has them, which a slow store may put off for seconds. Sealing does not wait for them:
in the last seconds of a grace an upload may be acknowledged and late. To have it wait, as it does for journals, would
take a second transaction for each object, and somebody to end the waiting for a server that was killed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from secrets import token_hex
from threading import Lock

from changeling_protocol import RefusalCounts, UnixMilliseconds
from sqlalchemy import Connection

from ..errors import Unwritable
from ..segments import Place
from ..segments.form import Row
from ..store import Store
from ..store.catalogue import Segment, add_segment
from ..store.counted import add_refusals
from ..store.log import advance_arrival, length_of, open_stream, stop_appending
from ..store.rolling import Written, segment_name, write_segment
from .gathering import Pace
from .writing import LogWriter


@dataclass(order=True, slots=True)
class _Lane:
    """A stream. files: how the names of its objects begin. length: of what the catalogue has; None where that is to be
    asked, as a transaction failed that may have been kept all the same."""

    stream: int
    files: str
    length: int | None = 0


@dataclass(slots=True)
class _Pending:
    """What waits to be kept by a transaction. written: an object that is stored, if there is one."""

    lane: _Lane
    written: Written | None
    refused: RefusalCounts
    now: UnixMilliseconds
    error: Exception | None = None
    kept: bool = False


class BucketWriter(LogWriter):
    """Acknowledges what the catalogue has, and nothing else: so nothing that counts is only in the bucket."""

    pace = Pace(at_once=4, apart=0.05, enough=32)
    """Objects are paid for one by one: 20 a second, and one for 32 uploads beyond."""

    def __init__(self, store: Store, place: Place) -> None:
        self._store, self._place = store, place
        self._changing, self._committing = Lock(), Lock()
        self._pending: list[_Pending] = []
        self._idle = [self._new_lane()]

    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """One object for all; several threads may write at the same time."""
        lane = self._taken()
        try:
            if bodies:
                self._append(lane, bodies, refused, now)
            else:
                if not refused:
                    self._place.put(f"{lane.files}-probe", b"")
                    self._place.remove(f"{lane.files}-probe")
                self._keep(_Pending(lane, None, refused, now))
        finally:
            with self._changing:
                heappush(self._idle, lane)

    def trouble(self) -> str | None:
        """What the place tells."""
        return self._place.trouble()

    def flush(self) -> None:
        """The fold finds it already."""

    def close(self) -> None:
        """Nothing is open."""

    def _taken(self) -> _Lane:
        """The first lane that is idle: so that little traffic makes one stream, whose segments are joined soon."""
        with self._changing:
            if self._idle:
                return heappop(self._idle)
        return self._new_lane()

    def _new_lane(self) -> _Lane:
        files = token_hex(8)
        with self._store.writing() as connection:
            return _Lane(open_stream(connection, self._place.name, files), files)

    def _append(self, lane: _Lane, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        if lane.length is None:
            with self._store.reading() as connection:
                lane.length = length_of(connection, lane.stream)
        rows = [Row(position, now, body) for position, body in enumerate(bodies, lane.length + 1)]
        written = write_segment(self._place, lane.stream, segment_name(lane.files, rows[0].position), rows)
        lane.length = None
        self._keep(_Pending(lane, written, refused, now))
        lane.length = rows[-1].position

    def _keep(self, mine: _Pending) -> None:
        """Returns when it is on disk. What comes while a transaction is in hand shares the next."""
        with self._changing:
            self._pending.append(mine)
        with self._committing:
            with self._changing:
                together, self._pending = self._pending, []
            try:
                if together:
                    with self._store.writing() as connection:
                        self._put(connection, together)
                for each in together:
                    each.kept = True
            except Exception as error:  # each who waits for this transaction hears it
                for each in together:
                    each.error = error
        if not mine.kept:
            raise mine.error or Unwritable("what was written came into no catalogue")

    def _put(self, connection: Connection, together: Sequence[_Pending]) -> None:
        """In order of streams, so that all may arrive in the same millisecond."""
        for each in sorted(together, key=lambda each: each.lane.stream):
            if each.written is not None:
                self._name(connection, each.written, each.now)
        refused: RefusalCounts = sum((Counter(each.refused) for each in together), Counter())
        if not refused and not any(each.written for each in together):
            stop_appending(connection)  # which changes nothing, and is written all the same
        add_refusals(connection, refused)

    def _name(self, connection: Connection, written: Written, now: UnixMilliseconds) -> None:
        at = advance_arrival(connection, written.stream, now)
        first, last = written.rows[0].position, written.rows[-1].position
        segment = Segment(written.stream, first, last, at, at, self._place.name, written.name, written.size)
        if not add_segment(connection, segment):
            raise Unwritable("another process writes to this server's stream")

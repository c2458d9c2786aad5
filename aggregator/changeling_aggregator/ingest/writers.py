"""Where the committer puts uploads: rows of the store, or segments at a place."""

import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import ClassVar

from changeling_protocol import HEAD_BYTES, ID_BYTES, RefusalCounts, SurveyId, UnixMilliseconds, head_of
from changeling_protocol.wire import common_head, decode_upload_request, encode_upload_request

from ..errors import Unwritable
from ..segments import Folder, Place, SegmentRow, place_at
from ..store import Segment, Store, Transaction, segment_name, written_segment


@dataclass(frozen=True, slots=True)
class Pace:
    """How commits follow each other.

    at_once: so many may be in hand. apart: seconds from the beginning of one to that of the next, or less where
    `enough` uploads wait, or the bytes that one commit takes. A commit to a disk costs as much as ten uploads.
    """

    at_once: int = 1
    apart: float = 0.0025
    enough: int = 1000


class LogWriter(ABC):
    """Writes to streams of its own. pace: how many threads may write at the same time, and how often."""

    pace: ClassVar[Pace] = Pace()

    @abstractmethod
    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Append requests, which are durable when this returns, and count refusals. Raises what keeps it from that.

        now: Unix milliseconds. Where both are empty it tries whether it could write.
        """

    def trouble(self) -> str | None:
        """Why nothing should be written, as far as can be told at once; None where all is well."""
        return None

    @abstractmethod
    def free_bytes(self) -> int | None:
        """How much is free on the disk that this writes to; None where that cannot be seen from here."""


def writer_for(store: Store, segments: str | None) -> LogWriter:
    """The writer to a store. segments: the place where requests lie, as `checked_place` gives it; None for the store's
    own rows. Raises StoreError, Unwritable, or OSError where the place cannot be used."""
    if segments is None:
        return RowWriter(store)
    place = place_at(segments)
    return SegmentWriter(store, Folder(Path(segments), make=True) if isinstance(place, Folder) else place)


def by_survey(body: bytes) -> Iterator[tuple[SurveyId, bytes]]:
    """A request as requests of one survey each: most are that already."""
    if (head := common_head(body, HEAD_BYTES)) is not None:
        yield SurveyId(head[0][1 : 1 + ID_BYTES]), body
        return
    envelopes: dict[SurveyId, list[bytes]] = {}
    for envelope in decode_upload_request(body):
        envelopes.setdefault(head_of(envelope).survey, []).append(envelope)
    for survey, some in envelopes.items():
        yield survey, body if len(envelopes) == 1 else encode_upload_request(some)


class RowWriter(LogWriter):
    """Each write is a transaction of the store. Each survey has a stream, from its first upload on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams: dict[SurveyId, int] = {}

    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Append rows."""
        appended: dict[int, list[bytes]] = {}
        for survey, part in (each for body in bodies for each in by_survey(body)):
            if survey not in self._streams:
                self._streams[survey] = self._store.open_stream(survey)
            appended.setdefault(self._streams[survey], []).append(part)
        if len(appended) == 1 and not refused:
            self._store.append(*appended.popitem(), now)
            return
        with self._store.transaction() as writing:
            for stream, parts in sorted(appended.items()):
                writing.append(stream, parts, now)
            if not appended and not refused:
                writing.stop_appending()  # which changes nothing, and is written all the same
            writing.add_refusals(refused)

    def free_bytes(self) -> int | None:
        """Ask the store."""
        return self._store.free_bytes()


@dataclass(order=True, slots=True)
class _Lane:
    """A stream. prefix: how the names of its files begin. length: of what the catalogue has; None where that is to be
    asked, as a transaction failed that may have been kept all the same."""

    stream: int
    prefix: str
    length: int | None = 0


@dataclass(slots=True)
class _Pending:
    """A write that waits to be kept by a transaction. segment: a file that is durable, if there is one."""

    stream: int
    segment: Segment | None
    refused: RefusalCounts
    now: UnixMilliseconds
    error: Exception | None = None
    kept: bool = False


class SegmentWriter(LogWriter):
    """Each write is a file, then a line of the catalogue, and then the acknowledgement: so nothing that counts is only
    at the place.

    Several files may be on their way at a time, each for a stream of its own. So one that fails or hangs refuses its
    own uploads, and holds nobody else up: in a stream the next file follows only when the one before is in the
    catalogue.

    Requests arrive when the catalogue has them, which a slow store may put off for seconds. Sealing does not wait for
    them: in the last seconds of a grace an upload may be acknowledged and late. To have it wait would take a second
    transaction for each file, and somebody to end the waiting for a server that was killed.
    """

    pace = Pace(at_once=4, apart=0.05, enough=32)
    """Objects are paid for one by one: 20 a second, and one for 32 uploads beyond."""

    def __init__(self, store: Store, place: Place) -> None:
        self._store, self._place = store, place
        self._changing, self._committing = Lock(), Lock()
        self._pending: list[_Pending] = []
        self._idle = [self._new_lane()]

    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Write one file for all; several threads may write at the same time."""
        lane = self._taken()
        try:
            if bodies:
                self._append(lane, bodies, refused, now)
            else:
                if not refused:
                    self._place.put(f"{lane.prefix}-probe", b"")
                    self._place.delete(f"{lane.prefix}-probe")
                self._keep(_Pending(lane.stream, None, refused, now))
        finally:
            with self._changing:
                heappush(self._idle, lane)

    def trouble(self) -> str | None:
        """Ask the place."""
        return self._place.trouble()

    def free_bytes(self) -> int | None:
        """Ask the file system of a folder."""
        return shutil.disk_usage(self._place.name).free if isinstance(self._place, Folder) else None

    def _taken(self) -> _Lane:
        """The first lane that is idle: so that little traffic makes one stream, whose segments are joined soon."""
        with self._changing:
            if self._idle:
                return heappop(self._idle)
        return self._new_lane()

    def _new_lane(self) -> _Lane:
        prefix = token_hex(8)
        with self._store.transaction() as writing:
            return _Lane(writing.open_stream(None, self._place.name, prefix), prefix)

    def _append(self, lane: _Lane, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        if lane.length is None:
            with self._store.view() as view:
                lane.length = view.length_of(lane.stream)
        parts = [part for body in bodies for part in by_survey(body)]
        rows = [SegmentRow(position, now, part) for position, (_, part) in enumerate(parts, lane.length + 1)]
        name = segment_name(lane.prefix, rows[0].position)
        segment = written_segment(self._place, name, lane.stream, rows, now, [survey for survey, _ in parts])
        lane.length = None
        self._keep(_Pending(lane.stream, segment, refused, now))
        lane.length = segment.last

    def _keep(self, mine: _Pending) -> None:
        """Returns when it is on disk. What comes while a transaction is in hand shares the next."""
        with self._changing:
            self._pending.append(mine)
        with self._committing:
            with self._changing:
                together, self._pending = self._pending, []
            try:
                if together:
                    with self._store.transaction() as writing:
                        _put(writing, together)
                for each in together:
                    each.kept = True
            except Exception as error:  # each who waits for this transaction hears it
                for each in together:
                    each.error = error
        if not mine.kept:
            raise mine.error or Unwritable("what was written came into no catalogue")


def _put(writing: Transaction, together: Sequence[_Pending]) -> None:
    """In order of streams, so that all may arrive in the same millisecond."""
    for each in sorted(together, key=lambda each: each.stream):
        if each.segment is not None:
            at = writing.advance_arrival(each.stream, each.now)
            if not writing.add_segment(each.segment._replace(earliest=at, latest=at)):
                raise Unwritable("another process writes to this server's stream")
    refused: RefusalCounts = sum((Counter(each.refused) for each in together), Counter())
    if not refused and not any(each.segment for each in together):
        writing.stop_appending()  # which changes nothing, and is written all the same
    writing.add_refusals(refused)

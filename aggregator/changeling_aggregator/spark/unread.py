"""What of the log a run folds. Requests that lie in the database's table are written to segments, for executors."""

from collections.abc import Iterator

from changeling_protocol.quantities import UnixMilliseconds
from sqlalchemy import Connection

from ..segments import Place
from ..segments.form import Row, encoded
from ..store import LoggedRequest
from ..store.log import requests_after
from ..store.stretches import Stretch, unread_stretches
from .pieces import Piece

_SEGMENT_BYTES = 8 * 2**20
_SEGMENT_REQUESTS = 50_000


def pieces_to_fold(connection: Connection, place: Place, run: str, latest: UnixMilliseconds) -> list[Piece]:
    """All that can be folded by now.

    run: names the segments that are written to the place. latest: what arrived later is left out, in Unix milliseconds.
    """
    pieces: list[Piece] = []
    for stretch in unread_stretches(connection, latest):
        stream, after, until, segment = stretch
        if segment is not None:
            span = segment.earliest, segment.latest
            pieces.append(Piece(segment.place, segment.name, stream, after, until, segment.size, *span))
            continue
        for some in _segments(connection, stretch):
            name = f"staged-{run}-{stream}-{some[0].position}.parquet"
            content = encoded(stream, [Row(each.position, each.arrival, each.body) for each in some])
            place.put(name, content)
            before = some[0].position - 1
            pieces.append(Piece(place.name, name, stream, before, some[-1].position, len(content)))
    return pieces


def _segments(connection: Connection, stretch: Stretch) -> Iterator[list[LoggedRequest]]:
    some: list[LoggedRequest] = []
    size = 0
    for request in requests_after(connection, stretch.stream, stretch.after):
        if request.position > stretch.until:
            break
        some.append(request)
        size += len(request.body)
        if size >= _SEGMENT_BYTES or len(some) == _SEGMENT_REQUESTS:
            yield some
            some, size = [], 0
    if some:
        yield some

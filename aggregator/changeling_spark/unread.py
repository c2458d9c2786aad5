"""What of the log a run folds. Requests that lie in the database's table are written to segments, for executors."""

from collections.abc import Iterable, Iterator

from changeling_aggregator.segments import Place
from changeling_aggregator.segments.form import Row, encoded
from changeling_aggregator.store import LoggedRequest
from changeling_aggregator.store.log import requests_after
from changeling_aggregator.store.stretches import Stretch
from sqlalchemy import Connection

from .pieces import Piece

_SEGMENT_BYTES = 8 * 2**20
_SEGMENT_REQUESTS = 50_000


def pieces_of(connection: Connection, stretches: Iterable[Stretch], place: Place, run: str) -> list[Piece]:
    """The requests in these stretches. run: names the segments that are written to the place."""
    pieces: list[Piece] = []
    for stretch in stretches:
        stream, after, until, segment = stretch
        if segment is not None:
            span = segment.earliest, segment.latest
            pieces.append(Piece(segment.place, segment.name, stream, after, until, segment.size, *span))
            continue
        for some in _segments(connection, stretch):
            name = f"{run}-log-{stream}-{some[0].position}.parquet"
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

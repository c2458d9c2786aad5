"""What of the log a run folds: requests that lie in the database's table are written to segments for executors to read."""

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection

from ..segments import Place
from ..segments.form import Row, encoded
from ..store import LoggedRequest
from ..store.log import positions_unread, requests_after
from .pieces import Piece

_SEGMENT_BYTES = 8 * 2**20
_SEGMENT_REQUESTS = 50_000


def pieces_to_fold(connection: Connection, place: Place, run: str) -> list[Piece]:
    """All that is not folded. run: names the segments that are written."""
    pieces: list[Piece] = []
    for stream, after, until in positions_unread(connection):
        for some in _segments(requests_after(connection, stream, after), until):
            name = f"staged-{run}-{stream}-{some[0].position}.parquet"
            content = encoded(stream, [Row(each.position, each.arrival, each.body) for each in some])
            place.put(name, content)
            before = some[0].position - 1
            pieces.append(Piece(place.name, name, stream, before, some[-1].position, len(content)))
    return pieces


def _segments(requests: Iterable[LoggedRequest], until: int) -> Iterator[list[LoggedRequest]]:
    some: list[LoggedRequest] = []
    size = 0
    for request in requests:
        if request.position > until:
            break
        some.append(request)
        size += len(request.body)
        if size >= _SEGMENT_BYTES or len(some) == _SEGMENT_REQUESTS:
            yield some
            some, size = [], 0
    if some:
        yield some

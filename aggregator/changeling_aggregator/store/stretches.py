"""What of the log is not counted, as stretches of positions: for a fold that reads all of it at once."""

from itertools import takewhile
from typing import NamedTuple

from changeling_protocol import UnixMilliseconds
from sqlalchemy import Connection, func, select

from ..errors import SegmentLost
from .catalogue import Segment, frontier_of_all, rows_of, segments_after
from .schema import cursors, log, streams


class Stretch(NamedTuple):
    """The requests of a stream at the positions after `after`, up to `until`; segment: where they lie, None in rows."""

    stream: int
    after: int
    until: int
    segment: Segment | None = None


def unread_stretches(connection: Connection, until: UnixMilliseconds) -> list[Stretch]:
    """All that `log.unread` would give by and by, stream by stream in order.

    until: what arrived later is left out, in Unix milliseconds. Of a segment with arrivals before and after the
    frontier the file is read, to see how far it can be counted. Raises SegmentLost.
    """
    frontier = min(filter(None, (frontier_of_all(connection), UnixMilliseconds(until + 1))))
    in_segments = segments_after(connection, {})
    named = {each.stream for each in in_segments}
    query = (
        select(streams.c.id, cursors.c.position, streams.c.length)
        .join(cursors, cursors.c.stream == streams.c.id)
        .where(cursors.c.position < streams.c.length)
        .order_by(streams.c.id)
    )
    counted = {row.id: (row.position, row.length) for row in connection.execute(query)}
    found: list[Stretch] = []
    for stream, (after, length) in counted.items():
        if stream in named:
            continue
        found.append(Stretch(stream, after, _last_before(frontier, connection, stream, after, length)))
    reached = {stream: after for stream, (after, _) in counted.items()}
    for segment in in_segments:
        after = max(segment.first - 1, counted[segment.stream][0])
        last = segment.last
        if segment.latest >= frontier:
            rows = takewhile(lambda row: row.arrival < frontier, rows_of(segment, after))
            last = max((row.position for row in rows), default=after)
        if last > after:
            if after != reached[segment.stream]:
                lacking = f"position {reached[segment.stream] + 1} of stream {segment.stream}"
                raise SegmentLost(f"no segment in the catalogue has {lacking}, and {segment.name} has what comes after")
            reached[segment.stream] = last
            found.append(Stretch(segment.stream, after, last, segment))
    return sorted((each for each in found if each.until > each.after), key=lambda each: each[:2])


def _last_before(frontier: UnixMilliseconds, connection: Connection, stream: int, after: int, length: int) -> int:
    """The last position of a stream of rows whose request arrived before the frontier: arrivals never decrease."""
    beyond = select(func.min(log.c.position)).where(
        log.c.stream == stream, log.c.position > after, log.c.arrival >= frontier
    )
    first: int | None = connection.execute(beyond).scalar_one()
    return length if first is None else first - 1

"""What of the log is not counted, as stretches of positions: for a fold that reads all of it at once."""

from itertools import takewhile
from typing import NamedTuple

from sqlalchemy import Connection, select

from .catalogue import Segment, frontier_of_all, rows_of, segments_after
from .log import requests_after
from .schema import cursors, streams


class Stretch(NamedTuple):
    """The requests of a stream at the positions after `after`, up to `until`; segment: where they lie, None in rows."""

    stream: int
    after: int
    until: int
    segment: Segment | None = None


def unread_stretches(connection: Connection) -> list[Stretch]:
    """All that `log.unread` would give by and by, stream by stream in order. Raises SegmentLost.

    Of a segment with arrivals before and after the frontier the file is read, to see how far it can be counted.
    """
    frontier = frontier_of_all(connection)
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
        until = length
        if frontier is not None:
            before = takewhile(lambda each: each.arrival < frontier, requests_after(connection, stream, after))
            until = max((each.position for each in before), default=after)
        found.append(Stretch(stream, after, until))
    for segment in in_segments:
        after = max(segment.first - 1, counted[segment.stream][0])
        until = segment.last
        if frontier is not None and segment.latest >= frontier:
            rows = takewhile(lambda row: row.arrival < frontier, rows_of(segment, after))
            until = max((row.position for row in rows), default=after)
        found.append(Stretch(segment.stream, after, until, segment))
    return sorted((each for each in found if each.until > each.after), key=lambda each: each[:2])

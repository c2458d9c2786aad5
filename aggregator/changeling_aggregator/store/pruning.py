"""Deleting from the log the envelopes that are folded, once everything they count for is sealed.

That is a grace after their arrival, as a closing comes after its period has ended. Where one came before, its envelope
is held until the closing is sealed. So every closing that is not sealed can be folded again. Of segments those go of
which nothing is wanted; one of which something is held is cut, and stays until that is over.
"""

from collections.abc import Iterator, Mapping, Sequence

from changeling_protocol import UnixMilliseconds
from sqlalchemy import Connection, and_, bindparam, delete, exists, insert, select, update

from .catalogue import Segment, drop, in_segments, replace_segments, segments_of
from .schema import cursors, held, log, segments, streams

_MOST_AT_ONCE = 20_000
"""The most envelopes of a stream, or of those held, that are deleted at once: appending has to wait meanwhile."""


def hold(connection: Connection, until: Mapping[tuple[int, int], UnixMilliseconds]) -> None:
    """Keep envelopes until a time.

    until: Unix milliseconds, by the envelope's stream and position.
    """
    if until:
        rows = [{"stream": stream, "position": position, "until": end} for (stream, position), end in until.items()]
        connection.execute(insert(held), rows)


def discard(connection: Connection, requests: Sequence[tuple[int, int]]) -> None:
    """Delete requests, by stream and position, that are folded and hold nothing which could be counted again."""
    lying = in_segments(connection) if requests else set()
    drop(connection, (each for each in requests if each[0] in lying))
    if rows := [{"of": stream, "at": at} for stream, at in requests if stream not in lying]:
        named = log.c.stream == bindparam("of"), log.c.position == bindparam("at")
        connection.execute(delete(log).where(*named), rows)


def any_to_prune(connection: Connection, arrival: UnixMilliseconds, now: UnixMilliseconds) -> bool:
    """Whether `prune` would find anything."""
    ended = connection.execute(select(held.c.until).where(held.c.until < now).limit(1)).first()
    if ended is not None or any(True for _ in _over(connection, arrival, most=1)):
        return True
    return bool(_segments_over(connection, arrival) or _let_go(connection))


def prune(connection: Connection, arrival: UnixMilliseconds, now: UnixMilliseconds) -> None:
    """Delete folded envelopes that arrived before `arrival`, and those that were held until before `now`.

    Both in Unix milliseconds: now minus the longest grace, and now. Where there are many, some are left for the next
    time.
    """
    for stream, after, until in list(_over(connection, arrival, _MOST_AT_ONCE)):
        is_held = exists().where(held.c.stream == log.c.stream, held.c.position == log.c.position)
        of_range = and_(log.c.stream == stream, log.c.position > after, log.c.position <= until)
        connection.execute(delete(log).where(of_range, ~is_held))
        connection.execute(update(cursors).where(cursors.c.stream == stream).values(pruned=until))
    ended = select(held.c.stream.label("of"), held.c.position.label("at")).where(held.c.until < now)
    if rows := [dict(row) for row in connection.execute(ended.limit(_MOST_AT_ONCE)).mappings()]:
        for table in (log, held):
            named = table.c.stream == bindparam("of"), table.c.position == bindparam("at")
            connection.execute(delete(table).where(*named), rows)
    for segment in _segments_over(connection, arrival):
        this = segments.c.stream == segment.stream, segments.c.first == segment.first
        connection.execute(update(segments).where(*this).values(cut=True))
        passed = cursors.c.stream == segment.stream, cursors.c.pruned < segment.last
        connection.execute(update(cursors).where(*passed).values(pruned=segment.last))
    replace_segments(connection, _let_go(connection), None)


def _segments_over(connection: Connection, arrival: UnixMilliseconds) -> list[Segment]:
    """The segments that are folded and arrived before a time, and are not cut yet."""
    counted = segments.c.last <= cursors.c.position
    return segments_of(connection, counted, segments.c.latest < arrival, ~segments.c.cut)


def _let_go(connection: Connection) -> list[Segment]:
    """The segments that are cut, and of which nothing is held."""
    of_segment = held.c.stream == segments.c.stream, held.c.position.between(segments.c.first, segments.c.last)
    return segments_of(connection, segments.c.cut, ~exists().where(*of_segment))


def _over(connection: Connection, arrival: UnixMilliseconds, most: int) -> Iterator[tuple[int, int, int]]:
    """Per stream, which positions (after, until] are next to go: folded, not pruned, arrived before `arrival`."""
    query = select(cursors).join(streams, streams.c.id == cursors.c.stream)
    query = query.where(streams.c.place.is_(None), cursors.c.pruned < cursors.c.position)
    for row in connection.execute(query).all():
        until = min(row.position, row.pruned + most)
        of_range = and_(log.c.stream == row.stream, log.c.position > row.pruned, log.c.position <= until)
        stays = select(log.c.position).where(of_range, log.c.arrival >= arrival).order_by(log.c.position).limit(1)
        first = connection.execute(stays).scalar_one_or_none()
        until = until if first is None else first - 1
        if until > row.pruned:
            yield row.stream, row.pruned, until

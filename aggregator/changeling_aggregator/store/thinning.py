"""Deleting from the log the envelopes whose own survey's grace is over, where another survey has the log kept longer.

Each stream is looked through once for every grace that is shorter than the longest. Envelopes of surveys with a longer
one stay, until their own grace is looked for, or until `pruning` deletes them.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from changeling_protocol import MalformedBytes, SurveyId, UnixMilliseconds, head_of
from changeling_protocol.wire import decode_upload_request
from sqlalchemy import Connection, bindparam, exists, select, update

from .catalogue import kept_rows, positions_in, segments_of
from .inserting import inserted
from .pruning import discard
from .schema import cursors, held, log, segments, thinned

_MOST_AT_ONCE = 20_000
_MOST_BYTES = 64 * 2**20
_CHUNK = 500
"""The most requests, and about how many bytes of them, that are looked through at once; read so many together."""


class Spent(NamedTuple):
    """What was found in a stream for a grace, in milliseconds: these positions can go, of all up to `until`."""

    stream: int
    grace: int
    until: int
    positions: list[int]


def spent_requests(
    connection: Connection, graces: Mapping[SurveyId, int], levels: set[int], longest: int, now: UnixMilliseconds
) -> list[Spent]:
    """Which folded requests hold nothing any more that could be counted again.

    graces: of each survey, in milliseconds; others' envelopes stay. levels: the graces to look for, among them.
    longest: what `pruning` goes by. now: Unix milliseconds.
    """
    found = []
    for grace in sorted(level for level in levels if level < longest):
        for stream, after, folded in _streams(connection, grace):
            until, positions, size = after, list[int](), 0
            for position, body, kept in _requests(connection, stream, after, folded, UnixMilliseconds(now - grace)):
                if not kept and _longest(body, graces, longest) <= grace:
                    positions.append(position)
                until, size = position, size + len(body)
                if size >= _MOST_BYTES or position - after >= _MOST_AT_ONCE:
                    break
            if until > after:
                found.append(Spent(stream, grace, until, positions))
    return found


def thin(connection: Connection, found: list[Spent]) -> None:
    """Delete what `spent_requests` found, and remember how far it looked."""
    for each in found:
        discard(connection, [(each.stream, position) for position in each.positions])
        of_level = thinned.c.stream == each.stream, thinned.c.grace == each.grace
        if not inserted(connection, thinned, stream=each.stream, grace=each.grace, position=each.until):
            connection.execute(update(thinned).where(*of_level).values(position=each.until))


def _streams(connection: Connection, grace: int) -> list[tuple[int, int, int]]:
    """Each stream, the position up to which it was looked through for this grace or pruned, and the fold's."""
    looked = {row.stream: row.position for row in connection.execute(select(thinned).where(thinned.c.grace == grace))}
    rows = connection.execute(select(cursors)).all()
    return [(row.stream, max(row.pruned, looked.get(row.stream, 0)), row.position) for row in rows]


def _requests(
    connection: Connection, stream: int, after: int, until: int, before: UnixMilliseconds
) -> Iterator[tuple[int, bytes, bool]]:
    """A stream's requests in order, with whether each is held: up to the first that did not arrive before a time."""
    is_held = exists().where(held.c.stream == log.c.stream, held.c.position == log.c.position)
    query = (
        select(log.c.position, log.c.arrival, log.c.envelope, is_held.label("is_held"))
        .where(log.c.stream == stream, log.c.position > bindparam("after"), log.c.position <= until)
        .order_by(log.c.position)
        .limit(_CHUNK)
    )
    while rows := connection.execute(query, {"after": after}).all():
        for row in rows:
            if row.arrival >= before:
                return
            yield row.position, row.envelope, row.is_held
        after = rows[-1].position
    of_stream = segments.c.stream == stream, segments.c.last > after, segments.c.first <= until, ~segments.c.cut
    for segment in segments_of(connection, *of_stream):
        if segment.earliest >= before:
            return
        keeping = positions_in(connection, held, segment)
        for logged in kept_rows(connection, segment, after):
            if logged.arrival >= before or logged.position > until:
                return
            yield logged.position, logged.body, logged.position in keeping


def _longest(body: bytes, graces: Mapping[SurveyId, int], otherwise: int) -> int:
    try:
        return max(graces.get(head_of(envelope).survey, otherwise) for envelope in decode_upload_request(body))
    except (MalformedBytes, ValueError):
        return otherwise

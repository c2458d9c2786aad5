"""The log of upload requests: streams without gaps, arrivals that never decrease, a cursor per stream.

What is folded goes in time (`pruning`); what is not has no gaps. An arrival is given out in the transaction that
appends, and no other is given out until that transaction ends. So (arrival, stream, position) is the order of commits,
over all streams and however many append: whatever a reader has not seen comes after everything that it has.

A stream's requests are rows of this database, or lie in segments that its `catalogue` names; what is read is the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import NamedTuple

from changeling_protocol import UnixMilliseconds
from sqlalchemy import Connection, Engine, bindparam, case, func, insert, select, update

from ..errors import Overtaken, SegmentLost
from .catalogue import frontier_of_all, kept_rows, rows_of, segments_of
from .schema import cursors, log, segments, store, streams

_CHUNK = 500
_ADVANCE = (
    "UPDATE store SET arrival = CASE WHEN arrival + (stream > ?) > ? THEN arrival + (stream > ?) ELSE ? END, stream = ?"
    " RETURNING arrival"
)
"""What `advance_arrival` does."""
_INSERT = "INSERT INTO log (stream, position, arrival, envelope) VALUES "
_MOST_ROWS = 64


class LoggedRequest(NamedTuple):
    """An upload request as it lies in the log; compares in the order of the log.

    arrival: Unix milliseconds. position: its number in its stream, from 1 on. body: one or many envelopes, as
    `wire.encode_upload_request` makes it and as it was sent, but for envelopes that were refused.
    """

    arrival: UnixMilliseconds
    stream: int
    position: int
    body: bytes


def open_stream(connection: Connection, place: str | None = None, files: str | None = None) -> int:
    """The number of a new, empty stream, which no other process gets.

    place, files: of one that lies in segments, where they are and how the names of all of them begin.
    """
    row = {"length": 0, "place": place, "files": files}
    number: int = connection.execute(insert(streams).values(row).returning(streams.c.id)).scalar_one()
    connection.execute(insert(cursors).values(stream=number, position=0, pruned=0))
    return number


def length_of(connection: Connection, stream: int) -> int:
    """How many requests were put into a stream."""
    return int(connection.execute(select(streams.c.length).where(streams.c.id == stream)).scalar_one())


def advance_arrival(connection: Connection, stream: int, now: UnixMilliseconds) -> UnixMilliseconds:
    """The arrival for what this transaction appends to the stream: `now`, or later where that is past.

    now: Unix milliseconds. On a tie a stream with a smaller number moves on, to keep the order of commits. One
    statement reads and writes, so that of transactions at once each waits for the one before to end.
    """
    next_free = store.c.arrival + case((store.c.stream > stream, 1), else_=0)
    arrival: UnixMilliseconds = connection.execute(
        update(store)
        .values(arrival=case((next_free > now, next_free), else_=now), stream=stream)
        .returning(store.c.arrival)
    ).scalar_one()
    return arrival


def stop_appending(connection: Connection) -> None:
    """Until this transaction ends nothing is appended: what is now the log's end stays its end."""
    connection.execute(update(store).values(arrival=store.c.arrival))


def hold_arrivals(connection: Connection, now: UnixMilliseconds) -> None:
    """From here on no arrival is before `now`, in Unix milliseconds, also where arrivals are set back."""
    connection.execute(update(store).where(store.c.held < now).values(held=now))
    connection.execute(update(store).where(store.c.arrival < now).values(arrival=now, stream=0))


def set_back_arrivals(connection: Connection, now: UnixMilliseconds) -> None:
    """Give out arrivals from `now` on again, or from where they are held, where a clock that was ahead gave out later.

    now: Unix milliseconds. What is not folded arrived now, too; what is folded keeps its arrival. Call `stop_appending`
    before, in the same transaction.
    """
    back = max(now, held_arrival(connection))
    for stream, position in _behind(connection):
        ahead = log.c.stream == stream, log.c.position > position, log.c.arrival > back
        connection.execute(update(log).where(*ahead).values(arrival=back))
        for each in (segments.c.earliest, segments.c.latest):
            of_segments = segments.c.stream == stream, segments.c.last > position, each > back
            connection.execute(update(segments).where(*of_segments).values({each.name: back}))
    connection.execute(update(streams).where(streams.c.frontier > back).values(frontier=back))
    last = select(func.coalesce(func.max(streams.c.id), 0)).scalar_subquery()  # so that the next arrival is after these
    connection.execute(update(store).where(store.c.arrival > back).values(arrival=back, stream=last))


def held_arrival(connection: Connection) -> UnixMilliseconds:
    """The moment that no arrival is before, in Unix milliseconds; 0 for an empty store."""
    held: UnixMilliseconds = connection.execute(select(store.c.held)).scalar_one()
    return held


def latest_arrival(connection: Connection) -> UnixMilliseconds:
    """The latest arrival given out or held, in Unix milliseconds; 0 for an empty store."""
    arrival: UnixMilliseconds = connection.execute(select(store.c.arrival)).scalar_one()
    return arrival


def append(connection: Connection, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
    """Put the requests at the stream's end.

    stream: a number from `open_stream`. now: Unix milliseconds; they all arrive then, or later where that is past.
    """
    if connection.dialect.name == "postgresql":
        from .appending import append_at_once  # whose driver is not installed everywhere

        append_at_once(connection, stream, bodies, now)
    else:
        _append_to_sqlite(connection, stream, bodies, now)


def is_one_statement(engine: Engine, bodies: Sequence[bytes]) -> bool:
    """Whether `append` puts these requests there with one statement."""
    if engine.dialect.name != "postgresql":
        return False
    from .appending import is_little

    return is_little(bodies)


def _append_to_sqlite(connection: Connection, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
    """As `append`, on SQLite, in the driver's own words, which take a fraction of the time.

    One statement for many rows: the driver lets go of the interpreter for each statement, and then waits to get it back
    from whatever else the process is doing.
    """
    run = connection.exec_driver_sql
    arrival = run(_ADVANCE, (stream, now, stream, now, stream)).scalar_one()
    length = run("UPDATE streams SET length = length + ? WHERE id = ? RETURNING length", (len(bodies), stream))
    rows = [*enumerate(bodies, length.scalar_one() - len(bodies) + 1)]
    while rows:  # by powers of two, as the driver keeps few statements prepared
        count = min(1 << len(rows).bit_length() - 1, _MOST_ROWS)
        values = [value for position, body in rows[:count] for value in (stream, position, arrival, body)]
        run(_INSERT + ", ".join(["(?, ?, ?, ?)"] * count), (*values,))
        rows = rows[count:]


def unread(
    connection: Connection,
    most: int,
    most_bytes: int,
    after: Mapping[int, int] | None = None,
    until: UnixMilliseconds | None = None,
) -> list[LoggedRequest]:
    """The next requests that the fold has not counted, in the log's order.

    after: the positions by stream of what is being counted, which is left out. until: what arrived later, in Unix
    milliseconds, is left out; None for nothing.
    Ends with `most` of them, or with the one that reaches `most_bytes`; empty at the log's end, or where what comes
    next may have others before it that only a server's journal has.
    """
    requests, size, frontier = [], 0, frontier_of_all(connection)
    behind = {**dict(_behind(connection)), **(after or {})}
    for logged in merge(*(requests_after(connection, *each) for each in behind.items())):
        if (frontier is not None and logged.arrival >= frontier) or (until is not None and logged.arrival > until):
            break
        requests.append(logged)
        size += len(logged.body)
        if len(requests) == most or size >= most_bytes:
            break
    return requests


def _behind(connection: Connection) -> list[tuple[int, int]]:
    """The streams that the fold has not counted to their end, with its position in each."""
    rows = connection.execute(
        select(streams.c.id, cursors.c.position)
        .join(cursors, cursors.c.stream == streams.c.id)
        .where(cursors.c.position < streams.c.length)
    )
    return [(row.id, row.position) for row in rows]


def requests_after(
    connection: Connection, stream: int, position: int, at_once: int = _CHUNK
) -> Iterator[LoggedRequest]:
    """The stream's requests after a position, in order; read so many at once."""
    query = (
        select(log.c.arrival, log.c.stream, log.c.position, log.c.envelope)
        .where(log.c.stream == stream, log.c.position > bindparam("after"))
        .order_by(log.c.position)
        .limit(at_once)
    )
    while rows := connection.execute(query, {"after": position}).all():
        yield from map(LoggedRequest._make, rows)
        position = rows[-1].position
    for segment in segments_of(connection, segments.c.stream == stream, segments.c.last > position):
        for row in rows_of(segment, position):
            if row.position != position + 1:
                break
            position = row.position
            yield LoggedRequest(row.arrival, stream, position, row.body)
        if position != segment.last:  # of what is not counted a segment has all, or was changed
            raise SegmentLost(f"segment {segment.name} of {segment.place} lacks position {position + 1} of its stream")


def folded_requests(connection: Connection, at_once: int = _CHUNK) -> Iterator[Sequence[LoggedRequest]]:
    """What the fold has counted and what is not pruned, some at a time, stream by stream in order."""
    for stream, end in connection.execute(select(cursors.c.stream, cursors.c.position)).all():
        kept = takewhile(lambda logged: logged.position <= end, kept_requests(connection, stream, at_once))  # noqa: B023
        while some := [*islice(kept, at_once)]:
            yield some


def kept_requests(connection: Connection, stream: int, at_once: int = _CHUNK) -> Iterator[LoggedRequest]:
    """A stream's requests that are not pruned, in order."""
    in_rows = connection.execute(select(func.count()).select_from(log).where(log.c.stream == stream)).scalar_one()
    if in_rows:
        yield from requests_after(connection, stream, 0, at_once)
    else:
        for segment in segments_of(connection, segments.c.stream == stream):
            for row in kept_rows(connection, segment):
                yield LoggedRequest(row.arrival, stream, row.position, row.body)


def cursors_after(requests: Sequence[LoggedRequest]) -> dict[int, tuple[int, int]]:
    """Per stream, the cursor before and after these requests, which `unread` gave."""
    before = {each.stream: each.position - 1 for each in reversed(requests)}
    return {stream: (before[stream], position) for stream, position in positions_after(requests).items()}


def positions_after(requests: Sequence[LoggedRequest]) -> dict[int, int]:
    """The last position of each stream among these requests."""
    return {each.stream: each.position for each in requests}


def advance_cursors(connection: Connection, moves: Mapping[int, tuple[int, int]]) -> None:
    """Move each stream's cursor from where it was read to after what was counted.

    Of two folders that read at once one waits here for the other, as both have read the log's first unread request.
    Raises Overtaken where another folder moved a cursor meanwhile: then nothing of this transaction may stay.
    """
    for stream, (before, after) in sorted(moves.items()):
        moved = connection.execute(
            update(cursors).where(cursors.c.stream == stream, cursors.c.position == before).values(position=after)
        )
        if moved.rowcount != 1:
            raise Overtaken(f"another folder has counted stream {stream} beyond {before}")


def stop_folding(connection: Connection) -> None:
    """Until this transaction ends nothing is folded: it reads what is counted by now, and no part of a batch."""
    connection.execute(select(cursors.c.stream).order_by(cursors.c.stream).with_for_update()).all()


def counted_positions(connection: Connection) -> dict[int, int]:
    """The position up to which the fold has counted each stream."""
    return {row.stream: row.position for row in connection.execute(select(cursors.c.stream, cursors.c.position))}


def folded(connection: Connection) -> int:
    """How many requests the fold has counted, since the store was made."""
    return int(connection.execute(select(func.coalesce(func.sum(cursors.c.position), 0))).scalar_one())


def unfolded(connection: Connection) -> int:
    """How many requests the fold has not counted."""
    query = select(func.coalesce(func.sum(streams.c.length - cursors.c.position), 0))
    return int(connection.execute(query.join(cursors, cursors.c.stream == streams.c.id)).scalar_one())


def first_unfolded(connection: Connection) -> UnixMilliseconds | None:
    """The arrival of the first request that the fold has not counted, or an earlier one; None at the log's end.

    Of a segment the earliest arrival is told, so that no file is read for this.
    """
    return min((_next_arrival(connection, *each) for each in _behind(connection)), default=None)


def _next_arrival(connection: Connection, stream: int, position: int) -> UnixMilliseconds:
    of_segments = segments.c.stream == stream, segments.c.last > position
    earliest = connection.execute(select(segments.c.earliest).where(*of_segments).order_by(segments.c.first).limit(1))
    arrival: UnixMilliseconds | None = earliest.scalar_one_or_none()
    return next(requests_after(connection, stream, position, 1)).arrival if arrival is None else arrival

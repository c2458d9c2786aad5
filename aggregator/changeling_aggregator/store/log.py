"""The log of envelopes: streams without gaps, arrivals that never decrease, a cursor per stream.

What is folded goes in time (`pruning`); what is not has no gaps.
Arrivals are given out inside the write transaction so that (arrival, stream, position) is the order of commits,
over all streams: whatever a reader has not seen comes after everything it has.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, select, update

from ..errors import Overtaken
from .schema import cursors, log, store, streams

_CHUNK = 500


class LogEntry(NamedTuple):
    """One envelope as appended; compares in the order of the log. arrival: Unix milliseconds."""

    arrival: int
    stream: int
    position: int
    envelope: bytes


def open_stream(connection: Connection) -> int:
    """The number of a new, empty stream."""
    number: int = connection.execute(select(func.coalesce(func.max(streams.c.id), 0) + 1)).scalar_one()
    connection.execute(insert(streams).values(id=number, length=0))
    connection.execute(insert(cursors).values(stream=number, position=0, pruned=0))
    return number


def advance_arrival(connection: Connection, stream: int, now: int) -> int:
    """The arrival for what this transaction appends to the stream: `now`, or later where that is past.

    now: Unix milliseconds. On a tie a stream with a smaller number moves on, to keep the order of commits.
    """
    latest = connection.execute(select(store.c.arrival, store.c.stream)).one()
    arrival: int = max(now, latest.arrival + (latest.stream > stream))
    connection.execute(update(store).values(arrival=arrival, stream=stream))
    return arrival


def hold_arrivals(connection: Connection, now: int) -> None:
    """From here on no arrival is before `now`, in Unix milliseconds."""
    connection.execute(update(store).where(store.c.arrival < now).values(arrival=now, stream=0))


def latest_arrival(connection: Connection) -> int:
    """Unix milliseconds; 0 for an empty store."""
    arrival: int = connection.execute(select(store.c.arrival)).scalar_one()
    return arrival


def append(connection: Connection, stream: int, envelopes: Sequence[bytes], now: int) -> None:
    """Put the envelopes at the stream's end."""
    arrival = advance_arrival(connection, stream, now)
    length: int = connection.execute(select(streams.c.length).where(streams.c.id == stream)).scalar_one()
    connection.execute(
        insert(log),
        [
            {"stream": stream, "position": position, "arrival": arrival, "envelope": envelope}
            for position, envelope in enumerate(envelopes, length + 1)
        ],
    )
    connection.execute(update(streams).where(streams.c.id == stream).values(length=length + len(envelopes)))


def unread(connection: Connection, most: int, most_bytes: int) -> list[LogEntry]:
    """The next envelopes that the fold has not counted, in the log's order.

    Ends with `most` of them, or with the one that reaches `most_bytes`; empty at the log's end.
    """
    entries, size = [], 0
    for entry in merge(*(entries_after(connection, stream, position) for stream, position in _behind(connection))):
        entries.append(entry)
        size += len(entry.envelope)
        if len(entries) == most or size >= most_bytes:
            break
    return entries


def _behind(connection: Connection) -> list[tuple[int, int]]:
    """The streams that the fold has not counted to their end, with its position in each."""
    rows = connection.execute(
        select(streams.c.id, cursors.c.position)
        .join(cursors, cursors.c.stream == streams.c.id)
        .where(cursors.c.position < streams.c.length)
    )
    return [(row.id, row.position) for row in rows]


def entries_after(connection: Connection, stream: int, position: int, at_once: int = _CHUNK) -> Iterator[LogEntry]:
    """The stream's envelopes after a position, in order; read so many at once."""
    query = (
        select(log.c.arrival, log.c.stream, log.c.position, log.c.envelope)
        .where(log.c.stream == stream, log.c.position > bindparam("after"))
        .order_by(log.c.position)
        .limit(at_once)
    )
    while rows := connection.execute(query, {"after": position}).all():
        yield from (LogEntry(*row) for row in rows)
        position = rows[-1].position


def cursors_after(entries: Sequence[LogEntry]) -> dict[int, tuple[int, int]]:
    """Per stream, the cursor before and after these entries, which `unread` gave."""
    moves: dict[int, tuple[int, int]] = {}
    for _, stream, position, _ in entries:
        before, _ = moves.get(stream, (position - 1, 0))
        moves[stream] = before, position
    return moves


def advance_cursors(connection: Connection, moves: Mapping[int, tuple[int, int]]) -> None:
    """Move each stream's cursor from where it was read to after what was counted.

    Raises Overtaken where another folder moved one meanwhile: then nothing of this transaction may stay.
    """
    for stream, (before, after) in moves.items():
        moved = connection.execute(
            update(cursors).where(cursors.c.stream == stream, cursors.c.position == before).values(position=after)
        )
        if moved.rowcount != 1:
            raise Overtaken(f"another folder has counted stream {stream} beyond {before}")


def unfolded(connection: Connection) -> int:
    """How many envelopes the fold has not counted."""
    count: int = connection.execute(
        select(func.coalesce(func.sum(streams.c.length - cursors.c.position), 0)).join(
            cursors, cursors.c.stream == streams.c.id
        )
    ).scalar_one()
    return count


def first_unfolded(connection: Connection) -> int | None:
    """The arrival of the first envelope that the fold has not counted; None at the log's end."""
    first = (next(entries_after(connection, stream, position, 1)) for stream, position in _behind(connection))
    return min((entry.arrival for entry in first), default=None)


def whole_log(connection: Connection) -> Iterator[LogEntry]:
    """Every envelope not pruned, in the log's order."""
    numbers = connection.execute(select(streams.c.id)).scalars().all()
    return merge(*(entries_after(connection, number, 0) for number in numbers))

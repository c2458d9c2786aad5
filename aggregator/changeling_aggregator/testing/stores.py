"""Doors to a store that only tests may use: its tables as they are, and streams whose requests lie in files."""

from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any

from changeling_protocol import UnixMilliseconds
from sqlalchemy import text

from ..segments import place_at
from ..store import Store

COUNTED = ("tallies", "attendance", "refusals")
"""The tables with what a fold counts; the same on every store and by every engine."""


def sql(store: Store, statement: str, **values: object) -> list[tuple[Any, ...]]:
    """The rows that a statement gives, if it gives any, in a transaction of its own. values: of its `:names`."""
    with store.writing() as connection:
        found = connection.execute(text(statement), values)
        return [tuple(row) for row in found] if found.returns_rows else []


def counted_rows(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """What is counted, to the byte: the rows of each such table, in order."""
    return {table: sorted(sql(store, f"SELECT * FROM {table}")) for table in COUNTED}  # noqa: S608


def open_stream_at(store: Store, place: str) -> Callable[[Sequence[bytes], UnixMilliseconds], None]:
    """A new stream in segments at a place; returns what appends requests to it, at a time in Unix milliseconds."""
    from ..segments.form import Row
    from ..store import log
    from ..store.catalogue import Segment, add_segment
    from ..store.rolling import segment_name, write_segment

    files = token_hex(8)
    with store.writing() as connection:
        stream = log.open_stream(connection, place, files)

    def append(bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        with store.writing() as connection:
            arrival = log.advance_arrival(connection, stream, now)
            first = log.length_of(connection, stream) + 1
            rows = [Row(position, arrival, body) for position, body in enumerate(bodies, first)]
            name = segment_name(files, rows[0].position)
            written = write_segment(place_at(place), stream, name, rows)
            add_segment(
                connection, Segment(stream, first, rows[-1].position, arrival, arrival, place, name, written.size)
            )

    return append

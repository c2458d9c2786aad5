"""Doors to a store that only tests may use: its tables as they are, and streams whose requests lie in files."""

from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any

from changeling_protocol import UnixMilliseconds
from sqlalchemy import text

from ..segments import Row, place_at
from ..store import Store, segment_name, written_segment

COUNTED = ("tallies", "attendance", "refusals")
"""The tables with what a fold counts; the same on every store and by every engine."""


def sql(store: Store, statement: str, **values: object) -> list[tuple[Any, ...]]:
    """The rows that a statement gives, if it gives any, in a transaction of its own. values: of its `:names`."""
    with store.transaction() as writing:
        found = writing._connection.execute(text(statement), values)
        return [tuple(row) for row in found] if found.returns_rows else []


def counted_rows(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """What is counted, to the byte: the rows of each such table, in order."""
    return {table: sorted(sql(store, f"SELECT * FROM {table}")) for table in COUNTED}  # noqa: S608


def open_stream_at(store: Store, place: str) -> Callable[[Sequence[bytes], UnixMilliseconds], None]:
    """A new stream in segments at a place; returns what appends requests to it, at a time in Unix milliseconds."""
    prefix = token_hex(8)
    with store.transaction() as writing:
        stream = writing.open_stream(None, place, prefix)

    def append(bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        with store.transaction() as writing:
            arrival, first = writing.advance_arrival(stream, now), writing.length_of(stream) + 1
            rows = [Row(position, arrival, body) for position, body in enumerate(bodies, first)]
            segment = written_segment(place_at(place), segment_name(prefix, first), stream, rows, arrival)
            assert writing.add_segment(segment)  # noqa: S101

    return append

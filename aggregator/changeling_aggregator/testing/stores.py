"""Doors to a store that only tests may use: its tables as they are, and one whose log lies in segments."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from changeling_protocol import MalformedBytes, SurveyId, UnixMilliseconds, head_of
from changeling_protocol.wire import decode_upload_request
from sqlalchemy import text

from ..segments import Folder, SegmentRow, place_at
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
    return {table: sorted(sql(store, f"SELECT * FROM {table}")) for table in COUNTED}


def open_stream_at(store: Store, place: str) -> Callable[[Sequence[bytes], UnixMilliseconds], None]:
    """A new stream in segments at a place; returns what appends requests to it, at a time in Unix milliseconds."""
    with store.transaction() as writing:
        stream = writing.open_stream(None, place, token_hex(8))
    return partial(append_segment, store, stream)


def append_segment(store: Store, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
    """Put requests into a segment at the end of a stream that lies in segments. now: Unix milliseconds."""
    ((place, prefix),) = sql(store, "SELECT place, prefix FROM streams WHERE id = :stream", stream=stream)
    with store.transaction() as writing:
        arrival, first = writing.advance_arrival(stream, now), writing.length_of(stream) + 1
        rows = [SegmentRow(position, arrival, body) for position, body in enumerate(bodies, first)]
        name = segment_name(prefix, first)
        segment = written_segment(place_at(place), name, stream, rows, arrival, _surveys_in(bodies))
        assert writing.add_segment(segment)


def _surveys_in(bodies: Sequence[bytes]) -> set[SurveyId]:
    """The surveys that these requests are of; none where one of them is no upload."""
    try:
        return {head_of(envelope).survey for body in bodies for envelope in decode_upload_request(body)}
    except MalformedBytes:
        return set()


class SegmentedStore(Store):
    """A store whose streams lie in segments, each append in one.

    segments: their place, as `checked_place` gives it; None for a folder beside a store that is a file.
    """

    segments: str | None = None

    def open_stream(self, survey: SurveyId | None = None) -> int:
        """As a store's, in segments."""
        del survey
        place = self.segments or str(Path(self.place).absolute().parent / "segments")
        if "://" not in place:
            Folder(Path(place), make=True)
        with self.transaction() as writing:
            return writing.open_stream(None, place, token_hex(8))

    def append(self, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        """As a store's, in segments."""
        append_segment(self, stream, bodies, now)

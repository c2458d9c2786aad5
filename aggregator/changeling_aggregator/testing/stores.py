"""Doors to a store that only tests may use: its tables as they are, and one whose log lies in segments."""

from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from changeling_protocol import SurveyId, UnixMilliseconds
from sqlalchemy import text

from ..segments import Folder, Place, Row, place_at
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


class SegmentedStore(Store):
    """A store whose streams lie in segments, each append in one.

    segments: their place, as `checked_place` gives it; None for a folder beside a store that is a file.
    """

    segments: str | None = None

    def open_stream(self, survey: SurveyId | None) -> int:
        """As a store's, in segments."""
        del survey
        with self.transaction() as writing:
            return writing.open_stream(None, self._segments.name, token_hex(8))

    def append(self, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        """As a store's, in segments."""
        ((prefix,),) = sql(self, "SELECT prefix FROM streams WHERE id = :stream", stream=stream)
        with self.transaction() as writing:
            arrival, first = writing.advance_arrival(stream, now), writing.length_of(stream) + 1
            rows = [Row(position, arrival, body) for position, body in enumerate(bodies, first)]
            segment = written_segment(self._segments, segment_name(prefix, first), stream, rows, arrival)
            assert writing.add_segment(segment)

    @property
    def _segments(self) -> Place:
        if self.segments is not None and "://" in self.segments:
            return place_at(self.segments)
        return Folder(Path(self.segments or Path(self.place).absolute().parent / "segments"), make=True)

"""Appending to segments as `store.log.append` does to rows: a file and a line of the catalogue for each call."""

from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex

import pytest
from changeling_aggregator.segments import place_at
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.segments.form import Row
from changeling_aggregator.store import log
from changeling_aggregator.store.catalogue import Segment, add_segment
from changeling_aggregator.store.rolling import segment_name, write_segment
from changeling_aggregator.store.schema import streams
from sqlalchemy import Connection, select


def lie_in_segments(monkeypatch: pytest.MonkeyPatch, folder: Path, *modules: object) -> None:
    """Have what these modules know as `open_stream` and `append` use segments in a folder."""
    place = Folder(folder.absolute(), make=True)

    def open_stream(connection: Connection) -> int:
        return log.open_stream(connection, place.name, token_hex(8))

    for module in modules:
        monkeypatch.setattr(module, "open_stream", open_stream)
        monkeypatch.setattr(module, "append", append)


def append(connection: Connection, stream: int, bodies: Sequence[bytes], now: int) -> None:
    """As `store.log.append`, to a stream that lies in segments."""
    arrival = log.advance_arrival(connection, stream, now)
    row = connection.execute(select(streams).where(streams.c.id == stream)).one()
    rows = [Row(position, arrival, body) for position, body in enumerate(bodies, row.length + 1)]
    place = place_at(row.place)
    written = write_segment(place, stream, segment_name(row.files, rows[0].position), rows)
    last = rows[-1].position
    segment = Segment(stream, row.length + 1, last, arrival, arrival, place.name, written.name, written.size)
    assert add_segment(connection, segment)

"""A segment: one Parquet file with requests of one stream, in order of position, that is never changed.

A row is a request as it was sent. Bodies are ciphertext, which no compression makes smaller. Each page has a checksum.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from changeling_protocol import UnixMilliseconds

SCHEMA = pa.schema(
    [
        pa.field("stream", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("arrival", pa.int64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""arrival: Unix milliseconds; what the catalogue says of the segment limits it (`catalogue.Segment`)."""

_ROWS_AT_ONCE = 1000
"""So many become objects at a time: who reads a batch leaves the rest of the segment."""


class Row(NamedTuple):
    """A request in a segment. position: its number in its stream. arrival: Unix milliseconds."""

    position: int
    arrival: UnixMilliseconds
    body: bytes


def encoded(stream: int, rows: Sequence[Row]) -> bytes:
    """The file's bytes."""
    columns = [
        pa.array([stream] * len(rows), pa.int32()),
        pa.array([row.position for row in rows], pa.int64()),
        pa.array([row.arrival for row in rows], pa.int64()),
        pa.array([row.body for row in rows], pa.binary()),
    ]
    output = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=SCHEMA),
        output,
        compression="none",
        use_dictionary=["stream", "arrival"],
        write_statistics=["position", "arrival"],
        store_schema=False,
        write_page_checksum=True,
    )
    content: bytes = output.getvalue().to_pybytes()
    return content


def decoded(content: bytes) -> pa.Table:
    """The table in a file's bytes. Raises ValueError where they are no segment, or are damaged."""
    try:
        table = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read(use_threads=False)
        return table.cast(SCHEMA) if table.schema != SCHEMA else table
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"no segment, or a damaged one: {error}") from error


def check_rows(table: pa.Table, stream: int, first: int, last: int) -> None:
    """Raises ValueError where a table has others than rows of this stream between these positions, in order."""
    position = table["position"].to_numpy()
    of_stream = (table["stream"].to_numpy() == stream).all()
    if not (of_stream and ((first <= position) & (position <= last)).all() and (position[1:] > position[:-1]).all()):
        raise ValueError(f"it holds others than positions {first} to {last} of stream {stream}")


def rows_after(table: pa.Table, position: int, arrivals: tuple[UnixMilliseconds, UnixMilliseconds]) -> Iterator[Row]:
    """The table's rows after a position, in order. arrivals: the earliest and the latest; others count as these."""
    first = int((table["position"].to_numpy() <= position).sum())
    for at in range(first, len(table), _ROWS_AT_ONCE):
        part = table.slice(at, _ROWS_AT_ONCE)
        arrived = part["arrival"].to_numpy().clip(*arrivals).tolist()
        yield from map(Row, part["position"].to_pylist(), arrived, part["body"].to_pylist())

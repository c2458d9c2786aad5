"""Parquet files at a place: segments of the log, and ids that were counted. None is ever changed.

A row of a segment is a request as it was sent. Bodies are ciphertext, which no compression makes smaller. Each page has
a checksum.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from changeling_protocol import UnixMilliseconds

from . import LoggedRequest, Place

SCHEMA = pa.schema(
    [
        pa.field("stream", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("arrival", pa.int64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""arrival: Unix milliseconds; what the catalogue says of the segment limits it (`store.Segment`)."""

_ROWS_AT_ONCE = 1000
"""The rows that become objects at a time: who reads a batch leaves the rest of the segment."""

_ID_BYTES = 16
_ID_SCHEMA = pa.schema(
    [pa.field("period", pa.int32(), nullable=False), pa.field("id", pa.binary(_ID_BYTES), nullable=False)]
)
_IDS_AT_ONCE = 2**17


def encoded(rows: Sequence[LoggedRequest]) -> bytes:
    """The file's bytes."""
    columns = [pa.array([getattr(row, kind.name) for row in rows], kind.type) for kind in SCHEMA]
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


def rows_after(
    table: pa.Table, position: int, arrivals: tuple[UnixMilliseconds, UnixMilliseconds]
) -> Iterator[LoggedRequest]:
    """The table's rows after a position, in order. arrivals: the earliest and the latest; others count as these."""
    first = int((table["position"].to_numpy() <= position).sum())
    for at in range(first, len(table), _ROWS_AT_ONCE):
        part = table.slice(at, _ROWS_AT_ONCE)
        arrived = part["arrival"].to_numpy().clip(*arrivals).tolist()
        yield from map(LoggedRequest, arrived, *(part[name].to_pylist() for name in ("stream", "position", "body")))


def write_ids(place: Place, name: str, ids: Mapping[int, bytes]) -> int:
    """Write ids, by period sorted and laid end to end; durable when this returns how many. Raises Unwritable."""
    periods = sorted(ids)
    sizes = [len(ids[period]) // _ID_BYTES for period in periods]
    packed = pa.py_buffer(b"".join(ids[period] for period in periods))
    columns = [
        pa.array(np.repeat(np.array(periods, np.int32), sizes)),
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(_ID_BYTES), sum(sizes), [None, packed]),
    ]
    output = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=_ID_SCHEMA),
        output,
        compression="none",
        use_dictionary=["period"],
        row_group_size=_IDS_AT_ONCE,
        write_page_checksum=True,
    )
    place.put(name, output.getvalue().to_pybytes())
    return sum(sizes)


def read_ids(place: Place, name: str, after: int) -> Iterator[tuple[int, bytes]]:
    """A file's ids in pieces, sorted and laid end to end, with their periods: those of periods after `after`.

    Raises SegmentLost, or ValueError where the file is damaged.
    """
    try:
        reader = pq.ParquetFile(pa.BufferReader(place.get(name)), page_checksum_verification=True)
        for group in range(reader.num_row_groups):
            table = reader.read_row_group(group, use_threads=False)
            period = table["period"].to_numpy()
            column = table["id"].combine_chunks()
            ids = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, _ID_BYTES)[column.offset :]
            begins = np.flatnonzero(np.r_[True, period[1:] != period[:-1]][: len(period)]).tolist()
            for begin, end in pairwise([*begins, len(period)]):
                if period[begin] > after:
                    yield int(period[begin]), ids[begin:end].tobytes()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name} is no file of ids, or a damaged one: {error}") from error

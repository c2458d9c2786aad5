"""The ids that were counted, as Parquet files at a place: each with a survey's ids, sorted, by period."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .place import Place

_ID_BYTES = 16
_SCHEMA = pa.schema(
    [pa.field("period", pa.int32(), nullable=False), pa.field("id", pa.binary(_ID_BYTES), nullable=False)]
)
_ROWS_AT_ONCE = 2**17


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
        pa.Table.from_arrays(columns, schema=_SCHEMA),
        output,
        compression="none",
        use_dictionary=["period"],
        row_group_size=_ROWS_AT_ONCE,
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

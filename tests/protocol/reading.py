"""The reports in an upload's columns, one by one: what the server's fold reads as columns."""

from collections.abc import Iterator

from changeling_protocol import MalformedBytes, Report, Track
from changeling_protocol.randomizers import symbol_bytes
from changeling_protocol.upload import NODE_BYTES, REPORT_ID_BYTES, row_bytes


def read_columns(track: Track, number: int, columns: bytes) -> Iterator[Report]:
    """The reports in a track's columns, without the rows that are padding. Raises MalformedBytes."""
    n, rest = divmod(len(columns), row_bytes(track))
    if rest:
        raise MalformedBytes(f"columns of {len(columns)} bytes do not hold rows of {row_bytes(track)}")
    ids_at, symbols_at = n * NODE_BYTES, n * (NODE_BYTES + REPORT_ID_BYTES)
    width = symbol_bytes(track.randomizer)
    for i in range(n):
        node = int.from_bytes(columns[i * NODE_BYTES : (i + 1) * NODE_BYTES])
        if node:
            id_ = columns[ids_at + i * REPORT_ID_BYTES : ids_at + (i + 1) * REPORT_ID_BYTES]
            symbol = int.from_bytes(columns[symbols_at + i * width : symbols_at + (i + 1) * width])
            yield Report(number, node, id_, symbol)

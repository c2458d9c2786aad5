"""A fleet's requests as a log holds them, in Parquet files: for a fold to be tried without a server."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from .blocks import milliseconds

STREAM = 1
"""All requests are of one stream, as of one server."""
SEGMENT_REQUESTS = 20_000


def write_segments(requests: Iterable[tuple[float, bytes]], folder: Path) -> int:
    """Writes files of SEGMENT_REQUESTS rows: stream, position (from 1 on), arrival (Unix ms, rising), and body.

    requests: when each arrives, in Unix seconds, rising, and its body. folder: a new one. Returns how many there are.
    Raises OSError.
    """
    import polars as pl  # which takes long to import

    schema = {"stream": pl.Int32, "position": pl.Int64, "arrival": pl.Int64, "body": pl.Binary}
    folder.mkdir(parents=True)
    coming = enumerate(requests, 1)
    written = 0
    while rows := list(islice(coming, SEGMENT_REQUESTS)):
        columns = {
            "stream": [STREAM] * len(rows),
            "position": [position for position, _ in rows],
            "arrival": [milliseconds(due) for _, (due, _) in rows],
            "body": [body for _, (_, body) in rows],
        }
        pl.DataFrame(columns, schema).write_parquet(folder / f"segment-{written // SEGMENT_REQUESTS:06}.parquet")
        written += len(rows)
    return written

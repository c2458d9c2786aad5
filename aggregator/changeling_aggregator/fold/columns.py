"""From the bytes of a track's columns to a frame, all uploads at once, without an object per report."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from changeling_protocol import Track
from changeling_protocol.randomizers import symbol_bytes
from changeling_protocol.upload import NODE_BYTES, REPORT_ID_BYTES, row_bytes
from numpy.typing import NDArray

from .opening import Piece

ID = ("high", "low")
"""A report id as two unsigned 64-bit columns, big-endian: sorting by them sorts the bytes."""


def report_frame(track: Track, pieces: Sequence[Piece]) -> pl.DataFrame:
    """The reports of these pieces, in order, without the rows that are padding.

    Columns: node, the id as high and low, symbol, arrival in Unix milliseconds, and piece, its number in `pieces`.
    """
    rows = [len(piece.columns) // row_bytes(track) for piece in pieces]
    ids_end = NODE_BYTES + REPORT_ID_BYTES
    nodes = b"".join(piece.columns[: NODE_BYTES * n] for piece, n in zip(pieces, rows, strict=True))
    ids = b"".join(piece.columns[NODE_BYTES * n : ids_end * n] for piece, n in zip(pieces, rows, strict=True))
    symbols = b"".join(piece.columns[ids_end * n :] for piece, n in zip(pieces, rows, strict=True))
    return (
        id_frame(ids)
        .with_columns(
            node=pl.Series(np.frombuffer(nodes, ">u4").astype(np.int64)),
            symbol=pl.Series(_integers(symbols, symbol_bytes(track.randomizer))),
            arrival=pl.Series(np.repeat(np.array([piece.logged.arrival for piece in pieces], np.int64), rows)),
            piece=pl.Series(np.repeat(np.arange(len(pieces)), rows)),
        )
        .filter(pl.col("node") != 0)
    )


def id_frame(ids: bytes) -> pl.DataFrame:
    """Ids laid end to end, as a frame of ID columns."""
    halves = np.frombuffer(ids, ">u8").reshape(-1, 2).astype(np.uint64)
    return pl.DataFrame({"high": halves[:, 0], "low": halves[:, 1]})


def id_bytes(frame: pl.DataFrame) -> bytes:
    """The frame's ids, sorted and laid end to end."""
    return frame.select(ID).sort(ID).to_numpy().astype(">u8").tobytes()


def _integers(packed: bytes, width: int) -> NDArray[np.uint64]:
    """Big-endian integers of 1 to 8 bytes each."""
    wide = np.zeros((len(packed) // width, 8), np.uint8)
    wide[:, 8 - width :] = np.frombuffer(packed, np.uint8).reshape(-1, width)
    return wide.view(">u8")[:, 0].astype(np.uint64)

"""From the bytes of uploads' columns to rows, all uploads of a survey at once, without an object per closing or report.

A column has a row for everything that could be answered in the upload's span. So where a row stands says which closing
or node it is about, and from a report's row follows the row of its closing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from changeling_protocol import ReleasePlan, Track
from changeling_protocol.randomizers import symbol_bytes
from changeling_protocol.upload import CLOSING_ID_BYTES, STANDING_BYTES, closings
from numpy.typing import NDArray

from .opening import OpenedUpload

ID = ("high", "low")
"""A closing's id as two unsigned 64-bit columns, big-endian: sorting by them sorts the bytes."""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ReportRows:
    """What is written in a track's columns, without rows that say nothing.

    closing: the row of the closing that each report belongs to, in `UploadRows.closings`. node: the number of its node
    in the track. symbol: may be out of range.
    """

    closing: Integers
    node: Integers
    symbol: NDArray[np.uint64]


class UploadRows:
    """The uploads of one survey, in rows.

    closings: a row for each closing in each upload's span, upload by upload, each in the order of periods. Columns: row
    (its number here), upload (its number in `uploads`), group, arrival in Unix milliseconds, period, the id as high and
    low, standing (raised by one; 0 if the closing is not answered), and stratum.
    """

    def __init__(self, plan: ReleasePlan, uploads: Sequence[OpenedUpload]) -> None:
        self._plan, self._uploads = plan, uploads
        self._starts, self._ends = (
            np.array([getattr(upload.columns.span, end) for upload in uploads], np.int64) for end in ("start", "end")
        )
        self._groups = np.array([upload.columns.group for upload in uploads], np.int64)
        self._periods = _closing_periods(plan)
        self._first = np.searchsorted(self._periods, self._starts, side="right")
        """For each upload the place of its first closing among the plan's."""
        self._rows = np.searchsorted(self._periods, self._ends, side="right") - self._first
        self.closings = self._closings()

    @property
    def groups(self) -> list[int]:
        """The groups that any upload is of, rising."""
        return [int(group) for group in np.unique(self._groups)]

    def reports(self, group: int, place: int) -> ReportRows:
        """The reports on one track. place: the track's place in its group."""
        track = self._plan.groups[group].tracks[place]
        mine = np.flatnonzero(self._groups == group)
        written = _integers(
            b"".join(self._uploads[upload].columns.symbols[place] for upload in mine.tolist()),
            symbol_bytes(track.randomizer),
        )
        first, rows = _nodes(track, self._starts[mine], self._ends[mine])
        node, upload = _ranges(first, rows), np.repeat(mine, rows)
        said = np.flatnonzero(written)
        node, upload = node[said], upload[said]
        closing = np.searchsorted(self._periods, track.first + node * track.width) - self._first[upload]
        return ReportRows(_begins(self._rows)[upload] + closing, node, written[said] - np.uint64(1))

    def _closings(self) -> pl.DataFrame:
        rows, n = self._rows, int(self._rows.sum())
        columns = [upload.columns.closings for upload in self._uploads]
        ends = np.stack([CLOSING_ID_BYTES * rows, (CLOSING_ID_BYTES + STANDING_BYTES) * rows]).T.tolist()
        ids, standings, strata = (
            b"".join(cut)
            for cut in zip(
                *((each[:a], each[a:b], each[b:]) for each, (a, b) in zip(columns, ends, strict=True)), strict=True
            )
        )
        arrivals = np.array([upload.logged.arrival for upload in self._uploads], np.int64)
        return id_frame(ids).with_columns(
            row=pl.Series(np.arange(n)),
            upload=pl.Series(np.repeat(np.arange(len(rows)), rows)),
            group=pl.Series(np.repeat(self._groups, rows)),
            arrival=pl.Series(np.repeat(arrivals, rows)),
            period=pl.Series(self._periods[_ranges(self._first, rows)]),
            standing=pl.Series(np.frombuffer(standings, np.uint8).astype(np.int64)),
            stratum=pl.Series(np.frombuffer(strata, ">u2").astype(np.int64)),
        )


def id_frame(ids: bytes) -> pl.DataFrame:
    """Ids laid end to end, as a frame of ID columns."""
    halves = np.frombuffer(ids, ">u8").reshape(-1, 2).astype(np.uint64)
    return pl.DataFrame({"high": halves[:, 0], "low": halves[:, 1]})


def id_bytes(frame: pl.DataFrame) -> bytes:
    """The frame's ids, sorted and laid end to end."""
    return frame.select(ID).sort(ID).to_numpy().astype(">u8").tobytes()


@lru_cache(maxsize=64)
def _closing_periods(plan: ReleasePlan) -> Integers:
    """Every period at which a node of any track ends, rising."""
    return np.array(closings(plan, 0, max(track.last for track in plan.tracks)), np.int64)


def _nodes(track: Track, starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """For each span (start, end], the number of the track's first node that ends in it, and how many do."""
    first = np.maximum((starts - track.first) // track.width + 1, 1)
    last = np.minimum((ends - track.first) // track.width, track.count)
    return first, np.maximum(last - first + 1, 0)


def _ranges(first: Integers, lengths: Integers) -> Integers:
    """Ranges of integers laid end to end: from each first one on, so many."""
    ranges: Integers = np.repeat(first - _begins(lengths), lengths) + np.arange(lengths.sum())
    return ranges


def _begins(lengths: Integers) -> Integers:
    """Where each of some pieces begins that are laid end to end."""
    begins: Integers = np.cumsum(lengths) - lengths
    return begins


def _integers(packed: bytes, width: int) -> NDArray[np.uint64]:
    """Big-endian integers of 1 to 8 bytes each."""
    wide = np.zeros((len(packed) // width, 8), np.uint8)
    wide[:, 8 - width :] = np.frombuffer(packed, np.uint8).reshape(-1, width)
    return wide.view(">u8")[:, 0].astype(np.uint64)

"""From the bytes of uploads' columns to rows, all uploads of a survey at once, without an object per closing or report.

A column has a row for everything that could be answered in the upload's span. So where a row stands says which closing
or node it is about, and from a report's row follows the row of its closing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from changeling_protocol import (
    CLOSING_BYTES,
    CLOSING_ID_BYTES,
    STANDING_BYTES,
    ReleasePlan,
    Track,
    closings,
    symbol_bytes,
)
from changeling_protocol.wire import MOST_ENVELOPES_TAKEN
from numpy.typing import NDArray

from ..opening import ColumnLayout, Sheaf
from .ids import Ids, ids_in

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


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A sheaf among the rows. first: the row of its first closing. closings: the periods that each upload spans."""

    kind: ColumnLayout
    sheaf: Sheaf
    first: int
    closings: Integers

    @property
    def uploads(self) -> int:
        return len(self.sheaf.numbers)


class UploadRows:
    """The uploads of one survey, in rows.

    sheaves: the uploads by kind. arrivals: of each request, by its number, in Unix milliseconds.

    closings: a row for each closing in each upload's span, in the order of the log, and of periods. Columns: row (by
    which reports name it), upload (its number), group, arrival in Unix milliseconds, period, standing (raised by one;
    0 if the closing is not answered), and stratum.

    ids: of the closings, by row.
    """

    def __init__(self, plan: ReleasePlan, sheaves: Mapping[ColumnLayout, Sheaf], arrivals: Integers) -> None:
        self._plan = plan
        periods = _closing_periods(plan)
        self._blocks: list[_Block] = []
        rows = 0
        for kind, sheaf in sheaves.items():
            begin, end = np.searchsorted(periods, [kind.start, kind.end], side="right")
            self._blocks.append(_Block(kind, sheaf, rows, periods[begin:end]))
            rows += len(sheaf.numbers) * int(end - begin)
        self.closings, self.ids = self._closings(arrivals)
        self.answered = self.closings["standing"].to_numpy() > 0
        """By row, whether the closing is."""
        if len(self._blocks) > 1:
            self.closings = self.closings.sort("upload", maintain_order=True)

    @property
    def groups(self) -> list[int]:
        """The groups that any upload is of, rising."""
        return sorted({block.kind.group for block in self._blocks})

    def reports(self, group: int, place: int) -> ReportRows:
        """The reports on one track. place: the track's place in its group."""
        track = self._plan.groups[group].tracks[place]
        parts = [_reports(block, track, place) for block in self._blocks if block.kind.group == group]
        if len(parts) == 1:
            return parts[0]
        return ReportRows(
            *(np.concatenate(column) for column in zip(*((o.closing, o.node, o.symbol) for o in parts), strict=True))
        )

    def _closings(self, arrivals: Integers) -> tuple[pl.DataFrame, Ids]:
        parts, ids = [], []
        for block in self._blocks:
            n, spanned = block.uploads, len(block.closings)
            table = np.frombuffer(b"".join(block.sheaf.closings), np.uint8).reshape(n, spanned * CLOSING_BYTES)
            of_block, standings, strata = np.split(
                table, [CLOSING_ID_BYTES * spanned, (CLOSING_ID_BYTES + STANDING_BYTES) * spanned], axis=1
            )
            ids.append(of_block.tobytes())
            numbers = np.array(block.sheaf.numbers, np.int64)
            parts.append(
                {
                    "upload": np.repeat(numbers, spanned),
                    "group": np.full(n * spanned, block.kind.group),
                    "arrival": np.repeat(arrivals[numbers // MOST_ENVELOPES_TAKEN], spanned),
                    "period": np.tile(block.closings, n),
                    "standing": standings.astype(np.int64).ravel(),
                    "stratum": np.ascontiguousarray(strata).view(">u2").astype(np.int64).ravel(),
                }
            )
        columns = parts[0] if len(parts) == 1 else {name: np.concatenate([o[name] for o in parts]) for name in parts[0]}
        return pl.DataFrame({"row": np.arange(len(columns["upload"])), **columns}), ids_in(b"".join(ids))


def _reports(block: _Block, track: Track, place: int) -> ReportRows:
    first = max((block.kind.start - track.first) // track.width + 1, 1)
    last = min((block.kind.end - track.first) // track.width, track.count)
    nodes = np.arange(first, max(last, first - 1) + 1)
    written = _integers(b"".join(block.sheaf.symbols[place]), symbol_bytes(track.randomizer))
    begins = np.arange(block.first, block.first + block.uploads * len(block.closings), len(block.closings) or 1)
    ends = np.searchsorted(block.closings, track.first + nodes * track.width)
    closing = (begins[:, None] + ends).ravel()
    of, symbol, closing = among(written > 0, np.tile(nodes, block.uploads), written, closing)
    return ReportRows(closing, of, symbol.astype(np.uint64) - np.uint64(1))


def among(wanted: NDArray[np.bool_], *columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """The columns' rows that are wanted; nothing is copied where all are, as most often."""
    return columns if wanted.all() else tuple(column[wanted] for column in columns)


@lru_cache(maxsize=64)
def _closing_periods(plan: ReleasePlan) -> Integers:
    """Every period at which a node of any track ends, rising."""
    return np.array(closings(plan, 0, max(track.last for track in plan.tracks)), np.int64)


def _integers(packed: bytes, width: int) -> NDArray[np.unsignedinteger[Any]]:
    """Big-endian integers of 1 to 8 bytes each."""
    table = np.frombuffer(packed, np.uint8)
    if width == 1:
        return table
    columns = table.reshape(-1, width).T
    integers: NDArray[np.uint64] = columns[0].astype(np.uint64)
    for column in columns[1:]:
        integers = integers << np.uint64(8) | column
    return integers

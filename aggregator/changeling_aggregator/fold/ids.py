"""Ids of closings as two arrays of 64-bit numbers, high and low: sorting by them sorts the bytes.

The high halves alone nearly always tell ids apart, and sort fast. Where they do not, as somebody may wish, the low
halves are looked at: slower, and as exact.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Halves = NDArray[np.uint64]
Places = NDArray[np.int64]
ID_BYTES = 16


def ids_in(packed: bytes) -> tuple[Halves, Halves]:
    """The halves of ids laid end to end."""
    halves = np.frombuffer(packed, ">u8").reshape(-1, 2)
    return halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64)


def packed_ids(high: Halves, low: Halves) -> bytes:
    """Ids laid end to end, in the order given."""
    packed = np.empty((len(high), 2), ">u8")
    packed[:, 0], packed[:, 1] = high, low
    return packed.tobytes()


def first_of_each(high: Halves, low: Halves) -> Places:
    """The places of the first of each id, in the order of ids."""
    order = np.argsort(high)
    ordered = high[order]
    if not (ordered[1:] == ordered[:-1]).any():
        return order
    order = np.lexsort((low, high))
    ordered, also = high[order], low[order]
    again = np.r_[False, (ordered[1:] == ordered[:-1]) & (also[1:] == also[:-1])]
    firsts: Places = order[~again]
    return firsts


def are_in(high: Halves, low: Halves, piece: bytes) -> NDArray[np.bool_]:
    """Which of some sorted ids are in a piece of sorted ids laid end to end."""
    found = np.zeros(len(high), bool)
    halves = np.frombuffer(piece, ">u8").reshape(-1, 2)
    others = halves[:, 0].astype(np.uint64)
    begin, end = np.searchsorted(high, others[:1], "left")[0], np.searchsorted(high, others[-1:], "right")[0]
    at = np.searchsorted(others, high[begin:end])  # never beyond the end, as none of these is above the last
    alike = np.flatnonzero(others[at] == high[begin:end])
    for place, first in zip((begin + alike).tolist(), at[alike].tolist(), strict=True):
        last = np.searchsorted(others, high[place], "right")
        lows = halves[first:last, 1].astype(np.uint64)
        where = np.searchsorted(lows, low[place])
        found[place] = where < len(lows) and lows[where] == low[place]
    return found


def merged_ids(runs: Iterable[bytes]) -> bytes:
    """Several sorted runs of ids, no id in two of them, as one."""
    high, low = ids_in(b"".join(runs))
    order = np.argsort(high, kind="stable")  # which finds the runs, and merges them
    ordered = high[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.lexsort((low, high))
    return packed_ids(high[order], low[order])

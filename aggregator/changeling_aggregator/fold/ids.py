"""Ids of closings as pairs of 64-bit halves, big-endian, high before low: sorting by them sorts the bytes.

The high halves alone nearly always tell ids apart, and sort fast. Where they do not, as somebody may wish, the low
halves are looked at: slower, and as exact.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
"""Of shape (n, 2), big-endian."""
Halves = NDArray[np.uint64]
Places = NDArray[np.int64]


def ids_in(packed: bytes) -> Ids:
    """Ids laid end to end."""
    return np.frombuffer(packed, ">u8").reshape(-1, 2)


def high_halves(ids: Ids) -> Halves:
    """As numbers that the processor compares."""
    return ids[:, 0].astype(np.uint64)


def first_of_each(ids: Ids) -> Places:
    """The places of the first of each id, in the order of ids."""
    high = high_halves(ids)
    order = _order(high)
    if order is not None:
        return order
    order = np.lexsort((ids[:, 1], high))
    ordered = ids[order]
    again = np.r_[False, (ordered[1:] == ordered[:-1]).all(axis=1)]
    firsts: Places = order[~again]
    return firsts


def are_in(ids: Ids, others: Ids) -> NDArray[np.bool_]:
    """Which of some sorted ids are among others, sorted too."""
    if not len(others):
        return np.zeros(len(ids), bool)
    high, also = high_halves(ids), high_halves(others)
    at = np.searchsorted(also, high)
    at[at == len(also)] = 0
    alike = also[at] == high
    found: NDArray[np.bool_] = alike & (others[at, 1] == ids[:, 1])
    for place in np.flatnonzero(alike & ~found).tolist():
        last = np.searchsorted(also, high[place], "right")
        found[place] = ids[place, 1] in others[at[place] : last, 1]
    return found


def merged_ids(runs: Sequence[bytes]) -> bytes:
    """Several sorted runs of ids, no id in two of them, as one."""
    if len(runs) == 1:
        return runs[0]
    ids = ids_in(b"".join(runs))
    high = high_halves(ids)
    order = _order(high)
    if order is None:
        order = np.lexsort((ids[:, 1], high))
    return ids.take(order, axis=0).tobytes()


def _order(high: Halves) -> Places | None:
    """The order of high halves that all differ; None where some are alike.

    First the places are written over the lowest bits, which hardly ever tell anything, as numbers by themselves are
    sorted in a third of the time.
    """
    low = np.uint64(len(high).bit_length())
    ordered = np.sort(high >> low << low | np.arange(len(high), dtype=np.uint64))
    if not _any_alike(ordered >> low):
        return (ordered & ((np.uint64(1) << low) - np.uint64(1))).view(np.int64)
    order = np.argsort(high)
    return None if _any_alike(high[order]) else order


def _any_alike(ordered: Halves) -> bool:
    return bool((ordered[1:] == ordered[:-1]).any())

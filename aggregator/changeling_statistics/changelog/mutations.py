"""Mutations in order of time: what a release reads, (entry, time, old -> new), and filters (a, b] on them.

A slice of a changelog keeps the old state of each of its mutations, so that changes add up whatever is filtered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .times import MICRO

States = NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class Mutations:
    """Sorted by time, then entry; five columns of shape (mutations,).

    entry: numbered from 0. time: Unix microseconds. old, new: states, 0 being NULL; old != new.
    row: the number of the row it was read from, 0 where it was not read from one.
    """

    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    old: States
    new: States
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time)

    def between(self, after: float, until: float) -> "Mutations":
        """The mutations in (after, until], Unix seconds. ValueError if the span runs backwards."""
        if until < after:
            raise ValueError(f"a time filter (a, b] has a <= b, got ({after}, {until}]")
        first, end = np.searchsorted(self.time, [round(after * MICRO), round(until * MICRO)], side="right")
        return self[int(first) : int(end)]

    def __getitem__(self, rows: slice) -> "Mutations":
        return Mutations(self.entry[rows], self.time[rows], self.old[rows], self.new[rows], self.row[rows])

    def by_period(self, start: int, period: int, periods: int) -> Iterator["Mutations"]:
        """Those of each period (start + (i-1)·W, start + i·W], i = 1 to `periods`; the first also holds all before."""
        ends = (start + period * np.arange(1, periods + 1, dtype=np.int64)) * MICRO
        at = 0
        for until in np.searchsorted(self.time, ends, side="right").tolist():
            yield self[at:until]
            at = until

    def period_of(self, start: int, period: int) -> NDArray[np.int64]:
        """The number of the period that each falls in, at least 1; shape (mutations,)."""
        return np.maximum(1, -((start * MICRO - self.time) // -(-period * MICRO)))

    def histogram_changes(self, answers: int, bounds: Sequence[int]) -> NDArray[np.int64]:
        """By how much the number of entries in each state 0..z changes over each node (bounds[i], bounds[i+1]].

        bounds: rising Unix seconds; mutations before the first are in the first node. Shape (nodes, z + 1),
        rows adding up to 0: entries that are not inserted count as NULL.
        """
        d, nodes = answers + 1, len(bounds) - 1
        ends = np.asarray(bounds[1:], np.int64) * MICRO
        node = np.searchsorted(ends, self.time)
        inside = node < nodes
        cell = node[inside] * d
        gained = np.bincount(cell + self.new[inside], minlength=nodes * d)
        lost = np.bincount(cell + self.old[inside], minlength=nodes * d)
        changes: NDArray[np.int64] = (gained - lost).reshape(nodes, d)
        return changes

"""Mutations in order of time, each with its old and its new state, and spans (a, b] of them.

As each mutation has its old state, the change of a histogram can be added up over any span.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .times import MICROSECONDS

States = NDArray[np.uint16 | np.uint32]
"""Of 16 bits as long as these tell all states apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Mutations:
    """Mutations, sorted by time, then by entry. All columns are of shape (mutations,).

    entry: which entry mutates, numbered from 0.
    time: when, in Unix microseconds.
    old, new: the states before and after, 0 being NULL; they differ.
    row: the number of the row that the mutation was read from, 0 if it was read from none.
    """

    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    old: States
    new: States
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time)

    def between(self, after: float, until: float) -> "Mutations":
        """The mutations in (after, until], in Unix seconds. Raises ValueError if `until` is before `after`."""
        if until < after:
            raise ValueError(f"a time filter (a, b] has a <= b, got ({after}, {until}]")
        first, end = np.searchsorted(
            self.time, [round(after * MICROSECONDS), round(until * MICROSECONDS)], side="right"
        )
        return self[int(first) : int(end)]

    def __getitem__(self, rows: slice) -> "Mutations":
        return Mutations(self.entry[rows], self.time[rows], self.old[rows], self.new[rows], self.row[rows])

    def by_period(self, start: int, period: int, periods: int) -> Iterator["Mutations"]:
        """The mutations of each period (start + (i-1)·W, start + i·W], i = 1 to `periods`, one period after another.

        start: Unix seconds; mutations up to then are in the first period. period: W, in seconds.
        """
        ends = (start + period * np.arange(1, periods + 1, dtype=np.int64)) * MICROSECONDS
        at = 0
        for until in np.searchsorted(self.time, ends, side="right").tolist():
            yield self[at:until]
            at = until

    def period_of(self, start: int, period: int) -> NDArray[np.int64]:
        """The number of the period that each mutation falls in, at least 1; shape (mutations,).

        start: of the calendar, in Unix seconds. period: its length, in seconds.
        """
        return np.maximum(1, -((start * MICROSECONDS - self.time) // -(-period * MICROSECONDS)))

    def histogram_changes(self, answers: int, bounds: Sequence[int]) -> NDArray[np.int64]:
        """By how much the number of entries in each state 0..z changes over each node (bounds[i], bounds[i+1]].

        answers: z. bounds: Unix seconds, rising; mutations before the first are in the first node.
        Returns shape (nodes, z + 1). Rows add up to 0, as an entry without an answer counts as NULL.
        """
        d, nodes = answers + 1, len(bounds) - 1
        ends = np.asarray(bounds[1:], np.int64) * MICROSECONDS
        node = np.searchsorted(ends, self.time)
        inside = node < nodes
        cell = node[inside] * d
        gained = np.bincount(cell + self.new[inside], minlength=nodes * d)
        lost = np.bincount(cell + self.old[inside], minlength=nodes * d)
        changes: NDArray[np.int64] = (gained - lost).reshape(nodes, d)
        return changes

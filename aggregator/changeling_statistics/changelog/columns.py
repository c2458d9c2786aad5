"""Changelogs of a population: the mutations of many entries, in columns, which can be replayed to any time.

Knows no files, no calendar and no constraint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .mutations import Mutations, States
from .times import MICROSECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Changelog:
    """The mutations of a population, sorted by entry, then time.

    answers: the names of the states 1..z; state 0 is NULL.
    entries: the names of the entries, in order of first appearance.
    entry: which entry mutates, numbered from 0, shape (mutations,).
    time: when it mutates, in Unix microseconds, shape (mutations,).
    state: the state that it is in from then on, shape (mutations,).
    row: the number of the row that the mutation was read from, 0 if it was read from none, shape (mutations,);
    None if no mutation was read from a row.
    unit: what errors call a row; "line" of a text file.
    owner: whose each entry is, numbered from 0, shape (entries,); None if nobody asked.
    """

    answers: tuple[str, ...]
    entries: tuple[str, ...]
    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    state: States
    row: NDArray[np.int64] | None = None
    unit: str = "row"
    owner: NDArray[np.int64] | None = None

    def before(self) -> States:
        """The state that the entry was in before each mutation, shape (mutations,)."""
        first = np.ones(len(self), np.bool_)
        first[1:] = self.entry[1:] != self.entry[:-1]
        old = np.roll(self.state, 1)
        old[first] = 0
        return old

    def mutations(self) -> Mutations:
        """All mutations (entry, time, old -> new), by time, then entry."""
        order = np.argsort(self.time, kind="stable")
        row = np.zeros(len(self), np.int64) if self.row is None else self.row
        return Mutations(self.entry[order], self.time[order], self.before()[order], self.state[order], row[order])

    def states_at(self, times: Sequence[float]) -> States:
        """The state of every entry at each of the times, mutations at the time itself included.

        times: Unix seconds, rising. Returns shape (entries, times). Raises ValueError if the times do not rise.
        """
        asked = np.array([round(time * MICROSECONDS) for time in times], np.int64)
        if np.any(asked[1:] <= asked[:-1]):
            raise ValueError("the times of a replay must rise")
        column = np.searchsorted(asked, self.time)
        seen = column < len(asked)
        # Rows of an entry are in order of time: of several in one cell numpy keeps the last, and the last
        # row so far is the highest.
        last_row = np.zeros((len(self.entries), len(asked)), np.int32)
        last_row[self.entry[seen], column[seen]] = np.flatnonzero(seen) + 1
        np.maximum.accumulate(last_row, axis=1, out=last_row)
        return np.concatenate([np.zeros(1, self.state.dtype), self.state])[last_row]

    def since(self, time: int) -> "Changelog":
        """The changelog from a time on. An answer that an entry holds by then is inserted at that time.

        time: Unix seconds.
        """
        held = self.states_at([time])[:, 0]
        inserted = np.flatnonzero(held)
        later = self.take(self.time > time * MICROSECONDS)
        merged = replace(
            self,
            entry=np.concatenate([inserted, later.entry]),
            time=np.concatenate([np.full(len(inserted), time * MICROSECONDS), later.time]),
            state=np.concatenate([held[inserted], later.state]),
            row=None if later.row is None else np.concatenate([np.zeros(len(inserted), np.int64), later.row]),
        )
        return merged.take(np.argsort(merged.entry, kind="stable"))

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "Changelog":
        """The changelog of only some mutations; its entries and answers are the same.

        rows: which ones, as a mask of shape (mutations,) or by number.
        """
        row = None if self.row is None else self.row[rows]
        return replace(self, entry=self.entry[rows], time=self.time[rows], state=self.state[rows], row=row)

    def __len__(self) -> int:
        return len(self.time)

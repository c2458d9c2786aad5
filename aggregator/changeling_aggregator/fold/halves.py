"""The high halves of a closing's ids, in memory, in such a way that those of others are looked up fast.

A filter tells nearly all that are not among them; the few others are searched for in each run.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..store.runs import RunName
from .filters import MOST_BYTES_A_HALF, Filter
from .ids import Halves, Places, high_halves, ids_in

BYTES_AN_ID = 8 + MOST_BYTES_A_HALF
"""So much memory an id takes here at most."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedIds:
    """Ids of one closing, sorted and laid end to end, with their high halves."""

    packed: bytes
    high: Halves

    @classmethod
    def of(cls, packed: bytes) -> Self:
        """Sorted ids laid end to end."""
        return cls(packed, high_halves(ids_in(packed)))


class ClosingHalves:
    """High halves of a closing, sorted, by run; and of ids that are being written, as if they were counted."""

    def __init__(self) -> None:
        self._runs: dict[RunName, Halves] = {}
        self._filter = Filter.of(())
        self._written: Halves | None = None

    @property
    def ids(self) -> int:
        """Of how many ids the halves of runs are kept."""
        return sum(map(len, self._runs.values()))

    @property
    def runs(self) -> int:
        """Of how many runs."""
        return len(self._runs)

    @property
    def nbytes(self) -> int:
        """How much memory all takes, in bytes."""
        return 8 * self.ids + self._filter.nbytes

    def of_run(self, name: RunName) -> Halves | None:
        """A run's, where they are kept."""
        return self._runs.get(name)

    def keep(self, name: RunName, halves: Halves) -> None:
        """Keep a run's."""
        self._runs[name] = halves
        self._let_in(halves)

    def write(self, ids: SortedIds) -> None:
        """Ids that are being written from now on, in the place of those before."""
        if self._written is not ids.high:
            self._written = ids.high
            self._let_in(ids.high)

    def replace(self, names: Iterable[RunName], name: RunName, ids: SortedIds) -> None:
        """Keep what these runs and these ids became, if the halves of all of them were kept, and forget these runs."""
        self.write(ids)
        others = [self._runs.pop(each, None) for each in names]
        kept = [each for each in others if each is not None]
        if name not in self._runs and len(kept) == len(others):  # the filter has them all
            self._runs[name] = np.sort(np.concatenate([ids.high, *kept])) if kept else ids.high

    def forget_gone(self, there: Collection[RunName]) -> None:
        """Forget the runs that others took the place of. there: those that there are, or were before the last came."""
        last = max((name.number for name in there), default=-1)
        for name in [name for name in self._runs if name not in there and name.number <= last]:
            del self._runs[name]

    def likely(self, halves: Halves) -> Places:
        """The places of those halves that may be among these: of any run that is kept, or of what is being written."""
        return self._filter.likely(halves)

    def _let_in(self, halves: Halves) -> None:
        if self._filter.has_room(len(halves)):
            self._filter.add(halves)
        else:
            self._filter = Filter.of([*self._runs.values(), *([] if self._written is None else [self._written])])


def found_in(halves: Halves, others: Halves) -> Places:
    """The places of those halves that are among others, which are sorted."""
    if not len(halves) or not len(others):
        return np.zeros(0, np.int64)
    return np.flatnonzero(others.take(others.searchsorted(halves), mode="clip") == halves)

"""Tallies: what the server keeps of a node, and how symbols add up to one.

A tally holds how many reports there were and their sum per slot, nothing else. Knows no estimator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol import KaryResponse, Randomizer
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeTally:
    """O: the sums per slot, shape (slots,), of `reports` reports."""

    reports: int
    slots: Counts

    def __add__(self, other: "NodeTally") -> "NodeTally":
        return NodeTally(self.reports + other.reports, self.slots + other.slots)


Tallies: TypeAlias = Mapping[tuple[int, int], NodeTally]
"""By (number of the track in the plan, number of the node in the track)."""


def slot_count(randomizer: Randomizer) -> int:
    """How many slots a tally of this randomizer has."""
    if isinstance(randomizer, KaryResponse):
        return randomizer.symbols
    raise TypeError(f"no tally for a {type(randomizer).__name__}")


def tally(randomizer: Randomizer, symbols: NDArray[np.uint64]) -> NodeTally:
    """The tally of symbols, shape (n,), all of them in range."""
    if isinstance(randomizer, KaryResponse):
        slots = np.bincount(symbols.astype(np.int64), minlength=randomizer.symbols)
        return NodeTally(len(symbols), slots.astype(np.int64))
    raise TypeError(f"no tally for a {type(randomizer).__name__}")

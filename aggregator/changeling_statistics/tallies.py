"""Tallies: what the server keeps of a node, and how symbols add up to one.

A tally holds how many reports there were and their sum per slot, nothing else. Knows no estimator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol import CustomResponse, KaryResponse, Randomizer, SignedSubset, SubsetSelection, UnaryEncoding
from numpy.typing import NDArray

from .symbol_contents import ByContents, contents

Counts: TypeAlias = NDArray[np.int64]

MOST_COUNTED_SYMBOLS = 4096
"""Up to so many symbols a tally counts each; of larger alphabets it keeps sums, where decoding needs no more."""
_AT_ONCE = 2**16
"""How many symbols are unranked at a time, which bounds the memory."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeTally:
    """O: the sums per slot, shape (slots,), of `reports` reports."""

    reports: int
    slots: Counts

    def __add__(self, other: "NodeTally") -> "NodeTally":
        return NodeTally(self.reports + other.reports, self.slots + other.slots)


Tallies: TypeAlias = Mapping[tuple[int, int], NodeTally]
"""By (number of the track in the plan, number of the node in the track)."""


def counts_symbols(randomizer: Randomizer) -> bool:
    """Whether a slot counts one symbol; otherwise the slots are the sums of `content_sums`.

    Raises TypeError for an unknown kind of randomizer.
    """
    match randomizer:
        case KaryResponse() | CustomResponse():
            return True
        case SignedSubset() | SubsetSelection() | UnaryEncoding():
            return randomizer.symbols <= MOST_COUNTED_SYMBOLS
    raise TypeError(f"no tally for a {type(randomizer).__name__}")


def slot_count(randomizer: Randomizer) -> int:
    """How many slots a tally of this randomizer has. Raises TypeError for an unknown kind."""
    return randomizer.symbols if counts_symbols(randomizer) else _sum_count(randomizer)


def tally(randomizer: Randomizer, symbols: NDArray[np.uint64]) -> NodeTally:
    """The tally of symbols, shape (n,), all of them in range. Raises TypeError for an unknown kind."""
    if counts_symbols(randomizer):
        slots = np.bincount(symbols.astype(np.int64), minlength=randomizer.symbols)
        return NodeTally(len(symbols), slots.astype(np.int64))
    assert isinstance(randomizer, SignedSubset | SubsetSelection | UnaryEncoding)  # noqa: S101
    return NodeTally(len(symbols), content_sums(randomizer, symbols))


def content_sums(randomizer: ByContents, symbols: NDArray[np.uint64]) -> Counts:
    """What the symbols say, added up.

    Signed subsets: how many said nothing, then how many gave each state 0..z a plus, then a minus.
    Sets and bits: how many named each input.
    """
    slots = np.zeros(_sum_count(randomizer), np.int64)
    for start in range(0, len(symbols), _AT_ONCE):
        some = symbols[start : start + _AT_ONCE]
        said = contents(randomizer, some)
        pluses = np.count_nonzero(said == 1, axis=0)
        if isinstance(randomizer, SignedSubset):
            quiet = np.count_nonzero(some < randomizer.quiet)
            slots += np.concatenate([[quiet], pluses, np.count_nonzero(said == -1, axis=0)])
        else:
            slots += pluses
    return slots


def _sum_count(randomizer: Randomizer) -> int:
    return 1 + 2 * randomizer.states if isinstance(randomizer, SignedSubset) else randomizer.space.size

"""Tallies of symbols that say something of every state: sign vectors, sets and bits.

If there are few symbols, a tally counts each. If there are many, it adds up what they say of each state: decoding
needs hardly more than that.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from ..tallies import Counts, NodeTally
from .counted import Counted
from .counterpart import Counterpart, R_co
from .decoded_nodes import DecodedNodes

Contents: TypeAlias = NDArray[np.int8]
"""What each of n symbols says of each state, shape (n, states): +1, -1 or 0 for signs, 1 or 0 for sets and bits.

For reports of states, the states are the inputs: NULL only if it is one.
"""

MOST_COUNTED_SYMBOLS = 4096
"""With up to so many symbols, a tally counts each."""
_AT_ONCE = 2**16
"""How many symbols are unranked at a time, which bounds the memory."""


@dataclass(frozen=True)
class WithContents(Counted[R_co]):
    """A counterpart whose symbols say something of every state.

    most_counted: with more symbols than that, tallies keep sums of what the symbols say.
    """

    most_counted: int = MOST_COUNTED_SYMBOLS

    @property
    def counts_symbols(self) -> bool:
        """Whether each slot of a tally counts one symbol; if not, the slots are `content_sums`."""
        return self.randomizer.symbols <= self.most_counted

    @property
    @abstractmethod
    def sum_slots(self) -> int:
        """How many slots `content_sums` has."""

    @abstractmethod
    def contents(self, symbols: NDArray[np.uint64]) -> Contents:
        """What each symbol says of each state, shape (n, states).

        symbols: shape (n,), every one below `randomizer.symbols`.
        """

    @abstractmethod
    def added_up(self, symbols: NDArray[np.uint64]) -> Counts:
        """`content_sums` of symbols that are few enough to hold all their contents in memory."""

    @abstractmethod
    def sample_sums(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """Draws the `content_sums` of many reports, without drawing each.

        counts: how many entries have each input, shape (m,).
        """

    def sample_agreeing_sums(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """Draws `content_sums` as `sample_agreeing` draws slots. Raises ValueError as that does."""
        return Counterpart.sample_agreeing(self, agreed, others, generator)

    @property
    @abstractmethod
    def probabilities(self) -> Floats:
        """Pr(symbol | input), shape (m, symbols); for small alphabets."""

    @cached_property
    def all_contents(self) -> Floats:
        """What every symbol says of each state, shape (symbols, states); for small alphabets."""
        return self.contents(np.arange(self.randomizer.symbols, dtype=np.uint64)).astype(np.float64)

    def content_sums(self, symbols: NDArray[np.uint64]) -> Counts:
        """What the symbols say of each state, added up over the symbols, shape (sum_slots,)."""
        sums = np.zeros(self.sum_slots, np.int64)
        for start in range(0, len(symbols), _AT_ONCE):
            sums += self.added_up(symbols[start : start + _AT_ONCE])
        return sums

    @property
    def slots(self) -> int:
        """One for each symbol, or those of the sums."""
        return super().slots if self.counts_symbols else self.sum_slots

    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        """Counts of the symbols, or sums of what they say."""
        if self.counts_symbols:
            return super().tally(symbols)
        return NodeTally(len(symbols), self.content_sums(symbols))

    def tallies(self, symbols: NDArray[np.uint64], of: NDArray[np.int64], count: int) -> list[NodeTally]:
        """Counted in one go, or node by node what the symbols say."""
        if self.counts_symbols:
            return super().tallies(symbols, of, count)
        return Counterpart.tallies(self, symbols, of, count)

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        """Symbol by symbol where they are counted, else node by node."""
        return super().estimates(tallies) if self.counts_symbols else Counterpart.estimates(self, tallies)

    def squares(self, tally: NodeTally) -> Floats | None:
        """None for sums."""
        return super().squares(tally) if self.counts_symbols else None

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """Counts as `Counted` draws them, or sums node by node."""
        if self.counts_symbols:
            return super().sample_slots(counts, generator)
        return np.array([self.sample_sums(row, generator) for row in counts])

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """Counts as `Counted` draws them, or sums."""
        if self.counts_symbols:
            return super().sample_agreeing(agreed, others, generator)
        return self.sample_agreeing_sums(agreed, others, generator)

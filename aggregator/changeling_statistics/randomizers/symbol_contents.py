"""Tallies of symbols that say something of every state: sign vectors, sets and bits.

Of a small alphabet each symbol is counted; of a large one what the symbols say is added up, where decoding needs
hardly more.
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
"""Shape (n, states): +1, -1 or 0 for signs; 1 or 0 for sets and bits. A state report's states are its inputs."""

MOST_COUNTED_SYMBOLS = 4096
"""Up to so many symbols a tally counts each."""
_AT_ONCE = 2**16
"""How many symbols are unranked at a time, which bounds the memory."""


@dataclass(frozen=True)
class WithContents(Counted[R_co]):
    """most_counted: from more symbols on, tallies keep sums of contents."""

    most_counted: int = MOST_COUNTED_SYMBOLS

    @property
    def counts_symbols(self) -> bool:
        """Whether a slot counts one symbol; otherwise the slots are `content_sums`."""
        return self.randomizer.symbols <= self.most_counted

    @property
    @abstractmethod
    def sum_slots(self) -> int:
        """How many slots the sums have."""

    @abstractmethod
    def contents(self, symbols: NDArray[np.uint64]) -> Contents:
        """What each of n symbols says, shape (n, states), all of them in range."""

    @abstractmethod
    def added_up(self, symbols: NDArray[np.uint64]) -> Counts:
        """What a bounded number of symbols says, as the slots of the sums."""

    @abstractmethod
    def sample_sums(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """The sums of sum(counts) reports, counts[u] from the input u; counts: shape (m,)."""

    @property
    @abstractmethod
    def probabilities(self) -> Floats: ...

    @cached_property
    def all_contents(self) -> Floats:
        """The contents of every symbol in order, shape (symbols, states); for small alphabets."""
        return self.contents(np.arange(self.randomizer.symbols, dtype=np.uint64)).astype(np.float64)

    def content_sums(self, symbols: NDArray[np.uint64]) -> Counts:
        """What the symbols say, added up, shape (sum_slots,)."""
        sums = np.zeros(self.sum_slots, np.int64)
        for start in range(0, len(symbols), _AT_ONCE):
            sums += self.added_up(symbols[start : start + _AT_ONCE])
        return sums

    @property
    def slots(self) -> int:
        return super().slots if self.counts_symbols else self.sum_slots

    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        if self.counts_symbols:
            return super().tally(symbols)
        return NodeTally(len(symbols), self.content_sums(symbols))

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        return super().estimates(tallies) if self.counts_symbols else Counterpart.estimates(self, tallies)

    def squares(self, tally: NodeTally) -> Floats | None:
        return super().squares(tally) if self.counts_symbols else None

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        if self.counts_symbols:
            return super().sample_slots(counts, generator)
        return np.array([self.sample_sums(row, generator) for row in counts])

"""The counterpart of unary encoding, whose reports have one bit for each state, and what it offers the planner."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from changeling_protocol import MOST_BITS, Odds, StateSpace, UnaryEncoding
from numpy.typing import NDArray

from ..estimate import Floats
from ..tallies import Counts
from .likelihoods import Likelihoods, merged
from .named_states import NamedStates, Naming
from .offers import Offer
from .registry import register
from .symbol_contents import Contents
from .variances import offer_of


@dataclass(frozen=True)
class UnaryCounterpart(NamedStates[UnaryEncoding]):
    """A report names the states whose bits are set."""

    @cached_property
    def naming(self) -> Naming:
        """1/2 for the state held, q = b/(a+b) for another; bits are independent."""
        q = self._q
        return Naming(held=0.5, other=q, held_other=0.5 * q, others=q * q)

    def contents(self, symbols: NDArray[np.uint64]) -> Contents:
        """The bits of each symbol."""
        bits = np.arange(self.randomizer.space.size, dtype=np.uint64)
        return (symbols.astype(np.uint64)[:, None] >> bits & np.uint64(1)).astype(np.int8)

    @cached_property
    def probabilities(self) -> Floats:
        """Pr(symbol | v) = q^k · (1-q)^(m-1-k) / 2, k = how many bits other than v's are set."""
        named = self.all_contents.T
        others = named.sum(0) - named
        chances: Floats = 0.5 * self._q**others * (1 - self._q) ** (self.randomizer.space.size - 1 - others)
        return chances

    def likelihoods(self, u: int, v: int) -> Likelihoods:  # noqa: ARG002
        """Four classes, by the bits of u and v: all other bits are as likely under either input."""
        a, b = self.randomizer.odds.favoured, self.randomizer.odds.other
        return merged([(a, b, 1), (b, a, 1), (a, a, 1), (b, b, 1)], 2 * (a + b), 2 * (a + b))

    def sample_sums(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """For each state two binomials: of those who hold it, and of all others."""
        bits: Counts = generator.binomial(counts, 0.5) + generator.binomial(counts.sum() - counts, self._q)
        return bits

    @property
    def _q(self) -> float:
        """q, the probability that the bit of a state not held is set."""
        return self.randomizer.odds.other / (self.randomizer.odds.favoured + self.randomizer.odds.other)


@lru_cache(maxsize=1024)
def _states(space: StateSpace, odds: Odds) -> Iterable[Offer]:
    return (offer_of(UnaryEncoding(space, odds)),) if 2 <= space.size <= MOST_BITS else ()


register(UnaryEncoding, UnaryCounterpart, states=_states)

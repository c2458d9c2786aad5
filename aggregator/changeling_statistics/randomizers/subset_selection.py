"""The counterpart of subset selection, whose reports are sets of states, and what it offers the planner."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from changeling_protocol import SYMBOL_LIMIT, Odds, Space, StateSpace, SubsetSelection
from numpy.typing import NDArray

from ..estimate import Floats
from ..tallies import Counts
from .agreement import sample_agreements
from .likelihoods import Likelihoods, merged
from .named_states import NamedStates, Naming
from .offers import ANY_ODDS, Offer
from .registry import register
from .sign_vectors import sample_vector_sums, unrank_signs
from .symbol_contents import Contents
from .variances import offer_of


@dataclass(frozen=True)
class SubsetCounterpart(NamedStates[SubsetSelection]):
    """A report names the states of its set."""

    @cached_property
    def naming(self) -> Naming:
        """Counted from how many sets hold the truth, and one or two other states."""
        m, size, total = self.randomizer.space.size, self.randomizer.chosen, self.randomizer.total()
        a, b = self.randomizer.odds.favoured, self.randomizer.odds.other
        return Naming(
            held=a * _sets(m - 1, size - 1) / total,
            other=(a * _sets(m - 2, size - 2) + b * _sets(m - 2, size - 1)) / total,
            held_other=a * _sets(m - 2, size - 2) / total,
            others=(a * _sets(m - 3, size - 3) + b * _sets(m - 3, size - 2)) / total,
        )

    def contents(self, symbols: NDArray[np.uint64]) -> Contents:
        """1 for the states of each set, 0 for the others."""
        return unrank_signs(self.randomizer.subsets, symbols.astype(np.int64))

    @cached_property
    def probabilities(self) -> Floats:
        """a/T for a set that holds the input, b/T for another."""
        a, b, total = self.randomizer.odds.favoured, self.randomizer.odds.other, self.randomizer.total()
        return np.where(self.all_contents.T == 1, a / total, b / total)

    def agreeing_symbols(self, true: int) -> NDArray[np.bool_]:
        """The sets that hold the state."""
        agrees: NDArray[np.bool_] = self.all_contents[:, true] == 1
        return agrees

    def likelihoods(self, u: int, v: int) -> Likelihoods:
        """Four classes: sets that hold both states, only u, only v, or neither."""
        a, b, total = self.randomizer.odds.favoured, self.randomizer.odds.other, self.randomizer.total()
        sets = self.randomizer.subsets
        both, only_u = (sets.completing({u: 1, v: sign}).count for sign in (1, 0))
        only_v = only_u
        neither = sets.count - both - only_u - only_v
        return merged([(a, a, both), (a, b, only_u), (b, a, only_v), (b, b, neither)], total, total)

    def sample_sums(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """First how many sets hold the truth, then what else they hold."""
        return self.sample_agreeing_sums(*sample_agreements(self.randomizer, counts, generator), generator)

    def sample_agreeing_sums(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """A set is uniform among those that hold the truth, or among those that do not."""
        subsets, size = self.randomizer.subsets, self.randomizer.space.size
        named: Counts = np.diag(agreed)
        elsewhere = ~np.eye(size, dtype=np.bool_)
        for reports, held in ((agreed, 1), (others, 0)):
            named[elsewhere] += sample_vector_sums(subsets.completing({0: held}), reports, generator)[0].ravel()
        sums: Counts = named.sum(0)
        return sums


def _sets(states: int, size: int) -> int:
    """How many sets of this size there are among so many states; 0 where either is negative."""
    return comb(states, size) if states >= 0 and size >= 0 else 0


@lru_cache(maxsize=1024)
def _states(space: StateSpace, odds: Odds) -> Iterable[Offer]:
    """Sets of about m/(e^ε + 1) states, which is the best size (Ye, Barg 2018). Sets of one state are left to k-RR."""
    m, offers = space.size, []
    best = m / (odds.favoured / odds.other + 1)
    for chosen in {int(best), int(best) + 1} - {0, 1}:
        if chosen < m:
            try:
                offers.append(offer_of(SubsetSelection(space, odds, chosen)))
            except ValueError:  # too many sets for a fixed-width symbol
                continue
    return tuple(offers)


@lru_cache(maxsize=1024)
def _agreeing(space: Space, p: float) -> Iterable[SubsetSelection]:
    """Sets of about p·m states. Sets of one state are left to k-RR."""
    chosen = round(p * space.size)
    if isinstance(space, StateSpace) and 1 < chosen < space.size and comb(space.size, chosen) < SYMBOL_LIMIT:
        return (SubsetSelection(space, ANY_ODDS, chosen),)
    return ()


register(SubsetSelection, SubsetCounterpart, states=_states, agreeing=_agreeing)

"""Subset selection and unary encoding, whose reports name some states, the one that the entry holds more often.

They are decoded from how often each state was named.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from changeling_protocol import MOST_BITS, SYMBOL_LIMIT, Odds, Space, StateSpace, SubsetSelection, UnaryEncoding
from numpy.typing import NDArray

from ..estimate import Counts, Estimate, Floats, NodeTally
from .counted import Contents, WithContents, sample_vector_sums, unrank_signs
from .counterpart import (
    ANY_ODDS,
    Likelihoods,
    PairKind,
    R_co,
    RandomizerOffer,
    merged,
    offer_of,
    one_pair,
    register_counterpart,
    sample_agreements,
)


@dataclass(frozen=True, slots=True)
class Naming:
    """How likely a report names states.

    held: p, that it names the state the entry holds.
    other: q, that it names a certain other state.
    held_other: that it names both the state held and a certain other one.
    others: that it names two certain other states.
    """

    held: float
    other: float
    held_other: float
    others: float


@dataclass(frozen=True)
class NamedStates(WithContents[R_co]):
    """Decodes how often each state was named, S_v, to ŝ_v = (S_v - n·q) / (p - q), how many entries hold it.

    The covariance is Σ_v ŝ_v C_v, where C_v is that of one report of the state v. It is unbiased, as S tells ŝ.
    """

    answers_alike = True

    @property
    @abstractmethod
    def naming(self) -> Naming:
        """How likely a report names states."""

    @property
    def sum_slots(self) -> int:
        """One for each state."""
        return self.randomizer.space.size

    def added_up(self, symbols: NDArray[np.uint64]) -> Counts:
        """How many of the reports name each state."""
        named: Counts = np.count_nonzero(self.contents(symbols), axis=0).astype(np.int64)
        return named

    def estimate(self, tally: NodeTally) -> Estimate:
        """ŝ of the answers, and Σ_v ŝ_v C_v."""
        named = tally.slots.astype(np.float64)
        if self.counts_symbols:
            named = named @ self.all_contents
        p, q = self.naming.held, self.naming.other
        counts = (named - tally.reports * q) / (p - q)
        return Estimate(counts[self._answers], self._covariance(counts, tally.reports))

    def report_covariance(self, true: int) -> Floats:
        """C_v of the state v."""
        self.randomizer.space.pair(true)  # raises outside the space
        return self._covariance(np.eye(1, self.randomizer.space.size, true)[0], 1)

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """One pair, as all are told apart equally well."""
        return one_pair(self.randomizer.space, kind)

    def _covariance(self, counts: Floats, reports: int) -> Floats:
        """Σ_v counts_v C_v, shape (z, z).

        counts: how many of the reports are of each state, shape (m,). reports: how many there are in all.
        """
        named = self.naming
        p, q = named.held, named.other
        pairs = counts[:, None] + counts[None, :]
        covariance = pairs * (named.held_other - p * q) + (reports - pairs) * (named.others - q * q)
        np.fill_diagonal(covariance, counts * p * (1 - p) + (reports - counts) * q * (1 - q))
        within: Floats = covariance[self._answers, self._answers] / (p - q) ** 2
        return within

    @property
    def _answers(self) -> slice:
        """The states without NULL."""
        return slice(self.randomizer.space.size - self.randomizer.space.answers, None)


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
def _states(space: StateSpace, odds: Odds) -> Iterable[RandomizerOffer]:
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


register_counterpart(SubsetSelection, SubsetCounterpart, states=_states, agreeing=_agreeing)


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
        """Two binomials for each state: of those who hold it, and of all others."""
        bits: Counts = generator.binomial(counts, 0.5) + generator.binomial(counts.sum() - counts, self._q)
        return bits

    @property
    def _q(self) -> float:
        """q, the probability that the bit of a state not held is set."""
        return self.randomizer.odds.other / (self.randomizer.odds.favoured + self.randomizer.odds.other)


@lru_cache(maxsize=1024)
def _unary_encoding_states(space: StateSpace, odds: Odds) -> Iterable[RandomizerOffer]:
    return (offer_of(UnaryEncoding(space, odds)),) if 2 <= space.size <= MOST_BITS else ()


register_counterpart(UnaryEncoding, UnaryCounterpart, states=_unary_encoding_states)

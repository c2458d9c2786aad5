"""Randomizers whose reports name inputs: k-ary randomized response one, subset selection and unary encoding several.

k-RR, that of changes whose "no change" is uniform, and a state of a history, which is told or else drawn from a base,
are decoded in one closed form, in O(m) steps, and no matrix over the alphabet is built. Subset selection and unary
encoding name the state that an entry holds more often than others, and are decoded from how often each state was named.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from math import comb
from typing import ClassVar, TypeVar

import numpy as np
from changeling_protocol import (
    MOST_BITS,
    SYMBOL_LIMIT,
    BasedResponse,
    KaryChange,
    KaryResponse,
    Losses,
    MutationSpace,
    Odds,
    Space,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)
from numpy.typing import NDArray

from ..estimate import Counts, Estimate, Floats, NodeTally
from .counted import Contents, CountedCounterpart, WithContents, sample_vector_sums, unrank_signs
from .counterpart import (
    ANY_ODDS,
    ONE_CHANGE,
    Blanket,
    ChangeMap,
    ChangeOffers,
    Likelihoods,
    PairKind,
    R_co,
    change_map,
    merged,
    register_counterpart,
    sample_inputs,
)

UNIT_LOSSES = Losses.alike(Decimal(1))
"""The losses of a report in units of ln(a/b). A mutation costs one where it appears, and one where it vanishes."""


@dataclass(frozen=True)
class _OneNamed(CountedCounterpart[R_co]):
    """A report is the truth with probability γ, or else of the base, which sends the symbol o with probability b_o.

        v̂ = M_δv ŝ        squares = { M diag(O) M' - MO u' - u (MO)' + n u u' } / γ²,  u = M_δv b

    first: the first input whose truth is told; those before it are reports of the base.
    """

    answers_alike = True
    first: ClassVar[int] = 0

    @property
    @abstractmethod
    def told(self) -> float:
        """γ, how likely the truth is told. Raises ValueError if it never is."""

    @property
    @abstractmethod
    def beside(self) -> Floats:
        """b, shape (m,)."""

    def input_counts(self, tally: NodeTally) -> Floats:
        """ŝ = (O - n·b) / γ: unbiased for how many reports came from each input, shape (m,)."""
        return (tally.slots.astype(np.float64) - tally.reports * self.beside) / self.told

    def estimate(self, tally: NodeTally) -> Estimate:
        """M_δv ŝ, with the covariance A diag(O) A' - M_δv diag(ŝ) M_δv'."""
        s = self.input_counts(tally)
        return Estimate(self._map.apply(s), self.squares(tally) - self._map.sandwich(s))

    def squares(self, tally: NodeTally) -> Floats:
        """A diag(O) A', as above."""
        M, u, O = self._map, self._beside_told, tally.slots.astype(np.float64)
        cross = np.outer(M.apply(O), u)
        squares: Floats = (M.sandwich(O) - cross - cross.T + tally.reports * np.outer(u, u)) / self.told**2
        return squares

    def report_covariance(self, true: int) -> Floats:
        """{ M diag(p) M' - Mp (Mp)' } / γ², p being how likely each symbol is sent."""
        self.randomizer.space.pair(true)  # raises outside the space
        p = self.beside + self.told * np.eye(1, self.randomizer.symbols, true)[0]
        if true < self.first:
            p = self.beside / self.beside.sum()
        mean = self._map.apply(p)
        covariance: Floats = (self._map.sandwich(p) - np.outer(mean, mean)) / self.told**2
        return covariance

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """So many reports tell the truth, and all others are drawn from the base."""
        told: Counts = generator.binomial(counts, self.told)
        told[:, : self.first] = 0
        base: Counts = generator.multinomial(counts.sum(1) - told.sum(1), self.beside / self.beside.sum())
        return told + base

    @property
    def _map(self) -> ChangeMap:
        return change_map(self.randomizer.space)

    @cached_property
    def _beside_told(self) -> Floats:
        """u, shape (z,)."""
        return self._map.apply(self.beside)


K_co = TypeVar("K_co", bound=KaryResponse | KaryChange, covariant=True)


@dataclass(frozen=True)
class _Kary(_OneNamed[K_co]):
    """k-RR: the base is uniform over all inputs."""

    @property
    def told(self) -> float:
        """γ = p - q, computed without cancellation."""
        odds = self.randomizer.odds
        if odds.favoured == odds.other:
            raise ValueError(f"odds of {odds.favoured}:{odds.other} say nothing: choose favoured > other")
        return (odds.favoured - odds.other) / self.randomizer.total(1)

    @cached_property
    def beside(self) -> Floats:
        """q, the probability of each symbol that is not the truth."""
        return np.full(self.randomizer.symbols, self.randomizer.odds.other / self.randomizer.total(1))

    def likelihoods(self, u: int, v: int) -> Likelihoods:
        """Three classes: the symbol u, the symbol v, and all others."""
        randomizer, m = self.randomizer, self.randomizer.symbols
        named = {u, v}
        rest = next((symbol for symbol in range(m) if symbol not in named), 0)
        classes = [(randomizer.weight(o, u), randomizer.weight(o, v), 1) for o in named]
        if len(named) < m:
            classes.append((randomizer.weight(rest, u), randomizer.weight(rest, v), m - len(named)))
        return merged(classes, randomizer.total(u), randomizer.total(v))

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """A report that agrees is the input, and any other is uniform over the rest."""
        return sample_inputs(agreed, others, generator)


@dataclass(frozen=True)
class KaryCounterpart(_Kary[KaryResponse]):
    """The counterpart of k-RR."""

    @property
    def blanket(self) -> Blanket | None:
        """Uniform with probability m·q, else the truth; none where one symbol is all that anybody sends."""
        m, total = self.randomizer.symbols, self.randomizer.total()
        return None if m == 1 else Blanket(self.randomizer.odds.favoured / total, self.randomizer.odds.other / total, m)


@lru_cache(maxsize=1024)
def _kary_agreeing(space: Space, p: float) -> Iterable[KaryResponse]:  # noqa: ARG001
    """k-RR of states, with p = 1/m. No change tells something too, so there is no joint form for changes."""
    return () if space.reports_changes or space.size < 2 else (KaryResponse(space, ANY_ODDS),)


register_counterpart(
    KaryResponse,
    KaryCounterpart,
    states=lambda space, odds: (KaryResponse(space, odds),),
    agreeing=_kary_agreeing,
    changes=ChangeOffers(
        UNIT_LOSSES,
        lambda space, odds, moved, closed: (KaryResponse(space, odds),),  # noqa: ARG005
    ),
)


MOST_PLANNED_SYMBOLS = 200
"""With more symbols it is not offered: signed subsets are far better then, and it is slow to look at."""


@dataclass(frozen=True)
class KaryChangeCounterpart(_Kary[KaryChange]):
    """k-RR of changes, where no change is a uniform report, and cancels out in M_δv O."""

    first = 1

    def input_counts(self, tally: NodeTally) -> Floats:
        """ŝ = (O - O_0) / γ, as only uniform reports are of the symbol 0; 0 for no change, which adds nothing."""
        O = tally.slots.astype(np.float64)
        counts: Floats = (O - O[0]) / self.told
        return counts

    def changed(self, tallies: Sequence[NodeTally]) -> Floats:
        """From how often the symbol 0 was sent, which nobody favours."""
        m = self.randomizer.symbols
        return np.array([tally.reports - m * tally.slots[0] for tally in tallies], np.float64) / self.told


@lru_cache(maxsize=1024)
def _change_agreeing(space: Space, p: float) -> Iterable[KaryChange]:  # noqa: ARG001
    """k-RR of changes, with p = 1/m."""
    if not isinstance(space, MutationSpace) or space.repeats or space.size > MOST_PLANNED_SYMBOLS:
        return ()
    return (KaryChange(space, ANY_ODDS),) if space.size > 1 else ()


register_counterpart(
    KaryChange,
    KaryChangeCounterpart,
    agreeing=_change_agreeing,
    changes=ChangeOffers(
        ONE_CHANGE,
        lambda space, odds, moved, closed: (KaryChange(space, odds),),  # noqa: ARG005
    ),
)


@dataclass(frozen=True)
class BasedCounterpart(_OneNamed[BasedResponse]):
    """The counterpart of a state that is told, or else drawn from a base in which NULL is as likely as it may be."""

    @property
    def told(self) -> float:
        """γ."""
        return self.randomizer.truth / self.randomizer.total()

    @cached_property
    def beside(self) -> Floats:
        """Every answer as often as any other."""
        answers = [self.randomizer.answer] * self.randomizer.space.answers
        return np.array([self.randomizer.null, *answers], np.float64) / self.randomizer.total()

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:  # noqa: ARG002
        """NULL against an answer, an answer against NULL, and one answer against another."""
        return [(0, 1), (1, 0), (1, 2)][: 3 if self.randomizer.space.answers > 1 else 2]


register_counterpart(BasedResponse, BasedCounterpart)


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
def _subset_states(space: StateSpace, odds: Odds) -> Iterable[SubsetSelection]:
    """Sets of about m/(e^ε + 1) states, which is the best size (Ye, Barg 2018). Sets of one state are left to k-RR."""
    m, offers = space.size, []
    best = m / (odds.favoured / odds.other + 1)
    for chosen in {int(best), int(best) + 1} - {0, 1}:
        if chosen < m:
            try:
                offers.append(SubsetSelection(space, odds, chosen))
            except ValueError:  # too many sets for a fixed-width symbol
                continue
    return tuple(offers)


@lru_cache(maxsize=1024)
def _subset_agreeing(space: Space, p: float) -> Iterable[SubsetSelection]:
    """Sets of about p·m states. Sets of one state are left to k-RR."""
    chosen = round(p * space.size)
    if isinstance(space, StateSpace) and 1 < chosen < space.size and comb(space.size, chosen) < SYMBOL_LIMIT:
        return (SubsetSelection(space, ANY_ODDS, chosen),)
    return ()


register_counterpart(SubsetSelection, SubsetCounterpart, states=_subset_states, agreeing=_subset_agreeing)


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


register_counterpart(
    UnaryEncoding,
    UnaryCounterpart,
    states=lambda space, odds: (UnaryEncoding(space, odds),) if 2 <= space.size <= MOST_BITS else (),
)

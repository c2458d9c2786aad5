"""Randomizers whose reports name inputs: k-ary randomized response one, subset selection and unary encoding several.

k-RR and that of changes whose "no change" is uniform are decoded in closed form, in O(m) steps, and no matrix over the
alphabet is built; a state of a history is told, or else drawn from a base. Subset selection and unary encoding name the
state that an entry holds more often than others, and are decoded from how often each state was named.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from math import comb

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
    one_pair,
    register_counterpart,
    sample_agreements,
    sample_inputs,
)

UNIT_LOSSES = Losses(mutations=Decimal(1), appears=Decimal(1), vanishes=Decimal(1), insertions=Decimal(1))
"""The losses of a report in units of ln(a/b). A mutation costs one where it appears, and one where it vanishes."""


@dataclass(frozen=True)
class _OneNamed(CountedCounterpart[R_co]):
    """A report is the truth, or else uniform over all inputs."""

    answers_alike = True

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """One pair, as all are told apart equally well."""
        return one_pair(self.randomizer.space, kind)

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """A report that agrees is the input, and any other is uniform over the rest."""
        return sample_inputs(agreed, others, generator)

    def _with_uniform(self, told: Counts, counts: Counts, generator: np.random.Generator) -> Counts:
        """Slots, where of so many reports some told the truth and the others are uniform."""
        m = self.randomizer.symbols
        uniform: Counts = generator.multinomial(counts.sum(1) - told.sum(1), np.full(m, 1 / m))
        return told + uniform

    @property
    def _map(self) -> ChangeMap:
        return change_map(self.randomizer.space)


@dataclass(frozen=True)
class KaryCounterpart(_OneNamed[KaryResponse]):
    """The counterpart of k-RR: column o of the decoder A is (M_o - q·U) / (p - q), where U = M_δv 1."""

    def input_counts(self, tally: NodeTally) -> Floats:
        """ŝ = P⁻¹O = (O - n·q) / (p - q): unbiased for how many reports came from each input, shape (m,)."""
        return (tally.slots.astype(np.float64) - tally.reports * self._q) / self._gap

    def estimate(self, tally: NodeTally) -> Estimate:
        """M_δv ŝ, with the covariance A diag(O) A' - M_δv diag(ŝ) M_δv'. Raises ValueError for odds of 1:1."""
        s = self.input_counts(tally)
        return Estimate(self._map.apply(s), self.squares(tally) - self._map.sandwich(s))

    def squares(self, tally: NodeTally) -> Floats:
        """{ M diag(O) M' - q (MO U' + U (MO)') + q² n U U' } / (p-q)²."""
        q, M, U, O = self._q, self._map, self._sum, tally.slots.astype(np.float64)
        cross = q * np.outer(M.apply(O), U)
        ADA: Floats = (M.sandwich(O) - cross - cross.T + q * q * tally.reports * np.outer(U, U)) / self._gap**2
        return ADA

    def report_covariance(self, true: int) -> Floats:
        """{ q·M M' + (p-q) δδ' - μμ' } / (p-q)²,  μ = q·U + (p-q) δ."""
        self.randomizer.space.pair(true)
        delta = self._map.apply(np.eye(1, self.randomizer.symbols, true)[0])
        mean = self._q * self._sum + self._gap * delta
        second = self._q * self._square + self._gap * np.outer(delta, delta)
        return (second - np.outer(mean, mean)) / self._gap**2

    def likelihoods(self, u: int, v: int) -> Likelihoods:  # noqa: ARG002
        """Three classes: the symbol u, the symbol v, and all others."""
        a, b, total = self.randomizer.odds.favoured, self.randomizer.odds.other, self.randomizer.total()
        return merged([(a, b, 1), (b, a, 1), (b, b, self.randomizer.symbols - 2)], total, total)

    @property
    def blanket(self) -> Blanket | None:
        """Uniform with probability m·q, else the truth; none where one symbol is all that anybody sends."""
        total = self.randomizer.total()
        if self.randomizer.symbols == 1:
            return None
        return Blanket(self.randomizer.odds.favoured / total, self._q, self.randomizer.symbols)

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """A report is the truth with probability p - q = (a - b)/total, and else uniform over all symbols."""
        odds = self.randomizer.odds
        told = generator.binomial(counts, (odds.favoured - odds.other) / self.randomizer.total())
        return self._with_uniform(told, counts, generator)

    @property
    def _q(self) -> float:
        """q, the probability of each symbol that is not the truth."""
        return self.randomizer.odds.other / self.randomizer.total()

    @property
    def _gap(self) -> float:
        """p - q, computed without cancellation. Raises ValueError if it is 0."""
        odds = self.randomizer.odds
        if odds.favoured == odds.other:
            raise ValueError(f"odds of {odds.favoured}:{odds.other} say nothing: choose favoured > other")
        return (odds.favoured - odds.other) / self.randomizer.total()

    @cached_property
    def _sum(self) -> Floats:
        """U = M_δv 1, shape (z,)."""
        return self._map.apply(np.ones(self.randomizer.symbols))

    @cached_property
    def _square(self) -> Floats:
        """M_δv M_δv', shape (z, z)."""
        return self._map.sandwich(np.ones(self.randomizer.symbols))


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
class KaryChangeCounterpart(_OneNamed[KaryChange]):
    """A change is told with probability `gap`; every other report is uniform, and cancels out in M_δv O."""

    def input_counts(self, tally: NodeTally) -> Floats:
        """Unbiased for how many reports came from each input, shape (m,).

        n_c = (n - m·O_0) / gap entries changed, and of those ŝ_v = (O_v - (n - gap·n_c)/m) / gap are v.
        """
        m, O = self.randomizer.symbols, tally.slots.astype(np.float64)
        uniform = m * O[0]  # reports that were uniform, as only those can be of the symbol 0
        s: Floats = (O - uniform / m) / self.gap
        s[0] = tally.reports - (tally.reports - uniform) / self.gap
        return s

    def estimate(self, tally: NodeTally) -> Estimate:
        """M_δv O / gap, with the covariance M_δv diag(O) M_δv' / gap² - M_δv diag(ŝ) M_δv'."""
        values = self._map.apply(tally.slots.astype(np.float64)) / self.gap
        return Estimate(values, self.squares(tally) - self._map.sandwich(self.input_counts(tally)))

    def squares(self, tally: NodeTally) -> Floats:
        """M_δv diag(O) M_δv' / gap²."""
        return self._map.sandwich(tally.slots.astype(np.float64)) / self.gap**2

    def changed(self, tallies: Sequence[NodeTally]) -> Floats:
        """From how often the symbol 0 was sent, which nobody favours."""
        m = self.randomizer.symbols
        return np.array([tally.reports - m * tally.slots[0] for tally in tallies], np.float64) / self.gap

    def report_covariance(self, true: int) -> Floats:
        """{(1 - gap)/m · M_δv M_δv' + gap δδ'} / gap² - δδ'; without a change the first term, with gap = 0 inside."""
        self.randomizer.space.pair(true)  # raises outside the space
        m, told = self.randomizer.symbols, self.gap if true else 0.0
        every = self._map.sandwich(np.ones(m))
        delta = self._map.apply(np.eye(1, m, true)[0])
        covariance: Floats = ((1 - told) / m * every + told * np.outer(delta, delta)) / self.gap**2
        return covariance - np.outer(delta, delta)

    def likelihoods(self, u: int, v: int) -> Likelihoods:
        """Three classes: the symbol u, the symbol v, and all others."""
        randomizer, m = self.randomizer, self.randomizer.symbols
        named = {u, v}
        rest = next((symbol for symbol in range(m) if symbol not in named), 0)
        classes = [(randomizer.weight(o, u), randomizer.weight(o, v), 1) for o in named]
        if len(named) < m:
            classes.append((randomizer.weight(rest, u), randomizer.weight(rest, v), m - len(named)))
        return merged(classes, randomizer.total(u), randomizer.total(v))

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """A change is told with chance `gap`; every other report is uniform over all symbols."""
        told = generator.binomial(counts, self.gap)
        told[:, 0] = 0
        return self._with_uniform(told, counts, generator)

    @cached_property
    def gap(self) -> float:
        """(P - p)/(1 - p): how likely a change sends its own symbol, less how likely any other."""
        odds = self.randomizer.odds
        return (odds.favoured - odds.other) / self.randomizer.total(1)


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
class BasedCounterpart(CountedCounterpart[BasedResponse]):
    """The counterpart of a state that is told, or else drawn from a base: v̂ = (O - n·q) / γ, answer by answer.

    q is how often the base is sent, and is an answer: `answer` over the sum of the weights.
    """

    answers_alike = True

    @property
    def told(self) -> float:
        """γ, how likely the truth is told."""
        return self.randomizer.truth / self.randomizer.total()

    @property
    def _q(self) -> float:
        return self.randomizer.answer / self.randomizer.total()

    def estimate(self, tally: NodeTally) -> Estimate:
        """The values, with the covariance A diag(O) A' - diag(v̂)."""
        values: Floats = (tally.slots[1:].astype(np.float64) - tally.reports * self._q) / self.told
        return Estimate(values, self.squares(tally) - np.diag(values))

    def squares(self, tally: NodeTally) -> Floats:
        """{ diag(O) - O q' - q O' + n q q' } / γ²."""
        O, q = tally.slots[1:].astype(np.float64), self._q
        squares: Floats = (np.diag(O) - q * (O[:, None] + O[None, :]) + tally.reports * q * q) / self.told**2
        return squares

    def report_covariance(self, true: int) -> Floats:
        """{ diag(p) - p p' } / γ², p being how likely each answer is sent."""
        self.randomizer.space.pair(true)  # raises outside the space
        p = self._q + self.told * np.eye(self.randomizer.symbols)[true, 1:]
        covariance: Floats = (np.diag(p) - np.outer(p, p)) / self.told**2
        return covariance

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:  # noqa: ARG002
        """NULL against an answer, an answer against NULL, and one answer against another."""
        return [(0, 1), (1, 0), (1, 2)][: 3 if self.randomizer.space.answers > 1 else 2]

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """A report is the truth with probability γ, and else drawn from the base."""
        kept: Counts = generator.binomial(counts, self.told)
        base = np.full(self.randomizer.symbols, float(self.randomizer.answer))
        base[0] = self.randomizer.null
        others: Counts = generator.multinomial(counts.sum(1) - kept.sum(1), base / base.sum())
        return kept + others


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
def _unary_states(space: StateSpace, odds: Odds) -> Iterable[UnaryEncoding]:
    return (UnaryEncoding(space, odds),) if 2 <= space.size <= MOST_BITS else ()


register_counterpart(UnaryEncoding, UnaryCounterpart, states=_unary_states)

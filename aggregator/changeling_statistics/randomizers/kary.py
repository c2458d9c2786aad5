"""k-ary randomized response, and that of changes whose "no change" is uniform, decoded in closed form.

Decoding takes O(m) steps, and no matrix over the alphabet is built.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache

import numpy as np
from changeling_protocol import KaryChange, KaryResponse, Losses, MutationSpace, Space

from ..estimate import Counts, Estimate, Floats, NodeTally
from .counted import CountedCounterpart
from .counterpart import (
    ANY_ODDS,
    ONE_CHANGE,
    Blanket,
    ChangeMap,
    ChangeOffers,
    Likelihoods,
    PairKind,
    change_map,
    merged,
    offer_of,
    one_pair,
    register_counterpart,
    sample_inputs,
)

UNIT_LOSSES = Losses(mutations=Decimal(1), appears=Decimal(1), vanishes=Decimal(1), insertions=Decimal(1))
"""The losses of a report in units of ln(a/b). A mutation costs one where it appears, and one where it vanishes."""


@dataclass(frozen=True)
class KaryCounterpart(CountedCounterpart[KaryResponse]):
    """The counterpart of k-RR: column o of the decoder A is (M_o - q·U) / (p - q), where U = M_δv 1."""

    answers_alike = True

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

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """One pair, as all are told apart equally well."""
        return one_pair(self.randomizer.space, kind)

    @property
    def blanket(self) -> Blanket:
        """Uniform with probability m·q, else the truth."""
        total = self.randomizer.total()
        return Blanket(self.randomizer.odds.favoured / total, self._q, self.randomizer.symbols)

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """A report is the truth with probability p - q = (a - b)/total, and else uniform over all symbols."""
        m, odds = self.randomizer.symbols, self.randomizer.odds
        kept: Counts = generator.binomial(counts, (odds.favoured - odds.other) / self.randomizer.total())
        uniform: Counts = generator.multinomial(counts.sum(1) - kept.sum(1), np.full(m, 1 / m))
        return kept + uniform

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """A report that agrees is the input, and any other is uniform over the rest."""
        return sample_inputs(agreed, others, generator)

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

    @property
    def _map(self) -> ChangeMap:
        return change_map(self.randomizer.space)

    @cached_property
    def _sum(self) -> Floats:
        """U = M_δv 1, shape (z,)."""
        return self._map.apply(np.ones(self.randomizer.symbols))

    @cached_property
    def _square(self) -> Floats:
        """M_δv M_δv', shape (z, z)."""
        return self._map.sandwich(np.ones(self.randomizer.symbols))


@lru_cache(maxsize=1024)
def _agreeing(space: Space, p: float) -> Iterable[KaryResponse]:  # noqa: ARG001
    """k-RR of states, with p = 1/m. No change tells something too, so there is no joint form for changes."""
    return () if space.reports_changes or space.size < 2 else (KaryResponse(space, ANY_ODDS),)


register_counterpart(
    KaryResponse,
    KaryCounterpart,
    states=lambda space, odds: (offer_of(KaryResponse(space, odds)),),
    agreeing=_agreeing,
    changes=ChangeOffers(
        UNIT_LOSSES,
        lambda space, odds, moved, closed: (offer_of(KaryResponse(space, odds), closed),),  # noqa: ARG005
    ),
)


MOST_PLANNED_SYMBOLS = 200
"""With more symbols it is not offered: signed subsets are far better then, and it is slow to look at."""


@dataclass(frozen=True)
class KaryChangeCounterpart(CountedCounterpart[KaryChange]):
    """A change is told with probability `gap`; every other report is uniform, and cancels out in M_δv O."""

    answers_alike = True

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

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """One pair, as all are told apart equally well."""
        return one_pair(self.randomizer.space, kind)

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """A change is told with chance `gap`; every other report is uniform over all symbols."""
        m = self.randomizer.symbols
        told: Counts = generator.binomial(counts, self.gap)
        told[:, 0] = 0
        uniform: Counts = generator.multinomial(counts.sum(1) - told.sum(1), np.full(m, 1 / m))
        return told + uniform

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """A report that agrees is the input, and any other is uniform over the rest."""
        return sample_inputs(agreed, others, generator)

    @cached_property
    def gap(self) -> float:
        """(P - p)/(1 - p): how likely a change sends its own symbol, less how likely any other."""
        odds = self.randomizer.odds
        return (odds.favoured - odds.other) / self.randomizer.total(1)

    @property
    def _map(self) -> ChangeMap:
        return change_map(self.randomizer.space)


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
        lambda space, odds, moved, closed: (offer_of(KaryChange(space, odds), closed),),  # noqa: ARG005
    ),
)

"""k-RR of changes whose "no change" is uniform, decoded in closed form: symbols are counted and scaled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from changeling_protocol import KaryChange, MutationSpace, Odds, Space

from ..estimate import Estimate, Floats
from ..tallies import Counts, NodeTally
from .agreement import sample_inputs
from .change_map import ChangeMap, change_map
from .counted import Counted
from .likelihoods import Likelihoods, PairKind, merged, one_pair
from .offers import ANY_ODDS, ONE_CHANGE, ChangeOffers, Offer
from .registry import register
from .variances import offer_of

MOST_PLANNED_SYMBOLS = 200
"""With more symbols it is not offered: signed subsets are far better then, and it is slow to look at."""


@dataclass(frozen=True)
class KaryChangeCounterpart(Counted[KaryChange]):
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
def _changes(space: MutationSpace, odds: Odds, closed: bool) -> Iterable[Offer]:
    return (offer_of(KaryChange(space, odds), closed),)


@lru_cache(maxsize=1024)
def _agreeing(space: Space, p: float) -> Iterable[KaryChange]:  # noqa: ARG001
    """For changes, with p = 1/m."""
    if not isinstance(space, MutationSpace) or space.repeats or space.size > MOST_PLANNED_SYMBOLS:
        return ()
    return (KaryChange(space, ANY_ODDS),) if space.size > 1 else ()


register(
    KaryChange,
    KaryChangeCounterpart,
    agreeing=_agreeing,
    changes=ChangeOffers(ONE_CHANGE, lambda space, odds, moved, closed: _changes(space, odds, closed)),  # noqa: ARG005
)

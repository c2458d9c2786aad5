"""The best randomizer for a report: the one with the least expected variance at the same charge.

Of states k-RR, subset selection and unary encoding compete; of changes k-RR and signed subsets with every number of
pluses, each at its best chance u to speak. Variances are in entries squared, mean over the answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import sqrt

from changeling_protocol import (
    KaryResponse,
    MutationSpace,
    Odds,
    Randomizer,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)

from ..estimation.expected import Variances, class_variances
from .losses import KARY, SIGNED, Span, odds_within, reports_that_tell
from .wish import Wish

BALANCED = 0
FINEST = 2**32
"""u is a fraction of this."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed subset that is worked out but not yet made: making one is slow, and most are not chosen."""

    answers: int
    odds: Odds
    pluses: int
    spoken: Fraction

    def make(self) -> SignedSubset:
        return SignedSubset(MutationSpace(self.answers), self.odds, self.pluses, self.spoken)


@dataclass(frozen=True, slots=True)
class Choice:
    """A randomizer and the variances of one report by what an entry did.

    conserved: the same where what is measured adds up to zero, which changes in a closed cohort do.
    """

    randomizer: Randomizer | Signed
    variances: Variances
    conserved: Variances

    def make(self) -> Randomizer:
        return self.randomizer.make() if isinstance(self.randomizer, Signed) else self.randomizer


@lru_cache(maxsize=1024)
def best_state(answers: int, null: bool, budget: Decimal, reports: int) -> Choice | None:
    """For an entry that reports its state so often; None where the budget says nothing."""
    odds = odds_within(budget, Decimal(reports))
    if odds is None:
        return None
    space = StateSpace(answers, null)
    known = [(each, class_variances(each, False)) for each in _state_randomizers(space, odds)]
    found = [Choice(each, variances, variances) for each, variances in known]
    return min(found, key=lambda choice: choice.variances.came, default=None)


def best_change(wish: Wish, span: Span, budget: Decimal, moved: float) -> Choice | None:
    """For the nodes of a span, on which a share `moved` of the entries changes its answer."""
    closed, z = wish.closed, wish.answers
    found: list[Choice] = []
    kary = odds_within(budget, reports_that_tell(wish, span, KARY))
    if kary is not None:
        found.append(_kary(z, kary, closed))
    signed = odds_within(budget, reports_that_tell(wish, span, SIGNED))
    if signed is not None:
        found += [_signed(z, signed, pluses, moved, closed) for pluses in (BALANCED, *range(1, z // 2 + 1))]
    return min(found, key=lambda choice: (choice.conserved if closed else choice.variances).mixed(moved), default=None)


def _state_randomizers(space: StateSpace, odds: Odds) -> Iterator[Randomizer]:
    m, ratio = space.size, odds.favoured / odds.other
    yield KaryResponse(space, odds)
    best = m / (ratio + 1)  # Ye and Barg 2018
    for chosen in {int(best), int(best) + 1} - {0, 1}:
        if chosen < m:
            try:
                yield SubsetSelection(space, odds, chosen)
            except ValueError:  # too many sets for a fixed-width symbol
                continue
    if 2 <= m <= 62:
        yield UnaryEncoding(space, odds)


@lru_cache(maxsize=1024)
def _kary(answers: int, odds: Odds, closed: bool) -> Choice:
    response = KaryResponse(MutationSpace(answers), odds)
    return Choice(response, class_variances(response, False), class_variances(response, closed))


def _signed(answers: int, odds: Odds, pluses: int, moved: float, closed: bool) -> Choice:
    """At the u that is best where a share `moved` changes: uK = √(1 + moved (η + K w) / ((1 - moved) η)), u <= 1."""
    shape = _Shape.of(answers, pluses, closed)
    K = shape.favoured * (odds.favoured / odds.other - 1)
    steady, changed = max(1 - moved, 1e-9) * shape.nonzero, moved * (shape.nonzero + K * shape.moved)
    u = min(1.0, sqrt(1 + changed / steady) / K)
    spoken = Fraction(1) if u == 1 else Fraction(max(1, round(u * FINEST)), FINEST)
    plain = _Shape.of(answers, pluses, False).variances(float(spoken), K)
    return Choice(Signed(answers, odds, pluses, spoken), plain, shape.variances(float(spoken), K))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the variances of a signed subset depend on besides u and K, from symmetry (estimation/decoders).

    favoured: π, the share of vectors a mutation favours. nonzero: the second moment of a sign, mean over the
    answers; came and moved: of a favoured vector's. less_came, less_moved: δ² to take off.
    """

    favoured: float
    nonzero: float
    came: float
    moved: float
    less_came: float
    less_moved: float

    @classmethod
    def of(cls, answers: int, pluses: int, conserved: bool) -> "_Shape":
        z, d = answers, answers + 1
        low, high = (pluses, pluses) if pluses else (d // 2, d - d // 2)
        odd = (high - low) ** 2
        eta, xi = _moments(d, low + high, odd)
        eta_rest, xi_rest = _moments(d - 2, low + high - 2, odd)
        if not conserved:
            ends = min(2, z)  # how many answers a mutation touches that is no insertion, as far as there is one
            came, moved = (1 + (z - 1) * eta_rest) / z, (ends + (z - ends) * eta_rest) / z
            return cls(low * high / (d * (d - 1)), eta, came, moved, 1 / z, ends / z)
        total = (z - 2) * (eta_rest + (z - 3) * xi_rest)  # of the rest; the two of the mutation add up to zero
        moved = (2 + (z - 2) * eta_rest - total / z) / z
        return cls(low * high / (d * (d - 1)), (eta - xi) * (1 - 1 / z), moved, moved, 2 / z, 2 / z)

    def variances(self, u: float, K: float) -> Variances:
        Z = 1 + u * K
        c = Z / (u * K)
        return Variances(
            none=c * c * u * self.nonzero,
            came=c * c * u / Z * self.nonzero + c * self.came - self.less_came,
            moved=c * c * u / Z * self.nonzero + c * self.moved - self.less_moved,
        )


def _moments(positions: int, signs: int, odd: int) -> tuple[float, float]:
    """E w_i² and E w_i w_j of uniform vectors with so many signs that add up to ±√odd."""
    if positions < 1:
        return 0.0, 0.0
    pair = (odd - signs) / (positions * (positions - 1)) if positions > 1 else 0.0
    return signs / positions, pair

"""The signed subsets that the planner may choose: every number of pluses, each at its best chance u to speak.

Their variances are a closed form in u and K, as the search tries many and makes few.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import comb, sqrt

from changeling_protocol import MutationSpace, Odds, SignedSubset
from changeling_protocol.randomizers import BALANCED, SYMBOL_LIMIT, Losses

from ..offers import Offer, Variances
from .moments import SignMoments

UNIT_LOSSES = Losses(mutations=Decimal(1), appears=Decimal("0.5"), vanishes=Decimal("0.5"), insertions=Decimal(1))
"""In units of λ; how λ divides between appearing and vanishing does not change cost(κ, N)."""
FINEST = 2**32
"""u is a fraction of this."""


def changes(answers: int, odds: Odds, moved: float, closed: bool) -> Iterator[Offer]:
    """One offer for every number of pluses whose vectors fit into a symbol."""
    for pluses in (BALANCED, *range(1, answers // 2 + 1)):
        if _fits(answers + 1, pluses):
            yield offer(answers, odds, pluses, moved, closed)


def offer(answers: int, odds: Odds, pluses: int, moved: float, closed: bool) -> Offer:
    """At the u that is best where a share `moved` changes: uK = √(1 + moved (η + K w) / ((1 - moved) η)), u <= 1.

    w is the mean over the answers of a favoured vector's second moment.
    """
    shape = _Shape.of(answers, pluses, closed)
    K = shape.favoured * (odds.favoured / odds.other - 1)
    steady, changed = max(1 - moved, 1e-9) * shape.nonzero, moved * (shape.nonzero + K * shape.moved)
    u = min(1.0, sqrt(1 + changed / steady) / K)
    spoken = Fraction(1) if u == 1 else Fraction(max(1, round(u * FINEST)), FINEST)
    return Offer(
        make=partial(SignedSubset, MutationSpace(answers), odds, pluses, spoken),
        variances=_Shape.of(answers, pluses, False).variances(float(spoken), K),
        conserved=shape.variances(float(spoken), K),
    )


def _fits(states: int, pluses: int) -> bool:
    """Whether the vectors and "nothing" have fewer symbols than a column can number."""
    low, high = (pluses, pluses) if pluses else (states // 2, states - states // 2)
    return comb(states, low) * comb(states - low, high) * (1 if low == high else 2) + 1 < SYMBOL_LIMIT


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the variances of a signed subset depend on besides u and K.

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
        z, signs = answers, SignMoments.of(answers + 1, pluses)
        if not conserved:
            ends = min(2, z)  # how many answers a mutation touches that is no insertion, as far as there is one
            came, moved = (1 + (z - 1) * signs.nonzero_rest) / z, (ends + (z - ends) * signs.nonzero_rest) / z
            return cls(signs.favoured, signs.nonzero, came, moved, 1 / z, ends / z)
        # The signs of the mutation's two states add up to zero, so the sum over the answers is that of the rest.
        total = (z - 2) * (signs.nonzero_rest + (z - 3) * signs.pair_rest)
        moved = (2 + (z - 2) * signs.nonzero_rest - total / z) / z
        return cls(signs.favoured, (signs.nonzero - signs.pair) * (1 - 1 / z), moved, moved, 2 / z, 2 / z)

    def variances(self, u: float, K: float) -> Variances:
        Z = 1 + u * K
        c = Z / (u * K)
        return Variances(
            none=c * c * u * self.nonzero,
            came=c * c * u / Z * self.nonzero + c * self.came - self.less_came,
            moved=c * c * u / Z * self.nonzero + c * self.moved - self.less_moved,
        )

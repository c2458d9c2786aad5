"""The signed subsets that the planner may choose: one for every number of pluses, each at its best u.

Their variances are in closed form, as the planner compares many randomizers and makes few.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import comb, sqrt

from changeling_protocol import BALANCED, SYMBOL_LIMIT, MutationSpace, Odds, SignedSubset, Space

from ..offers import ANY_ODDS, Offer, Variances
from .moments import SignMoments

FINEST = 2**32
"""u is a whole number of such parts."""


def changes(space: MutationSpace, odds: Odds, moved: float, closed: bool) -> Iterator[Offer]:
    """One offer for every number of pluses whose vectors fit into a symbol.

    space, odds, moved, closed: as for `offer`.
    """
    for pluses in shapes(space):
        yield offer(space, odds, pluses, moved, closed)


def agreeing(space: Space, p: float) -> Iterator[SignedSubset]:
    """For every number of pluses the u at which a vector of the base agrees with probability p, if there is one."""
    if isinstance(space, MutationSpace) and not space.repeats:
        for pluses in shapes(space):
            spoken = round(p / SignMoments.of(space.states, pluses).favoured * FINEST)
            if 1 <= spoken <= FINEST:
                yield SignedSubset(space, ANY_ODDS, pluses, Fraction(spoken, FINEST))


def shapes(space: MutationSpace) -> Iterator[int]:
    """Every number of pluses whose vectors fit into a symbol, the balanced ones first."""
    for pluses in (BALANCED, *range(1, (space.states - 1) // 2 + 1)):
        if space.states > 1 and _fits(space.states, pluses):
            yield pluses


def offer(space: MutationSpace, odds: Odds, pluses: int, moved: float, closed: bool) -> Offer:
    """The offer of one number of pluses, at the best u for entries of which a share moves.

        uK = √(1 + moved (η + K w) / ((1 - moved) η)), as far as u <= 1

    w is the mean over the answers of E w_i² in a favoured vector.

    space: the mutations.
    odds: a:b.
    pluses: j, or 0 for balanced vectors.
    moved: the share of the entries that move on a node.
    closed: whether the cohort is closed, so that changes add up to zero over the answers.
    """
    shape = _Shape.of(space, pluses, closed)
    K = shape.favoured * (odds.favoured / odds.other - 1)
    steady, changed = max(1 - moved, 1e-9) * shape.nonzero, moved * (shape.nonzero + K * shape.moved)
    u = min(1.0, sqrt(1 + changed / steady) / K)
    spoken = Fraction(1) if u == 1 else Fraction(max(1, round(u * FINEST)), FINEST)
    return Offer(
        make=partial(SignedSubset, space, odds, pluses, spoken),
        variances=_Shape.of(space, pluses, False).variances(float(spoken), K),
        conserved=shape.variances(float(spoken), K),
    )


def _fits(states: int, pluses: int) -> bool:
    """Whether the vectors and "nothing" are fewer than SYMBOL_LIMIT."""
    low, high = (pluses, pluses) if pluses else (states // 2, states - states // 2)
    return comb(states, low) * comb(states - low, high) * (1 if low == high else 2) + 1 < SYMBOL_LIMIT


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the variances of a signed subset depend on besides u and K, mean over the answers.

    favoured: π, the share of vectors that a mutation favours.
    nonzero: the mean square of a sign of a uniform vector.
    came, moved: the mean square of a sign of a vector that an insertion favours, or a move.
    less_came, less_moved: the square of what is told, δ², of an insertion, or a move.
    """

    favoured: float
    nonzero: float
    came: float
    moved: float
    less_came: float
    less_moved: float

    @classmethod
    def of(cls, space: MutationSpace, pluses: int, conserved: bool) -> "_Shape":
        """conserved: whether changes add up to zero over the answers, so that every change is a move."""
        z, signs = space.answers, SignMoments.of(space.states, pluses)
        if not conserved:
            ends = min(2, z)  # how many answers a mutation touches that is no insertion, as far as there is one
            came, moved = (1 + (z - 1) * signs.nonzero_rest) / z, (ends + (z - ends) * signs.nonzero_rest) / z
            return cls(signs.favoured, signs.nonzero, came, moved, 1 / z, ends / z)
        # The signs of the mutation's two states add up to zero, so the sum over the answers is that of the rest.
        total = (z - 2) * (signs.nonzero_rest + (z - 3) * signs.pair_rest)
        moved = (2 + (z - 2) * signs.nonzero_rest - total / z) / z
        return cls(signs.favoured, (signs.nonzero - signs.pair) * (1 - 1 / z), moved, moved, 2 / z, 2 / z)

    def variances(self, u: float, K: float) -> Variances:
        """Second moments of what a report decodes to, c²uη without a change, c²uη/Z + c·(came or moved), less δ²."""
        Z = 1 + u * K
        c = Z / (u * K)
        return Variances(
            none=c * c * u * self.nonzero,
            came=c * c * u / Z * self.nonzero + c * self.came - self.less_came,
            moved=c * c * u / Z * self.nonzero + c * self.moved - self.less_moved,
        )

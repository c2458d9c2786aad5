"""Fresh levels: every level with noise of its own, and one draw that all levels have in common.

Guarantee: epsilon, (epsilon, delta) or rho-zCDP for all periods together, whatever an entry does: no bound on mutations
is needed. Neighbours: as for DCR. An entry that is counted or not moves a level by 0 or 1. With one draw v in common,
the levels v + z_t of "counted" are told apart from those of "nobody" as if v moved by 1/2 and each z_t by 1/2 to one
side or the other, which costs half as much, a quarter in squares: over T periods the mean squared error of a count is

    (1 + T^(2/3))³ / 2ε² in place of 2 T²/ε²         ((1 + √T)/2)² / 2ρ in place of T / 2ρ

(docs/mathematics.md, "Central releases"). Where the centre is of no use, as at a pure epsilon for entries that go from
one column of a histogram to another, nothing is drawn in common.

Gaussian noise is drawn on a lattice of 2^-bits units, as for the square root; a level is the true one and whole lattice
steps. The state holds the true level and the common draw, so keep it where the changelog is kept. Source: Dwork,
McSherry, Nissim, Smith 2006, level by level; matrix mechanisms: Li, Hay, Rastogi, Miklau, McGregor 2010.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ldexp, sqrt

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Counts, Floats

from .errors import BadState
from .linear_query import LinearQuery
from .mechanism import Change, Level, LevelMechanism, check_counted, check_counts, checked_change, level_with_noise
from .noise import ABOVE, Law, NodeNoise, Noise, float_above
from .square_root import lattice_bits


@dataclass(frozen=True, slots=True, eq=False)
class LevelsState:
    """period: how many have been taken in. level: true, (w,), in units. common: of all levels, on the lattice."""

    period: int
    level: Counts
    common: Counts


@dataclass(frozen=True, slots=True)
class FreshLevels(LevelMechanism[LevelsState]):
    """Made by `laplace_levels` or `gaussian_levels`.

    own, common: the scales of a level's own draw and of the common one, which is 0 where there is none, on the lattice
    of 2^-bits units.
    """

    kind = "fresh"
    source = "Dwork, McSherry, Nissim, Smith 2006, level by level; Li, Hay, Rastogi, Miklau, McGregor 2010"
    query: LinearQuery
    calendar: Calendar
    law: Law = field()
    bits: int
    own: float
    common: float
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    @property
    def noise_in_words(self) -> str:
        """The law, and the scales in the query's units."""
        common = f", and {ldexp(self.common, -self.bits):.6g} once for all of them" if self.common else ""
        return f"fresh; law {self.law}, scale {ldexp(self.own, -self.bits):.6g} a level{common}"

    def costs_at_most(self, length: float, constraint: Constraint) -> bool:  # noqa: ARG002
        """Check that no entry, whatever it does, costs more than epsilon, or moves the levels by more than `length`."""
        if self.law is Law.GAUSSIAN:
            ratio = self.common / self.own
            return _lattice_shift(self.query, self.calendar.periods, ratio, self.bits) <= length * self.own
        plain, centred = _sizes(self.query)
        if not self.common:
            return plain * self.calendar.periods <= self.epsilon * Fraction(self.own)
        own, common = Fraction(self.own), Fraction(self.common)
        return centred is not None and centred * (self.calendar.periods / own + 1 / common) <= self.epsilon

    def start(self) -> LevelsState:
        """Before the first period; nothing is drawn."""
        nothing = np.zeros(self.query.width, np.int64)
        return LevelsState(0, nothing, nothing)

    def step(self, state: LevelsState, value: Change, noise: Noise) -> tuple[LevelsState, Level]:
        """One more period; the first one draws what all have in common."""
        period, width = self.next_period(state.period), self.query.width
        change = checked_change(value, width)
        common = state.common
        if self.common and state.period == 0:
            common = NodeNoise(self.law, self.common).draw(noise, width)
        after = LevelsState(period, state.level + change, common)
        drawn = common + NodeNoise(self.law, self.own).draw(noise, width)
        return after, Level(level_with_noise(after.level, drawn, self.bits), self.variance(after.period))

    def check(self, state: LevelsState) -> None:
        """Raises BadState for more periods than the calendar has, other columns, or a common draw that there is not."""
        self.check_period(state.period)
        check_counts(state.level, (self.query.width,))
        check_counts(state.common, (self.query.width,))
        if state.common.any() and not (self.common and state.period):
            raise BadState("the state holds a common draw, and none is drawn by then")

    @property
    def variances(self) -> tuple[float, float]:
        """Variances of a level's own draw and of the common one, in units squared."""
        of_own, of_common = (NodeNoise(self.law, s).variance if s else 0.0 for s in (self.own, self.common))
        return ldexp(of_own, -2 * self.bits), ldexp(of_common, -2 * self.bits)

    @property
    def covariance(self) -> Floats:
        """Of the noise of a column's levels, shape (periods, periods), in units squared."""
        own, common = self.variances
        return np.eye(self.calendar.periods) * own + common

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every level, in units squared."""
        return sum(self.variances)

    def window_variance(self, step: int, window: int) -> float:
        """Variance of a window's change: what two levels share cancels; before the calendar there is no noise."""
        own, common = self.variances
        return 2 * own if step > window else own + common


def laplace_levels(query: LinearQuery, calendar: Calendar, epsilon: Fraction) -> FreshLevels:
    """The levels with Laplace noise that cost an entry at most epsilon in all, whatever it does.

    ValueError for an epsilon that is none and for a query that counts nothing.
    """
    if epsilon <= 0:
        raise ValueError(f"a budget has epsilon > 0, got {epsilon}")
    check_counted(query)
    (plain, centred), T = _sizes(query), calendar.periods
    alone = FreshLevels(query, calendar, Law.LAPLACE, 0, float_above(T * plain / epsilon), 0.0, epsilon, Fraction(0))
    if centred is None:
        return alone
    share = Fraction(1 / (1 + T ** (2 / 3)))  # of epsilon, for the common draw: the least error of both together
    own, common = (float_above(size / epsilon) for size in (T * centred / (1 - share), centred / share))
    beside = FreshLevels(query, calendar, Law.LAPLACE, 0, own, common, epsilon, Fraction(0))
    return min(alone, beside, key=lambda levels: levels.variance(1))


def gaussian_levels(
    query: LinearQuery, calendar: Calendar, length: float, epsilon: Fraction, delta: Fraction
) -> FreshLevels:
    """The levels with Gaussian noise that no entry moves by more than `length` scales, which costs (epsilon, delta).

    length: of `told_apart` or `concentrated_length`. ValueError for a query that counts nothing, and noise of more than
    2^30 units.
    """
    from scipy.optimize import minimize_scalar  # loads slowly

    T = calendar.periods
    check_counted(query)

    def error(weight: float) -> float:
        ratio = _ratio(weight, T)
        return _squares(query, T, ratio) * (1 + ratio**2)

    found = float(minimize_scalar(error, bounds=(0, 1 - 1e-9), method="bounded", options={"xatol": 1e-6}).x)
    ratio = _ratio(found, T) if error(found) < error(0.0) else 0.0
    bits = lattice_bits(sqrt(_squares(query, T, ratio)) / length)
    own = _lattice_shift(query, T, ratio, bits) / length * ABOVE
    return FreshLevels(query, calendar, Law.GAUSSIAN, bits, own, ratio * own, epsilon, delta)


def _sizes(query: LinearQuery) -> tuple[Fraction, Fraction | None]:
    """By how much an entry moves a level, sizes added up over the columns; and half of how far its range is.

    The second is None where no bound is known that is less.
    """
    ranges = [max(0, *column) - min(0, *column) for column in zip(*query.ends, strict=True)]
    plain, centred = Fraction(query.extent.appears[0]), Fraction(sum(ranges), 2)
    return plain, centred if ranges and centred < plain else None


def _ratio(weight: float, periods: int) -> float:
    """The scale of the common draw over that of a level's own. weight: of the common draw in the mean of all levels."""
    return sqrt(weight / (1 - weight) / periods)


def _squares(query: LinearQuery, periods: int, ratio: float) -> float:
    """The most that an entry moves all draws by, squared and added up, in scales of a level's own; an upper bound.

        T max over what it counts for, f, of |f|² - 2 q c·f, and of 0, + T q |c|²,   q = T ratio² / (1 + T ratio²)

    for the best c along the middle of all f: the common draw is moved by q c, and each other by f - q c.
    """
    from scipy.optimize import minimize_scalar

    q = periods * ratio**2 / (1 + periods * ratio**2)
    squares, along, length = _directions(query)
    if not q or not length:
        return periods * max(squares)

    def moved(at: float) -> float:
        most = max(0.0, *(square - 2 * q * at * part for square, part in zip(squares, along, strict=True)))
        return most + q * at * at * length

    reach = max(squares) / max(map(abs, along)) / q
    best = minimize_scalar(moved, bounds=(-reach, reach), method="bounded", options={"xatol": 1e-12 * reach})
    return periods * min(moved(0.0), float(best.fun))


def _directions(query: LinearQuery) -> tuple[Sequence[float], Sequence[float], float]:
    """For all that an entry may count for: |f|² and f·m, m being the middle's direction; and |m|², 0 if unknown."""
    if query.fixed:  # it counts for one f or for nothing, and the middle is half of that
        square = float(query.extent.appears[1])
        return (square,), (square,), square
    corners = np.array(query.corners if query.corners or query.width > 1 else query.ends, np.float64)
    if not corners.size and sum(query.appearing) == 1:  # one column of a histogram at a time
        return (1.0,), (1.0,), float(query.width)
    middle = corners.sum(0) if corners.size else np.zeros(1)
    if not middle.any():
        return (float(query.extent.appears[1]),), (0.0,), 0.0
    return (corners**2).sum(1).tolist(), (corners @ middle).tolist(), float(middle @ middle)


def _lattice_shift(query: LinearQuery, periods: int, ratio: float, bits: int) -> float:
    """By how much an entry moves all draws on the lattice, in steps of it: q c is rounded to the lattice."""
    exact = ldexp(sqrt(_squares(query, periods, ratio)), bits)
    return exact + (sqrt(query.width) / 2 * (sqrt(periods) + 1 / ratio) if ratio else 0.0)

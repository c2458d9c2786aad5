"""How far one entry moves what a Toeplitz strategy measures: ‖C x‖², the most over all that an entry can do.

x is the entry's change of the query, period by period. C is as in `toeplitz`: c falls from 1 and is never negative, and
the whole root is convex as well. N is the square of C's first column, F(d) that of the first less the one d periods
later, which is what an entry does that is there for d periods:

    N = Σ c_i²      F(d) = Σ (c_i - c_{i-d})²

Whatever an entry does, it does most if it begins in the first period. One that comes and goes n times is a sum of n
such differences, of which no two have a positive product where c is convex; without that, its Gram matrix falls with
distance, and the sum of an alternating falling series lies between its first term and 0. So, with at most k periods:

    N                                 k = 1, exact
    max(N, max F(d))                  k = 2, exact
    ⌊k/2⌋ max F + (k odd) N           whole root;  (k - 2) N + max(N, max F) cut off
    the best of intervals that fit    within a window, whole root

From k = 3 on, and for sums of both signs and means, the periods of the mutations are searched as well (`patterns`),
which is exact wherever the search ends, and the smaller of the two is taken.

Proofs: docs/mathematics.md, "Square roots". Reads no data.
"""

from functools import lru_cache
from math import inf, sqrt

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats

from ..changes.body import State
from ..changes.linear_query import LinearQuery
from .patterns import most_of_patterns
from .reach import Reach, reaches
from .toeplitz import square_root_coefficients

ABOVE = 1 + 1e-9
"""What a bound is raised by, to stand above all rounding of its computation."""
COUNTED: tuple[State, ...] = ((0,), (1,))
"""The corners of an entry that is counted or not."""
LARGEST_WINDOW = 4096
"""Intervals are fitted into windows of so many periods; wider ones are made of such."""


def squared_sensitivity(query: LinearQuery, calendar: Calendar, constraint: Constraint, band: int) -> float:
    """The most that ‖C x‖² can be for an entry that keeps to the constraint, in units squared, rounded up.

    Exact for a count, a sum, a mean, a histogram of several columns, or a query of fixed answers, where entries mutate
    at most three times on a calendar, or within a window, of up to 3,000 periods, four times of hundreds, or as often
    as they will within a window of 15; elsewhere an upper bound. band: how many coefficients the strategy has.
    """
    return ABOVE * max(_of_reach(query, calendar.periods, reach, band) for reach in reaches(constraint, calendar))


def most_moved(query: LinearQuery, calendar: Calendar, constraint: Constraint) -> int:
    """The most that Σ |x| can be over all columns and periods, in units."""
    extent = query.extent
    return max(extent.appears[0] + (reach.periods - 1) * extent.moves[0] for reach in reaches(constraint, calendar))


def _of_reach(query: LinearQuery, periods: int, reach: Reach, band: int) -> float:
    factor, corners = _corners(query, reach.periods)
    if corners == COUNTED:
        closed = _alternating(periods, band, reach)
    elif query.width == 1:
        closed = float(max(*query.appearing, *query.moving) ** 2) * _alternating(periods, band, reach)
    elif corners and not query.corners:
        closed = _between_columns(periods, band, reach)
    else:
        first, later = (sqrt(squares) for _, squares in (query.extent.appears, query.extent.moves))
        closed = float(_columns(periods, band)[0]) * (first + (reach.periods - 1) * later) ** 2
    if corners and not (reach.periods <= 2 and set(corners) <= set(_units(len(corners[0])))):  # exact as it is
        closed = min(closed, most_of_patterns(corners, reach.periods, periods, band, reach.span).bound)
    return factor * closed


def _corners(query: LinearQuery, mutations: int) -> tuple[float, tuple[State, ...]]:
    """The corners of what an entry counts for, each to be multiplied by the root of the factor; () if not known."""
    if query.fixed:
        return float(query.extent.appears[1]), COUNTED
    if query.corners:
        return 1.0, query.corners
    if query.width == 1:
        most, range_ = max(*query.appearing, 0), max(*query.moving, 0)
        return (float(most**2), COUNTED) if range_ <= most else (1.0, ((most,), (most - range_,)))
    if sum(query.appearing) == 1 and len(query.moving) <= 2 and max(query.moving, default=0) <= 1:
        return 1.0, _units(min(query.width, mutations))
    return 1.0, ()


@lru_cache(maxsize=64)
def _units(width: int) -> tuple[State, ...]:
    """Nobody, and one in each column."""
    return tuple(tuple(int(column == at) for column in range(width)) for at in range(-1, width))


def _alternating(periods: int, band: int, reach: Reach) -> float:
    """For an entry that is counted, then not, then counted again: x alternates between 1 and -1."""
    N, F = float(_columns(periods, band)[0]), _differences(periods, band)[: reach.span + 1]
    k, there = reach.periods, max(N, float(F.max()))
    if k <= 2:
        return N if k == 1 else there
    cut = (k - 2) * N + there
    if band < periods:
        return cut
    return min(cut, k // 2 * float(F.max()) + k % 2 * N, _within(periods, reach.span))


def _between_columns(periods: int, band: int, reach: Reach) -> float:
    """For an entry that is counted in one column of a histogram at a time, and may go from one to another."""
    N, F = _columns(periods, band), _differences(periods, band)[: reach.span + 1]
    k = reach.periods
    if k <= 2:
        return float(N[0]) if k == 1 else float((F + N[: len(F)]).max())
    every_change = (2 * k - 1) * float(N[0])
    if band < periods:
        return every_change
    return min(every_change, min((k - 1) * float(F.max()), reach.span * float(F[1])) + float(N[0]))


@lru_cache(maxsize=64)
def _columns(periods: int, band: int) -> Floats:
    """The squares of C's columns, the first one first."""
    squares = np.zeros(periods)
    squares[:band] = square_root_coefficients(band) ** 2
    columns: Floats = np.cumsum(squares)[::-1]
    return columns


@lru_cache(maxsize=64)
def _differences(periods: int, band: int) -> Floats:
    """F(0) = 0 to F(periods - 1)."""
    c = np.zeros(periods)
    c[:band] = square_root_coefficients(band)
    points = 1 << (2 * periods - 1).bit_length()
    spectrum = np.fft.rfft(c, points)
    products = np.fft.irfft(spectrum * spectrum.conj(), points)[:periods]
    N = _columns(periods, band)
    differences: Floats = N[0] + N - 2 * products
    differences[0] = 0.0
    return differences


@lru_cache(maxsize=64)
def _within(periods: int, span: int) -> float:
    """However often an entry comes and goes within a window of span + 1 periods; the last interval may stay open.

    best(l) = max(best(l - 1), max over d of F(d) + best(l - d - 1)) for intervals whose ends lie in l + 1 periods. A
    wider window is cut into pieces; an interval that is cut is no more than its parts.
    """
    N, F = float(_columns(periods, periods)[0]), _differences(periods, periods)
    pieces = -(-(span + 1) // LARGEST_WINDOW)
    last = min(span, LARGEST_WINDOW - 1)
    best = np.full(last + 3, -inf)
    best[0] = best[1] = 0.0  # best(l) is best[l + 1]: nothing fits before the window
    for at in range(1, last + 1):
        best[at + 1] = max(best[at], float((F[1 : at + 1] + best[at - 1 :: -1][:at]).max()))
    if pieces > 1:
        return pieces * float(best[last + 1]) + N
    return max(float(best[last + 1]), float(best[last]) + N)

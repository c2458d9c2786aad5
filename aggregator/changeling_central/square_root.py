"""The square root mechanism: levels of a query with Gaussian noise that is correlated so that most of it cancels.

Guarantee: (epsilon, delta), or rho-zCDP, for all periods together. The true changes x are measured as C x + z (C
below), z the discrete Gaussian, and everything that is published is read off that: A x + A C⁻¹ z. Neighbours: as for
DCR. It holds for streams that react to what was published: C is triangular, so period t adds one draw of its own to a
number that is known by then, and the squares of what an entry moves add up to at most the sensitivity whatever is done
(Smith, Thakurta 2022; Denisov, McMahan, Rush, Smith, Thakurta 2022). Source: Fichtenberger, Henzinger, Upadhyay 2023.

Nothing is lost to floating point. Everything lives on a lattice of 2^-bits units: Ĉ is C rounded to whole numbers of
them, z is drawn in whole numbers, and w = Ĉ⁻¹ z is solved period by period, rounded in a way that a whole number added
to w_t goes through unchanged. So whoever saw Ĉ x + z could compute what is published, to the last bit.
The state holds the true level and the noise of the last `band` periods, so keep it where the changelog is kept.

C is the square root of counting, cut off after `band` coefficients: C² = A, so the whole root measures C x and adds it
up with C again; cut off it needs a memory of so many numbers for each column, and errs more. Source: Henzinger,
Upadhyay, Upadhyay 2023; cut off: Kalinin, Lampert 2024.

How far one entry moves what is measured, the most that ‖C x‖² can be: x is its change of the query, period by period.
The rows of C are one sequence, shifted:

    C_ts = c_{t-s},  c_0 = 1,  c_i = c_{i-1} (1 - 1/2i)

An entry goes through states f_1, …, f_k in periods p_1 <= … <= p_k. With jumps a_i = f_i - f_{i-1}, f_0 = 0,

    ‖C x‖² = Σ_ij <a_i, a_j> G(p_i, p_j),   G(i, j) = Σ_s c_s c_{s+j-i} over the rows that both columns have

It is convex in each state, so only the corners of what an entry may count for matter; it is largest where p_1 is the
first period. So the patterns of few mutations are looked at one by one. Of more closed forms bound it, in the square
N of C's first column and F(d) = ‖first column - column d‖², which is what an entry does that is there for d periods.
The least of all bounds is taken; none is ever below the most. Proofs: docs/mathematics.md, "Square roots". Reads no
data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from math import ceil, inf, ldexp, log2, sqrt

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Counts, Floats

from .errors import BadState
from .linear_query import COUNTED, MOST_NUMBERS, Corner, LinearQuery, Reach, corners_of, reaches, unit_corners
from .mechanism import LevelMechanism, LevelState, check_counted, check_counts
from .noise import ABOVE, Law, Noise, concentrated_length, gaussian_length, implied_epsilon


@dataclass(frozen=True, slots=True, eq=False)
class SquareRootState(LevelState):
    """total: the level's noise, on the lattice.

    whole, part: the last w_t, (at most band - 1, w), the newest first: whole units, and what is left in parts of one.
    """

    total: Counts
    whole: Counts
    part: Floats


@dataclass(frozen=True, slots=True)
class SquareRoot(LevelMechanism[SquareRootState]):
    """Made by `square_root` or `square_root_concentrated`. band: how many coefficients of C there are.

    scale: of a draw, on the lattice of 2^-bits units.
    """

    kind = "square-root"
    source = "Fichtenberger, Henzinger, Upadhyay 2023; streams that react: Denisov et al. 2022, Smith, Thakurta 2022"
    law = Law.GAUSSIAN
    query: LinearQuery
    calendar: Calendar
    band: int
    bits: int
    scale: float
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    @property
    def noise_in_words(self) -> str:
        """How many draws hang together, and the scale of one in the query's units."""
        return f"{self.kind}; band {self.band}, law gaussian, scale {ldexp(self.scale, -self.bits):.6g} a draw"

    def costs_at_most(self, length: float, constraint: Constraint) -> bool:
        """Check that an entry that keeps to the constraint moves Ĉ x by at most `length` scales."""
        return lattice_sensitivity(self.query, self.calendar, constraint, self.band, self.bits) <= length * self.scale

    def start(self) -> SquareRootState:
        """Before the first period."""
        nothing, none = np.zeros(self.query.width, np.int64), np.zeros((0, self.query.width), np.int64)
        return SquareRootState(0, nothing, nothing, none, none.astype(np.float64))

    def moved(self, state: SquareRootState, level: Counts, noise: Noise) -> tuple[SquareRootState, Counts]:
        """One draw for each column: w_t = (z_t - Σ ĉ_i w_{t-i}) / ĉ_0 in whole units, and in parts of one.

        Whole units wrap around modulo 2^64, which the result, far smaller, does not show.
        """
        z = noise.gaussian(self.scale, self.query.width)
        c = lattice_coefficients(self.band, self.bits)[1 : 1 + len(state.whole)]
        parts = np.einsum("i,iw->w", c, state.part)  # no BLAS: its threads wait for each other longer than this takes
        solved = z - c @ state.whole - np.rint(parts).astype(np.int64)
        whole, kept = solved >> self.bits, self.band - 1
        part = np.ldexp((solved - (whole << self.bits)).astype(np.float64), -self.bits)
        total = state.total + solved
        whole, part = np.concatenate([whole[None], state.whole])[:kept], np.concatenate([part[None], state.part])[:kept]
        return SquareRootState(state.period + 1, level, total, whole, part), total

    def check(self, state: SquareRootState) -> None:
        """Raises BadState as any, and for another band."""
        LevelMechanism.check(self, state)
        width, kept = self.query.width, min(state.period, self.band - 1)
        check_counts(state.total, (width,))
        check_counts(state.whole, (kept, width))
        if state.part.dtype != np.float64 or state.part.shape != (kept, width) or not np.all(abs(state.part) <= 1):
            raise BadState("the state's noise is not of this mechanism")

    def variance(self, step: int) -> float:
        """Variance of each column's level at the end of this period, in units squared: of a window from the start."""
        return self.window_variance(step, self.calendar.periods)

    def window_variance(self, step: int, window: int) -> float:
        """Of a window's change, on calendars of any length: exact, as one draw is in both levels."""
        share = float(window_variances(self.calendar.periods, self.band, window)[step - 1])
        return share * ldexp(self.scale, -self.bits) ** 2

    @property
    def covariance(self) -> Floats:
        """Of the noise of a column's levels, shape (periods, periods), in units squared."""
        periods = self.calendar.periods
        beta = level_coefficients(periods, self.band) * ldexp(self.scale, -self.bits)
        at = np.subtract.outer(np.arange(periods), np.arange(periods))
        drawn = np.where(at >= 0, beta[at], 0.0)
        levels: Floats = drawn @ drawn.T
        return levels


def square_root(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction,
    band: int | None = None,
    rho: Fraction | None = None,
) -> SquareRoot:
    """The square root mechanism that costs an entry which keeps to the constraint at most (epsilon, delta) in all.

    calendar: a level is published at the end of each period. band: how many coefficients, and so how many numbers of
    memory for each column; all of them, or 2^14 of longer calendars, or 2^22 over all columns, if left out. rho: what
    the noise is drawn for, where that is given; (epsilon, delta) then says the same.
    ValueError for a delta of 0, a query that counts nothing, a band that is none, and noise of more than 2^30 units.
    """
    length = gaussian_length(epsilon, delta, rho)
    band = min(calendar.periods, MOST_BAND, max(1, MOST_NUMBERS // query.width)) if band is None else band
    if not 1 <= band <= calendar.periods:
        raise ValueError(f"a band has 1 to {calendar.periods} coefficients, as many as there are periods, got {band}")
    check_counted(query)
    bits = lattice_bits(sqrt(squared_sensitivity(query, calendar, constraint, band)) / length)
    scale = lattice_sensitivity(query, calendar, constraint, band, bits) / length * CLOSE_ABOVE
    return SquareRoot(query, calendar, band, bits, scale, epsilon, delta, rho)


def square_root_concentrated(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    rho: Fraction,
    delta: Fraction = Fraction(1, 10**6),
    band: int | None = None,
) -> SquareRoot:
    """The square root mechanism that is rho-zCDP for an entry which keeps to the constraint.

    delta: at which its guarantee states the epsilon that follows. The other arguments as of `square_root`.
    """
    if rho <= 0:
        raise ValueError(f"concentrated privacy needs rho > 0, got {rho}")
    epsilon = implied_epsilon(concentrated_length(rho), delta)
    return square_root(query, calendar, constraint, epsilon, delta, band, rho)


def lattice_sensitivity(query: LinearQuery, calendar: Calendar, constraint: Constraint, band: int, bits: int) -> float:
    """The most that ‖Ĉ x‖ can be, rounded up: that of C, and half a lattice step in each row for each unit moved."""
    exact = ldexp(sqrt(squared_sensitivity(query, calendar, constraint, band)), bits)
    return (exact + sqrt(calendar.periods) * most_moved(query, calendar, constraint) / 2) * CLOSE_ABOVE


@lru_cache(maxsize=16)
def lattice_coefficients(band: int, bits: int) -> Counts:
    """Ĉ's coefficients: those of C as whole numbers of 2^-bits, the first of them 2^bits."""
    coefficients: Counts = np.rint(np.ldexp(square_root_coefficients(band), bits)).astype(np.int64)
    coefficients.flags.writeable = False
    return coefficients


MOST_BAND = 2**14
"""Of coefficients, so that a column's memory is at most 256 KiB; longer streams take the banded form."""


@lru_cache(maxsize=16)
def window_variances(periods: int, band: int, window: int) -> Floats:
    """The variance of what a level differs by from that of `window` periods before, in variances of one draw.

    Σ_{i < t} (β_i - β_{i - window})²,   β the sums of the coefficients of 1 / c(x), β_i = 0 for i < 0: before the first
    period the level is 0, without noise. Shape (periods,).
    """
    beta = level_coefficients(periods, band)
    variances: Floats = np.cumsum((beta - np.concatenate([np.zeros(window), beta])[:periods]) ** 2)
    variances.flags.writeable = False
    return variances


def level_coefficients(periods: int, band: int) -> Floats:
    """β, the sums of the coefficients of 1 / c(x): how much of each draw is in a level."""
    if band == periods:
        return square_root_coefficients(periods)
    c = np.zeros(periods)
    c[:band] = square_root_coefficients(band)
    beta: Floats = np.cumsum(_reciprocal(c))
    return beta


def _reciprocal(c: Floats) -> Floats:
    """The coefficients of 1 / c(x), by Newton's g ← g (2 - c g), which doubles how many are right."""
    inverse, known = np.array([1 / c[0]]), 1
    while known < len(c):
        known = min(2 * known, len(c))
        points = 1 << (3 * known - 1).bit_length()
        of_c, of_g = np.fft.rfft(c[:known], points), np.fft.rfft(inverse, points)
        inverse = np.fft.irfft(of_g * (2 - of_c * of_g), points)[:known]
    return inverse


CLOSE_ABOVE = 1 + 1e-12
"""What a scale on the lattice is raised by, to stand above all rounding of its computation."""
LATTICE_BITS = 48
"""The noise's scale on the lattice is between 2^47 and 2^48."""
LEAST_SCALE, MOST_SCALE = 2.0**-6, 2.0**30
"""In units of the query: below, sums of C's coefficients would not fit 64 bits; beyond, the lattice be too coarse."""


def lattice_bits(scale: float) -> int:
    """Into how many halves a unit is cut, one after another, for noise of this scale in units.

    ValueError for a scale below 2^-6, which hides nothing, or above 2^30.
    """
    if scale < LEAST_SCALE:
        raise ValueError(f"noise of scale {scale:g} hides nothing of whole units, and is below {LEAST_SCALE:g}")
    if not 0 < scale <= MOST_SCALE:
        raise ValueError(f"noise of scale {scale:g} is beyond the lattice's {MOST_SCALE:g}: take a larger unit")
    return LATTICE_BITS - ceil(log2(scale))


# How far one entry moves what is measured

LARGEST_WINDOW = 4096
"""Intervals are fitted into windows of so many periods; wider ones are made of such."""
MOST_PATTERNS = 2**17
"""In all periods of a window so short that each pattern is looked at."""
MOST_PLACES = 2**31
"""Of mutations, over all ways through the corners: a few seconds."""
MOST_COLUMNS = 3001
"""Columns whose products are held: 72 MB."""


@lru_cache(maxsize=16)
def square_root_coefficients(band: int) -> Floats:
    """c_0 to c_{band-1}, falling and convex; a read-only array.

    >>> square_root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    i = np.arange(1, band)
    c: Floats = np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * i))])
    c.flags.writeable = False
    return c


def squared_sensitivity(query: LinearQuery, calendar: Calendar, constraint: Constraint, band: int) -> float:
    """The most that ‖C x‖² can be for an entry that keeps to the constraint, in units squared, rounded up.

    band: how many coefficients C has. Exact for counts, sums, means, histograms and queries of fixed answers where
    entries mutate up to three times on calendars of 3,000 periods, or as often as they will within a window of 15
    periods; of counts also four times on calendars of 1,000, five of 180; elsewhere an upper bound.
    """
    return ABOVE * max(_of_reach(query, calendar.periods, reach, band) for reach in reaches(constraint, calendar))


def most_moved(query: LinearQuery, calendar: Calendar, constraint: Constraint) -> int:
    """The most that Σ |x| can be over all columns and periods, in units."""
    extent = query.extent
    return max(extent.appears[0] + (reach.periods - 1) * extent.moves[0] for reach in reaches(constraint, calendar))


def _of_reach(query: LinearQuery, periods: int, reach: Reach, band: int) -> float:
    factor, corners = corners_of(query, reach.periods)
    if corners == COUNTED:
        closed = _alternating(periods, band, reach)
    elif query.width == 1:
        closed = float(max(*query.appearing, *query.moving) ** 2) * _alternating(periods, band, reach)
    elif corners and not query.corners:
        closed = _between_columns(periods, band, reach)
    else:
        first, later = (sqrt(squares) for _, squares in (query.extent.appears, query.extent.moves))
        closed = float(_columns(periods, band)[0]) * (first + (reach.periods - 1) * later) ** 2
    if corners and not (reach.periods <= 2 and set(corners) <= set(unit_corners(len(corners[0])))):  # exact as it is
        closed = min(closed, most_of_patterns(corners, reach.periods, periods, band, reach.span))
    return factor * closed


# Closed forms, for any number of mutations


def _alternating(periods: int, band: int, reach: Reach) -> float:
    """The bound for an entry that is counted, then not, then counted again: x alternates between 1 and -1.

    N                                   k = 1, exact
    max(N, max F)                       k = 2, exact
    (k - 2) N + max(N, max F)           k > 2, and for the whole root also
    ⌊k/2⌋ max F + (k odd) N             no two differences of intervals have a positive product, c being convex
    """
    N, F = float(_columns(periods, band)[0]), _differences(periods, band)[: reach.span + 1]
    k, there = reach.periods, max(N, float(F.max()))
    if k <= 2:
        return N if k == 1 else there
    cut = (k - 2) * N + there
    if band < periods:
        return cut
    return min(cut, k // 2 * float(F.max()) + k % 2 * N, _within(periods, reach.span))


def _between_columns(periods: int, band: int, reach: Reach) -> float:
    """The bound for an entry that is counted in one column of a histogram at a time, and may change the column."""
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
    """The bound for an entry that comes and goes as it likes within span + 1 periods; the last interval may stay open.

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


# Every pattern of few mutations, or within few periods


@lru_cache(maxsize=64)
def most_of_patterns(corners: tuple[Corner, ...], mutations: int, periods: int, band: int, span: int) -> float:
    """The most over at most so many mutations, from the first to the last at most `span` periods apart.

    corners: of what an entry counts for; nobody, who counts for nothing, is one of them in any case. Returns infinity
    where there are too many patterns to look at each.
    """
    last = periods if span >= periods - 1 else span  # one beyond the calendar stands for none
    nobody = (0,) * len(corners[0])
    every = {*corners, nobody}
    largest = max(abs(f) for corner in corners for f in corner)
    if len(every) ** (last + 1) <= MOST_PATTERNS:
        held = products(periods, band, last)
        return _of_every_pattern(np.array(sorted(every)) / largest, mutations, held) * largest**2
    if last >= MOST_COLUMNS or len(every) * (last + 1) ** (mutations - 1) > MOST_PLACES:
        return inf
    forms = list(_forms(np.array(corners) / largest, mutations))
    if len(forms) * (last + 1) ** (mutations - 1) > MOST_PLACES:
        return inf
    held = products(periods, band, last)
    return max(_of_places(form, held) for form in forms) * largest**2


def products(periods: int, band: int, last: int) -> Floats:
    """G of C's columns up to `last`, shape (last + 1, last + 1), above the diagonal; of one beyond the calendar 0."""
    columns = np.arange(last + 1)
    c = square_root_coefficients(band)
    table = np.zeros((last + 1, last + 1))
    for apart in range(min(last + 1, band)):
        sums = np.concatenate([[0.0], np.cumsum(c[: band - apart] * c[apart:])])
        rows = np.clip(periods - columns[apart:], 0, band - apart)
        table[columns[: last + 1 - apart], columns[apart:]] = sums[rows]
    return table


def _of_every_pattern(corners: Floats, mutations: int, held: Floats) -> float:
    """The most over all that an entry can hold in each period of a short window. corners: nobody among them."""
    periods = len(held)
    ways = np.indices((len(corners),) * periods).reshape(periods, -1).T
    nobody = int(np.flatnonzero(~corners.any(1))[0])
    before = np.concatenate([np.full((len(ways), 1), nobody), ways[:, :-1]], 1)
    ways = ways[(ways != before).sum(1) <= mutations]
    jumps = np.diff(corners[ways], axis=1, prepend=np.zeros((len(ways), 1, corners.shape[1])))
    table = held + np.triu(held, 1).T
    return float(np.einsum("ntw,ts,nsw->n", jumps, table, jumps, optimize=True).max())


def _forms(corners: Floats, mutations: int) -> Iterator[Floats]:
    """The different <a_i, a_j> of all ways through the corners, shape (k, k), with k mutations or one less.

    Ways with fewer are among these: they hold a corner for no time at all.
    """
    known: set[bytes] = set()
    for k in range(mutations, max(0, mutations - 2), -1):
        for way in product(range(len(corners)), repeat=k):
            jumps = np.diff(corners[list(way)], axis=0, prepend=0.0)
            form = jumps @ jumps.T
            if jumps[0].any() and all(a != b for a, b in pairwise(way)) and form.tobytes() not in known:
                known.add(form.tobytes())
                yield form


def _of_places(form: Floats, held: Floats) -> float:
    """The most of Σ_ij A_ij G(p_i, p_j) over periods p_1 <= … <= p_k, of which the first is the calendar's first.

    form: A, shape (k, k).
    """
    k, own = len(form), np.diagonal(held)
    alone = [2 * form[0, i] * held[0] + form[i, i] * own for i in range(1, k)]  # of p_i with p_1 and itself
    if k <= 2:
        return float(form[0, 0] * own[0] + (alone[0].max() if alone else 0.0))
    most = -inf
    later = np.where(np.tri(len(held), k=-1, dtype=bool), -inf, 0.0)  # keeps the periods in their order
    for second in range(len(held)):
        of_places = np.full((1,) * (k - 2), form[0, 0] * own[0] + alone[0][second])
        for i in range(2, k):
            single = alone[i - 1][second:] + 2 * form[1, i] * held[second, second:]
            of_places = of_places + _along(single, k - 2, i - 2)
            if i > 2:
                of_places = of_places + _along(later[second:, second:], k - 2, i - 3, i - 2)
            for j in range(2, i):
                of_places += _along(2 * form[j, i] * held[second:, second:], k - 2, j - 2, i - 2)
        most = max(most, float(of_places.max()))
    return most


def _along(values: Floats, axes: int, *which: int) -> Floats:
    """The same values along these of so many axes."""
    return values.reshape([len(values) if axis in which else 1 for axis in range(axes)])

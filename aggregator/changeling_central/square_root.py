"""The square root mechanism: levels of a query with Gaussian noise that is correlated so that most of it cancels.

Guarantee: (epsilon, delta), or rho-zCDP, for all periods together. The true changes x are measured as C x + z (C:
`toeplitz`), z the discrete Gaussian, and everything that is published is read off that: A x + A C⁻¹ z. Neighbours: as
for DCR. It holds for streams that react to what was published: C is triangular, so period t adds one draw of its own
to a number that is known by then, and the squares of what an entry moves add up to at most the sensitivity whatever
is done (Smith, Thakurta 2022; Denisov, McMahan, Rush, Smith, Thakurta 2022). Source: Fichtenberger, Henzinger,
Upadhyay 2023.

Nothing is lost to floating point. Everything lives on a lattice of 2^-bits units: Ĉ is C rounded to whole numbers of
them, z is drawn in whole numbers, and w = Ĉ⁻¹ z is solved period by period, rounded in a way that a whole number added
to w_t goes through unchanged. So whoever saw Ĉ x + z could compute what is published, to the last bit.
The state holds the true level and the noise of the last `band` periods, so keep it where the changelog is kept.

C is the square root of counting, cut off after `band` coefficients (`sensitivity`): C² = A, so the whole root measures
C x and adds it up with C again; cut off it needs a memory of so many numbers for each column, and errs more. Source:
Henzinger, Upadhyay, Upadhyay 2023; cut off: Kalinin, Lampert 2024.

How much Gaussian noise: a shift of length μ under normal noise of scale 1 is told apart by (Balle, Wang 2018, theorem
8)

    delta = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)

A normal draw rounded to whole numbers gives no more away. OpenDP draws the discrete Gaussian instead, whose logarithm
differs from the rounded one's by at most (r² + 1) / 8·scale² within r scales. At scales of 2^47 and above that is less
than `SLACK` over a million draws in a thousand columns, and the 2e^(-r²/2) beyond r = 14 less than `TAIL`.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, ldexp, log2, nextafter, sqrt

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Counts, Floats

from .errors import BadState
from .linear_query import MOST_NUMBERS, LinearQuery
from .mechanism import Level, LevelMechanism, Made, check_counts, checked_change, level_with_noise
from .noise import Law, Noise
from .sensitivity import most_moved, square_root_coefficients, squared_sensitivity


@dataclass(frozen=True, slots=True, eq=False)
class SquareRootState:
    """period: how many have been taken in. level: true, (w,), in units. total: the level's noise, on the lattice.

    whole, part: the last w_t, (at most band - 1, w), the newest first: whole units, and what is left in parts of one.
    """

    period: int
    level: Counts
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

    @classmethod
    def as_made(
        cls, made: Made, query: LinearQuery, calendar: Calendar, epsilon: Fraction, delta: Fraction
    ) -> "SquareRoot":
        """The square root of this band and noise."""
        match made:
            case {"kind": cls.kind, "band": int(band), "bits": int(bits), "scale": str(scale)}:
                return cls(query, calendar, band, bits, float.fromhex(scale), epsilon, delta)
        raise BadState(f"not a square root: {sorted(made)}")

    def made_with(self) -> Made:
        """The band and the noise."""
        return {"kind": self.kind, "band": self.band, "bits": self.bits, "scale": self.scale.hex()}

    @property
    def words(self) -> str:
        """How many draws hang together, and the scale of one in the query's units."""
        return f"{self.kind}; band {self.band}, law gaussian, scale {ldexp(self.scale, -self.bits):.6g} a draw"

    def costs_at_most(self, length: float, constraint: Constraint) -> bool:
        """Check that an entry that keeps to the constraint moves Ĉ x by at most `length` scales."""
        return lattice_sensitivity(self.query, self.calendar, constraint, self.band, self.bits) <= length * self.scale

    def start(self) -> SquareRootState:
        """Before the first period."""
        nothing, none = np.zeros(self.query.width, np.int64), np.zeros((0, self.query.width), np.int64)
        return SquareRootState(0, nothing, nothing, none, none.astype(np.float64))

    def step(self, state: SquareRootState, value: Counts, noise: Noise) -> tuple[SquareRootState, Level]:
        """value: the true change over the next period, shape (w,), in units. Returns the level at its end.

        Raises BudgetExhausted after the calendar's last period, and ValueError for a change that is not of the query.
        """
        period, change = self.next_period(state.period), checked_change(value, self.query.width)
        z = noise.gaussian(self.scale, self.query.width)
        whole, part, solved = self._solved(state, z)
        kept = max(0, self.band - 2)
        after = SquareRootState(
            period,
            state.level + change,
            state.total + solved,
            np.concatenate([whole[None], state.whole[:kept]])[: self.band - 1],
            np.concatenate([part[None], state.part[:kept]])[: self.band - 1],
        )
        return after, Level(level_with_noise(after.level, after.total, self.bits), self.variance(after.period))

    def _solved(self, state: SquareRootState, z: Counts) -> tuple[Counts, Floats, Counts]:
        """w_t = (z_t - Σ ĉ_i w_{t-i}) / ĉ_0 in whole units, in parts of one, and on the lattice.

        Whole units wrap around modulo 2^64, which the result, far smaller, does not show.
        """
        c = lattice_coefficients(self.band, self.bits)[1 : 1 + len(state.whole)]
        parts = np.einsum("i,iw->w", c, state.part)  # no BLAS: its threads wait for each other longer than this takes
        solved = z - c @ state.whole - np.rint(parts).astype(np.int64)
        whole = solved >> self.bits
        part = np.ldexp((solved - (whole << self.bits)).astype(np.float64), -self.bits)
        return whole, part, solved

    def check(self, state: SquareRootState) -> None:
        """Raises BadState for more periods than the calendar has, or for another band or other columns."""
        self.check_period(state.period)
        width, kept = self.query.width, min(state.period, self.band - 1)
        check_counts(state.level, (width,))
        check_counts(state.total, (width,))
        check_counts(state.whole, (kept, width))
        if state.part.dtype != np.float64 or state.part.shape != (kept, width) or not np.all(abs(state.part) <= 1):
            raise BadState("the state's noise is not of this mechanism")

    def variance(self, step: int) -> float:
        """Variance of each column's level at the end of this period, in units squared."""
        of_draw = ldexp(self.scale, -self.bits) ** 2
        return float(level_variances(self.calendar.periods, self.band)[step - 1]) * of_draw

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
) -> SquareRoot:
    """The square root mechanism that costs an entry which keeps to the constraint at most (epsilon, delta) in all.

    calendar: a level is published at the end of each period. band: how many coefficients, and so how many numbers of
    memory for each column; all of them, or 2^14 of longer calendars, or 2^22 over all columns, if left out.
    ValueError for a delta of 0, a query that counts nothing, a band that is none, and noise of more than 2^30 units.
    """
    length = told_apart(epsilon, delta)
    return _made(query, calendar, constraint, length, (epsilon, delta), band)


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
    length = concentrated_length(rho)
    return _made(query, calendar, constraint, length, (implied_epsilon(length, delta), delta), band)


def _made(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    length: float,
    budget: tuple[Fraction, Fraction],
    band: int | None,
) -> SquareRoot:
    """length: by how many scales an entry may move what is measured."""
    band = band_of(calendar.periods, query.width) if band is None else band
    if not 1 <= band <= calendar.periods:
        raise ValueError(f"a band has 1 to {calendar.periods} coefficients, as many as there are periods, got {band}")
    if not most_moved(query, calendar, constraint):
        raise ValueError("the query counts nothing: no entry can change it")
    rough = sqrt(squared_sensitivity(query, calendar, constraint, band)) / length
    bits = lattice_bits(rough)
    scale = lattice_sensitivity(query, calendar, constraint, band, bits) / length * ABOVE
    return SquareRoot(query, calendar, band, bits, scale, *budget)


def lattice_sensitivity(query: LinearQuery, calendar: Calendar, constraint: Constraint, band: int, bits: int) -> float:
    """The most that ‖Ĉ x‖ can be, rounded up: that of C, and half a lattice step in each row for each unit moved."""
    exact = ldexp(sqrt(squared_sensitivity(query, calendar, constraint, band)), bits)
    return (exact + sqrt(calendar.periods) * most_moved(query, calendar, constraint) / 2) * ABOVE


@lru_cache(maxsize=16)
def lattice_coefficients(band: int, bits: int) -> Counts:
    """Ĉ's coefficients: those of C as whole numbers of 2^-bits, the first of them 2^bits."""
    coefficients: Counts = np.rint(np.ldexp(square_root_coefficients(band), bits)).astype(np.int64)
    coefficients.flags.writeable = False
    return coefficients


MOST_BAND = 2**14
"""Of coefficients, so that a column's memory is at most 256 KiB; longer streams take the banded form."""


def band_of(periods: int, width: int) -> int:
    """How many coefficients a stream of so many periods and columns is released with: all, or as memory allows."""
    return min(periods, MOST_BAND, max(1, MOST_NUMBERS // width))


@lru_cache(maxsize=16)
def level_variances(periods: int, band: int) -> Floats:
    """The variance of the level at the end of each period, in variances of one draw of noise; shape (periods,).

    Σ_{i < t} β_i²,   β the sums of the coefficients of 1 / c(x)
    """
    variances: Floats = np.cumsum(level_coefficients(periods, band) ** 2)
    variances.flags.writeable = False
    return variances


@lru_cache(maxsize=16)
def window_variances(periods: int, band: int, window: int) -> Floats:
    """The variance of what a level differs by from that of `window` periods before, as of `level_variances`.

    Σ_{i < t} (β_i - β_{i - window})²,   β_i = 0 for i < 0: before the first period the level is 0, without noise
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


SLACK = 1e-12
"""Of epsilon, absolute: what the discrete law may differ by from the rounded one."""
CANCELLED = 1e-6
"""Relative, of delta: more than floating point loses in the difference above."""
TAIL = 1e-30
LATTICE_BITS = 48
"""The noise's scale on the lattice is between 2^47 and 2^48."""
LEAST_SCALE, MOST_SCALE = 2.0**-6, 2.0**30
"""In units of the query: below, sums of C's coefficients would not fit 64 bits; beyond, the lattice be too coarse."""
ABOVE = 1 + 1e-12


@lru_cache(maxsize=1024)
def told_apart(epsilon: Fraction, delta: Fraction) -> float:
    """The length of a shift under noise of scale 1 that costs (epsilon, delta), rounded down.

    ValueError unless epsilon > 0 and 0 < delta < 1, and where they are too small for floating point.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise ValueError(f"Gaussian noise needs epsilon > 0 and 0 < delta < 1, got {epsilon} and {delta}")
    stated, allowed = nextafter(float(epsilon), 0) - SLACK, float(delta) * (1 - CANCELLED) - TAIL
    if stated <= 0 or allowed <= 0:
        raise ValueError(f"epsilon {float(epsilon):g}, delta {float(delta):g} are too small for Gaussian noise")
    low, high = 0.0, 1.0
    while gaussian_delta(high, stated) <= allowed:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, stated) <= allowed else (low, middle)
    if low**2 < 1e-8 * stated:
        raise ValueError(f"epsilon {float(epsilon):g}, delta {float(delta):g} are too small for Gaussian noise")
    return low


def implied_epsilon(length: float, delta: Fraction) -> Fraction:
    """The epsilon at this delta that a shift of this length costs under noise of scale 1, rounded up."""
    low, high = 0.0, 1.0
    allowed = float(delta) * (1 - CANCELLED) - TAIL
    while gaussian_delta(length, high) > allowed:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(length, middle) <= allowed else (middle, high)
    return Fraction(high + 2 * SLACK)


def gaussian_delta(length: float, epsilon: float) -> float:
    """The least delta at this epsilon of a shift of this length under normal noise of scale 1."""
    from scipy.special import log_ndtr  # loads slowly

    with_it = float(log_ndtr(length / 2 - epsilon / length))
    without = epsilon + float(log_ndtr(-length / 2 - epsilon / length))
    return -exp(with_it) * expm1(min(0.0, without - with_it))


def lattice_bits(scale: float) -> int:
    """Into how many halves a unit is cut, one after another, for noise of this scale in units.

    ValueError for a scale below 2^-6, which hides nothing, or above 2^30.
    """
    if scale < LEAST_SCALE:
        raise ValueError(f"noise of scale {scale:g} hides nothing of whole units, and is below {LEAST_SCALE:g}")
    if not 0 < scale <= MOST_SCALE:
        raise ValueError(f"noise of scale {scale:g} is beyond the lattice's {MOST_SCALE:g}: take a larger unit")
    return LATTICE_BITS - ceil(log2(scale))


def concentrated_length(rho: Fraction) -> float:
    """The length of a shift under noise of scale 1 that is rho-zCDP, √(2 rho), rounded down."""
    return sqrt(2 * float(rho)) / ABOVE

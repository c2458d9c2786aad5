"""Gaussian noise on a fine lattice: how much is needed for (epsilon, delta), exactly, or for concentrated privacy.

A shift of length μ under normal noise of scale 1 is told apart by (Balle, Wang 2018, theorem 8)

    delta = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)

A normal draw rounded to whole numbers gives no more away. OpenDP draws the discrete Gaussian instead, whose logarithm
differs from the rounded one's by at most (r² + 1) / 8·scale² within r scales. At scales of 2^47 and above that is less
than `SLACK` over a million draws in a thousand columns, and the 2e^(-r²/2) beyond r = 14 less than `TAIL`. Reads no
data.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, log2, nextafter, sqrt

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

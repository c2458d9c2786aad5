"""Concentrated differential privacy (zCDP) as (epsilon, delta), by OpenDP's conversion.

    rho-zCDP implies (epsilon, delta) for delta = min over α > 1 of
    exp((α - 1)(α·rho - epsilon) + α·ln(1 - 1/α)) / (α - 1)

A closed form, so fast enough to price hundreds of nodes; somewhat dearer than the privacy-loss distribution that
`node_noise` takes, and never below it. Source: Canonne, Kamath, Steinke 2020, theorem 14 (the discrete Gaussian) and
proposition 12 (the conversion, which OpenDP computes rounded up).
"""

from collections.abc import Callable
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import floor, log, log10, nextafter, sqrt

ABOVE = 1 + 1e-9
"""What a scale is raised by, to stand above all rounding of its computation."""
CLOSE = 1e-10
"""Relative: how near to the largest rho the search ends."""
LEAST_DELTA = 1e-300
"""Floating point knows no smaller ones."""
CERTAIN = 500.0
"""So far beyond epsilon a rho implies nothing."""


@lru_cache(maxsize=4096)
def concentrated_budget(epsilon: Fraction, delta: Fraction) -> float:
    """A rho such that rho-zCDP implies (epsilon, delta), within a relative 1e-9 of the largest.

    ValueError unless epsilon > 0 and 0 < delta < 1.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise ValueError(f"concentrated privacy needs epsilon > 0 and 0 < delta < 1, got {epsilon} and {delta}")
    if delta < LEAST_DELTA:
        raise ValueError(f"delta {float(delta):g} is too small for Gaussian noise")
    from scipy.optimize import brentq  # loads slowly

    stated = _float_below(epsilon)

    def excess(rho: float) -> float:
        """ln of what is implied over what is allowed."""
        return log(implied_delta(rho, stated)) - log(delta)

    low = _closed_form_budget(epsilon, delta)
    high = 2 * low
    while excess(high) <= 0:
        low, high = high, 2 * high
    rho = float(brentq(excess, low, high, xtol=low * CLOSE, rtol=CLOSE)) if excess(low) < 0 else low
    step = CLOSE
    while implied_delta(rho, stated) > delta:
        rho, step = rho * (1 - step), 2 * step
    return rho


def implied_delta(rho: float, epsilon: float) -> float:
    """The least delta that rho-zCDP is known to imply at this epsilon, rounded up; at most 1."""
    if rho > epsilon + CERTAIN:  # delta is 1 to the last digit, and OpenDP's exponentials overflow
        return 1.0
    return min(1.0, _delta_of()(sqrt(2 * rho) * ABOVE, epsilon))


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The least epsilon at this delta that rho-zCDP is known to imply, rounded up. ValueError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise ValueError(f"concentrated privacy implies an epsilon at a delta between 0 and 1, got {delta}")
    low, high = 0.0, rho + 2 * sqrt(rho * -log(delta))
    while implied_delta(rho, high) > delta:
        low, high = high, 2 * high + CLOSE
    while high - low > CLOSE * max(high, CLOSE):
        middle = (low + high) / 2
        low, high = (low, middle) if implied_delta(rho, middle) <= delta else (middle, high)
    return high


def pure_epsilon(rho: Fraction) -> Fraction:
    """An epsilon of ten digits such that epsilon-DP implies rho-zCDP: √(2 rho), rounded down. ValueError for no rho.

    Bun, Steinke 2016, proposition 1.4.
    """
    if rho <= 0:
        raise ValueError(f"concentrated privacy needs rho > 0, got {rho}")
    with localcontext(prec=40):
        root = (Decimal(2 * rho.numerator) / Decimal(rho.denominator)).sqrt()
    with localcontext(prec=10, rounding=ROUND_DOWN):
        found = Fraction(+root)
    step = Fraction(10) ** (floor(log10(found)) - 9)
    while found**2 > 2 * rho:
        found -= step
    return found


def gaussian_scale(squared_sensitivity: int, rho: float) -> float:
    """√(Δ² / 2·rho), rounded up: the discrete Gaussian of this scale is rho-zCDP for shifts of L2 length Δ."""
    return sqrt(squared_sensitivity / (2 * rho)) * ABOVE


def _closed_form_budget(epsilon: Fraction, delta: Fraction) -> float:
    """A rho that is enough by the coarser epsilon = rho + 2 √(rho ln 1/delta): where the search for a larger begins.

    Bun, Steinke 2016, proposition 1.3.
    """
    logarithm = -log(delta)
    root = float(epsilon) / (sqrt(logarithm + float(epsilon)) + sqrt(logarithm))
    return root**2 * (1 - CLOSE)


@lru_cache(maxsize=1)
def _delta_of() -> Callable[[float, float], float]:
    """OpenDP's delta of a shift of this length under Gaussian noise of scale 1, which is (length² / 2)-zCDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    converted = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=1.0))
    return lambda length, epsilon: float(converted.map(length).delta(epsilon))  # type: ignore[no-untyped-call]


def _float_below(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) <= exact else nextafter(near, 0)

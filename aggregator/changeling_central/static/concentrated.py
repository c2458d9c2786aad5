"""Gaussian noise for (epsilon, delta): by concentrated differential privacy, in closed form, so fast enough to price
hundreds of nodes. Somewhat dearer than the privacy-loss distribution that `node_noise` takes, and never below it.

    rho-zCDP implies (epsilon, delta) for delta = min over α > 1 of
    exp((α - 1)(α·rho - epsilon) + α·ln(1 - 1/α)) / (α - 1)

Source: Canonne, Kamath, Steinke 2020, theorem 14 (the discrete Gaussian) and proposition 12 (the conversion).
"""

from fractions import Fraction
from functools import lru_cache
from math import exp, log1p, sqrt

HALVINGS = 60
ABOVE = 1 + 1e-9
"""What a scale is raised by, to stand above all rounding of its computation."""


@lru_cache(maxsize=4096)
def concentrated_budget(epsilon: Fraction, delta: Fraction) -> float:
    """A rho such that rho-zCDP implies (epsilon, delta), nearly the largest. ValueError unless 0 < delta < 1."""
    if epsilon <= 0 or not 0 < delta < 1:
        raise ValueError(f"concentrated privacy needs epsilon > 0 and 0 < delta < 1, got {epsilon} and {delta}")
    low, high = 0.0, float(epsilon) + 1
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if implied_delta(middle, float(epsilon)) <= float(delta) else (low, middle)
    if low == 0:
        raise ValueError(f"delta {float(delta):g} is too small for Gaussian noise")
    return low


def implied_delta(rho: float, epsilon: float) -> float:
    """A delta that rho-zCDP implies at this epsilon; any α gives one, the bisection finds nearly the least."""
    low, high = 1 + 1e-6, (epsilon + 1) / (2 * rho) + 2
    for _ in range(HALVINGS):
        alpha = (low + high) / 2
        rising = (2 * alpha - 1) * rho - epsilon + log1p(-1 / alpha) >= 0
        low, high = (low, alpha) if rising else (alpha, high)
    exponent = (high - 1) * (high * rho - epsilon) + high * log1p(-1 / high)
    return 1.0 if exponent > 0 else min(1.0, exp(exponent) / (high - 1))


def gaussian_scale(squared_sensitivity: int, rho: float) -> float:
    """√(Δ² / 2·rho), rounded up: the discrete Gaussian of this scale is rho-zCDP for shifts of L2 length Δ."""
    return sqrt(squared_sensitivity / (2 * rho)) * ABOVE

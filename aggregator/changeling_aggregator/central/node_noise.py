"""How much noise a node gets so that the whole release keeps its promise.

What an entry can do to a release is a count of shifts: so many independent draws, each moved by at most so much.
Pure epsilon from Laplace noise is Σ |shift| / scale, exactly; (epsilon, delta) comes from the privacy-loss distribution
of the shifted discrete laws, which both are log-concave, so that a smaller shift is never told apart better. Sources:
Ghosh, Roughgarden, Sundararajan 2009; Canonne, Kamath, Steinke 2020; dp-accounting's PLDs, rounded up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, inf, nextafter, sqrt

import numpy as np

from ..tallies import Counts
from .noise import Noise

Shifts = Mapping[int, int]
"""By how much, and how many draws."""

TOLERANCE = 1.001
"""A calibrated scale is at most this much larger than need be."""


class Law(StrEnum):
    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


@dataclass(frozen=True, slots=True)
class NodeNoise:
    """Independent integer noise of one law and scale, in units of the query."""

    law: Law
    scale: float

    def draw(self, noise: Noise, size: int) -> Counts:
        return noise.laplace(self.scale, size) if self.law is Law.LAPLACE else noise.gaussian(self.scale, size)

    @property
    def variance(self) -> float:
        """Of one draw: 2p/(1-p)², p = e^(-1/scale), or the discrete Gaussian's own sum."""
        if self.law is Law.LAPLACE:
            return 2 * exp(-1 / self.scale) / expm1(-1 / self.scale) ** 2
        return _gaussian_variance(self.scale)

    def epsilon(self, shifts: Shifts) -> Fraction:
        """Pure epsilon of Laplace noise. ValueError for Gaussian noise, which has none."""
        if self.law is not Law.LAPLACE:
            raise ValueError("Gaussian noise gives no pure epsilon")
        return total(shifts) / Fraction(self.scale)

    def delta(self, shifts: Shifts, epsilon: float) -> float:
        """The least delta at this epsilon, rounded up by the PLD's grid."""
        return _delta(self.law, self.scale, tuple(sorted(shifts.items())), epsilon)


def calibrated(shifts: Shifts, epsilon: Fraction, delta: Fraction = Fraction(0), law: Law = Law.LAPLACE) -> NodeNoise:
    """The least noise of this law under which the shifts cost at most (epsilon, delta).

    ValueError if nothing is shifted, for a budget that is none, and for Gaussian noise with delta = 0.
    """
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ValueError(f"a budget has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")
    if not total(shifts):
        raise ValueError("the query counts nothing: no entry can change it")
    if law is Law.LAPLACE:
        pure = NodeNoise(law, _float_above(total(shifts) / epsilon))
        return pure if delta == 0 else _bisected(shifts, float(epsilon), float(delta), law, pure.scale)
    if delta == 0:
        raise ValueError("Gaussian noise needs a delta above 0")
    return _bisected(shifts, float(epsilon), float(delta), law, inf)


def added(shifts: Iterable[Shifts]) -> dict[int, int]:
    """The shifts of several cadences together: sequential composition."""
    together: dict[int, int] = {}
    for one in shifts:
        for shift, count in one.items():
            together[shift] = together.get(shift, 0) + count
    return together


def total(shifts: Shifts) -> Fraction:
    """Σ |shift|: the L1 sensitivity of the whole release."""
    return Fraction(sum(shift * count for shift, count in shifts.items()))


def _bisected(shifts: Shifts, epsilon: float, delta: float, law: Law, most: float) -> NodeNoise:
    def enough(scale: float) -> bool:
        return NodeNoise(law, scale).delta(shifts, epsilon) <= delta

    high = most
    if high == inf:
        high = sqrt(sum(shift**2 * count for shift, count in shifts.items())) / epsilon
        while not enough(high):
            high *= 2
    low = high / 2
    while enough(low) and low > 1e-3:
        low, high = low / 2, low
    while high / low > TOLERANCE:
        middle = sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return NodeNoise(law, high)


@lru_cache(maxsize=1024)
def _delta(law: Law, scale: float, shifts: tuple[tuple[int, int], ...], epsilon: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    composed = pld.identity()
    for shift, count in shifts:
        one = (
            pld.from_discrete_laplace_mechanism(1 / scale, shift)
            if law is Law.LAPLACE
            else pld.from_discrete_gaussian_mechanism(scale, shift)
        )
        composed = composed.compose(one.self_compose(count))
    return float(composed.get_delta_for_epsilon(epsilon))


@lru_cache(maxsize=256)
def _gaussian_variance(scale: float) -> float:
    if scale > 4:
        return scale**2  # to the last digit of a float
    x = np.arange(-64, 65)
    weights = np.exp(-(x**2) / (2 * scale**2))
    return float((weights * x**2).sum() / weights.sum())


def _float_above(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else nextafter(near, inf)

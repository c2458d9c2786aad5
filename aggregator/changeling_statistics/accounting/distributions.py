"""Privacy-loss distributions on a grid, from exact curves: dp-accounting composes them.

Every step rounds up: a loss between two grid points is split between them so that both inputs keep their
probabilities, which only widens the curve (connect the dots: Doroshenko et al. 2022), and tails count as infinite.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import expm1, floor, log
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .curve import SILENT, PrivacyCurve

Parts = Mapping[PrivacyCurve, int]
"""Independent reports: how many there are of each curve."""
Floats = NDArray[np.float64]


class PrivacyLossDistribution(Protocol):
    """What we use of dp-accounting's class of this name. It is imported where it is made, as that takes long."""

    def compose(self, other: "PrivacyLossDistribution") -> "PrivacyLossDistribution":
        """The distribution of the two together, independent of each other."""
        ...

    def self_compose(self, times: int) -> "PrivacyLossDistribution":
        """The distribution of so many independent ones like this."""
        ...

    def get_delta_for_epsilon(self, epsilon: Floats | float) -> Any:
        """δ(ε), for one ε or an array of them."""
        ...

    def get_epsilon_for_delta(self, delta: float) -> float:
        """The least ε with δ(ε) <= delta."""
        ...


LATTICE_ERROR = 1e-12
"""Losses this close to a multiple of the grid, relatively, are taken for it; `slack` pays for that."""
MOST_GRID = 2**13
STEPS_PER_LOSS = 16
MOST_KNOTS = 512


def grid_interval(compositions: Iterable[Parts]) -> float:
    """The grid on which these compositions lie: their lattice, where all losses are multiples of one.

    k-RR's losses are ±ln(a/b) and 0, so its lattice is exact. Otherwise fine enough that rounding up costs little,
    and coarse enough for about MOST_GRID points.
    """
    every = list(compositions)
    losses = {abs(loss) for parts in every for curve in parts for loss, _ in atoms(curve)} - {0.0}
    if not losses:
        return 1.0
    least = min(losses)
    if all(abs(loss / least - round(loss / least)) <= LATTICE_ERROR * loss / least for loss in losses):
        return least
    return max(least / STEPS_PER_LOSS, max(map(largest_loss, every)) / MOST_GRID)


def largest_loss(parts: Parts) -> float:
    """The largest loss, up or down, of a composition whose losses are finite."""
    return sum(count * max(abs(loss) for loss, _ in atoms(curve)) for curve, count in parts.items())


@lru_cache(maxsize=2048)
def atoms(curve: PrivacyCurve) -> tuple[tuple[float, float], ...]:
    """(ln p/q, p) of the classes of a curve whose losses are finite."""
    return tuple(
        (log(p.numerator * q.denominator) - log(p.denominator * q.numerator) if p != q else 0.0, float(p))
        for p, q in curve.classes()
        if p and q
    )


def distribution(curve: PrivacyCurve, interval: float) -> PrivacyLossDistribution:
    """The distribution of ln p/q under the first input, on multiples of `interval`, rounded up."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    masses: dict[int, float] = {}
    for loss, mass in atoms(curve):
        steps = loss / interval
        below, share = floor(steps), 0.0
        if abs(steps - round(steps)) <= LATTICE_ERROR * max(1.0, abs(steps)):
            below = round(steps)
        else:
            share = expm1(interval * (below - steps)) / expm1(-interval)
        for point, part in ((below, 1 - share), (below + 1, share)):
            if part > 0:
                masses[point] = masses.get(point, 0.0) + mass * part
    infinite = float(curve.delta_at_ratio_infinite)
    made: PrivacyLossDistribution = pld.PrivacyLossDistribution.create_from_rounded_probability(
        masses, infinite, interval
    )
    return made


def composed(parts: Parts, interval: float) -> PrivacyLossDistribution:
    """The distribution of independent reports together."""
    made = [_repeated(curve, interval, count) for curve, count in parts.items() if count]
    return all_together(made) if made else distribution(SILENT, interval)


@lru_cache(maxsize=1024)
def _repeated(curve: PrivacyCurve, interval: float, count: int) -> PrivacyLossDistribution:
    return distribution(curve, interval).self_compose(count)


def all_together(distributions: Sequence[PrivacyLossDistribution]) -> PrivacyLossDistribution:
    """The distribution of all of them together, independent of each other; at least one."""
    first, *rest = distributions
    for other in rest:
        first = first.compose(other)
    return first


def envelope(compositions: Sequence[Parts], interval: float) -> PrivacyLossDistribution:
    """One distribution above those of all the compositions: the largest δ at every ε, joined by chords."""
    made = [composed(parts, interval) for parts in compositions]
    if len(made) == 1:
        return made[0]
    reach = floor(max(map(largest_loss, compositions)) / interval) + 2
    knots = np.unique(np.linspace(-reach, reach, min(2 * reach + 1, MOST_KNOTS)).round().astype(np.int64))
    epsilons = knots.astype(np.float64) * interval
    deltas = np.array([each.get_delta_for_epsilon(epsilons) for each in made], np.float64).max(axis=0)
    return from_knots(knots, deltas, interval)


def from_knots(knots: NDArray[np.int64], deltas: Floats, interval: float) -> PrivacyLossDistribution:
    """The distribution whose curve runs through δ(knot · interval), in chords. Shapes (n,) and (n,)."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    # A curve is at least 1 - e^ε and at most 1, and falls; what rounding took from that is given back.
    held = np.clip(deltas, np.maximum(0.0, -np.expm1(knots * interval)), 1.0)
    falling = np.maximum.accumulate(held[::-1])[::-1]
    masses = pld_pmf.create_pmf_pessimistic_connect_dots(interval, knots, falling)
    made: PrivacyLossDistribution = pld.PrivacyLossDistribution(masses)
    return made


def symmetric_deltas(deltas: Floats, epsilons: Floats) -> tuple[Floats, Floats]:
    """A curve on [0, ε_n] continued below 0, for two inputs that look alike from either side.

    δ(-ε) = 1 - e^-ε + e^-ε δ(ε). epsilons: rising from 0, shape (n,). Returns epsilons and deltas, shape (2n-1,).
    """
    down = -np.expm1(-epsilons[1:]) + np.exp(-epsilons[1:]) * deltas[1:]
    return np.concatenate((-epsilons[:0:-1], epsilons)), np.concatenate((down[::-1], deltas))

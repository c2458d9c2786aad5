"""The exact (ε, δ) curve of one report, in fractions; and privacy-loss distributions on a grid, which compose.

    δ(ε) = max over inputs u, v of Σ_o max(0, P[o, u] - e^ε P[o, v])

dp-accounting composes them. Every step from the one to the other rounds up. A loss between two grid points is split
between them so that both inputs keep their total probabilities, which only raises the curve (connect the dots,
Doroshenko et al. 2022). Tails count as infinite losses. Knows nothing of surveys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import expm1, floor, inf, log, nextafter
from typing import Any, TypeAlias

import numpy as np
from changeling_protocol import Randomizer, log_ratio, rounded_up
from numpy.typing import NDArray

from ..estimate import Floats
from ..randomizers.counterpart import Likelihoods, PairKind, counterpart_of

Point: TypeAlias = tuple[Fraction, Fraction]
"""(β, α): a test that is wrong on one input with probability β is right on the other with probability α."""


@dataclass(frozen=True, slots=True)
class Corner:
    """A point (ε, δ) at which a curve bends.

    ratio: e^ε, exactly. delta: δ, exactly.
    """

    ratio: Fraction
    delta: Fraction

    @property
    def epsilon(self) -> Decimal:
        """ε, the logarithm of the ratio, rounded up."""
        return log_ratio(self.ratio.numerator, self.ratio.denominator)


@dataclass(frozen=True, slots=True)
class PrivacyCurve:
    """How well a report tells two inputs apart.

    points: the best tests, rising and concave from (0, 0) to (1, 1). Then δ(ε) = max over points of α - e^ε β
    (Kairouz, Oh, Viswanath 2017).
    """

    points: tuple[Point, ...]

    def delta_at_ratio(self, ratio: Fraction) -> Fraction:
        """δ at e^ε = ratio, exactly."""
        return max(power - ratio * wrong for wrong, power in self.points)

    def delta_at(self, epsilon: float) -> float:
        """δ(ε), rounded up. Raises ValueError for a negative epsilon."""
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be 0 or more, got {epsilon}")
        if epsilon == inf:
            return float_above(self.delta_at_ratio_infinite)
        with localcontext(prec=50, rounding=ROUND_FLOOR):
            ratio = Fraction(Decimal(epsilon).exp() * (1 - Decimal("1e-45"))) if epsilon else Fraction(1)
        return float_above(self.delta_at_ratio(ratio))

    @property
    def delta_at_ratio_infinite(self) -> Fraction:
        """δ at ε = ∞: the probability of symbols that the other input never sends."""
        return max(power for wrong, power in self.points if wrong == 0)

    def epsilon_at(self, delta: Fraction | float) -> float:
        """The least ε with δ(ε) <= delta, rounded up; inf where there is none.

        ε = ln max over points of (α - δ) / β. Raises ValueError for a delta outside [0, 1].
        """
        allowed = Fraction(delta)
        if not 0 <= allowed <= 1:
            raise ValueError(f"delta must be from 0 to 1, got {delta}")
        if self.delta_at_ratio_infinite > allowed:
            return inf
        ratio = max((power - allowed) / wrong for wrong, power in self.points if wrong)
        return rounded_up(log_ratio(ratio.numerator, ratio.denominator)) if ratio > 1 else 0.0

    def corners(self) -> tuple[Corner, ...]:
        """The points (ε, δ) with ε >= 0 at which the curve bends, by falling ε. With δ(0) they determine it."""
        ratios = [p / q for p, q in self.classes() if q and p >= q]
        return tuple(Corner(ratio, self.delta_at_ratio(ratio)) for ratio in ratios)

    def classes(self) -> Likelihoods:
        """The probabilities (p, q), under the two inputs, of the classes of symbols, by falling ratio p / q."""
        return tuple((power - p, wrong - q) for (q, p), (wrong, power) in pairwise(self.points))

    def together(self, other: "PrivacyCurve") -> "PrivacyCurve":
        """The exact curve of this report and an independent other one together."""
        return curve_of([(p * r, q * s) for p, q in self.classes() for r, s in other.classes()])


SILENT = PrivacyCurve(((Fraction(0), Fraction(0)), (Fraction(1), Fraction(1))))
"""The curve of a report that tells nothing."""


def curve_of(likelihoods: Iterable[tuple[Fraction, Fraction]]) -> PrivacyCurve:
    """The curve of one pair of inputs, or of any two distributions.

    likelihoods: the probabilities (p, q) of each class of symbols under the two.
    """
    sums: list[Point] = [(Fraction(0), Fraction(0))]
    for p, q in sorted(likelihoods, key=lambda pair: -pair[0] / (pair[0] + pair[1])):
        sums.append((sums[-1][0] + q, sums[-1][1] + p))
    return _concave(sums)


def worst_curve(curves: Iterable[PrivacyCurve]) -> PrivacyCurve:
    """The least curve that is above all of these at every ε.

    It is itself the curve of two distributions, so it can be composed (Zhu, Dong, Wang 2022, proposition 8).
    """
    return _concave(sorted({point for curve in curves for point in curve.points}))


@lru_cache(maxsize=512)
def node_curve(randomizer: Randomizer, kind: PairKind) -> PrivacyCurve:
    """The worst curve of one report over the pairs of inputs of a kind; SILENT if there are none."""
    counterpart = counterpart_of(randomizer)
    pairs = counterpart.telling_pairs(kind)
    return worst_curve([SILENT, *(curve_of(counterpart.likelihoods(u, v)) for u, v in pairs)])


def randomizer_curve(randomizer: Randomizer) -> PrivacyCurve:
    """The worst curve of one report over all pairs of inputs."""
    return worst_curve(node_curve(randomizer, kind) for kind in PairKind)


def _concave(points: Iterable[Point]) -> PrivacyCurve:
    """The least concave curve above some points.

    points: sorted, (0, 0) and (1, 1) among them.
    """
    hull: list[Point] = []
    for q, p in points:
        while len(hull) > 1:
            (q0, p0), (q1, p1) = hull[-2:]
            if (p1 - p0) * (q - q1) > (p - p1) * (q1 - q0):
                break
            hull.pop()
        hull.append((q, p))
    return PrivacyCurve(tuple(hull))


def float_above(exact: Fraction) -> float:
    """The least float that is not below a fraction."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else nextafter(nearest, inf)


CurveCounts: TypeAlias = Mapping[PrivacyCurve, int]
"""Independent reports: how many have each curve."""


PrivacyLossDistribution: TypeAlias = Any
"""dp-accounting's class of this name, which is imported late because that takes long; it states no types."""

LATTICE_ERROR = 1e-12
"""A loss this close to a grid point, relatively, is taken for it. Whoever reads a δ(ε) makes up for that in ε."""
MOST_GRID = 2**13
"""About how many grid points the largest loss may span."""
STEPS_PER_LOSS = 16
"""Into how many steps the least loss is divided where losses are not multiples of it."""
MOST_KNOTS = 512
"""At how many points, at most, the highest of several curves is taken."""


def grid_interval(compositions: Iterable[CurveCounts]) -> float:
    """The distance of grid points, in nats, that suits these compositions.

    If all losses are multiples of the least one it is that, and nothing is rounded, as for k-RR, whose losses are
    ±ln(a/b) and 0. If not, it is so small that rounding up costs little, and large enough for about MOST_GRID points.
    """
    every = list(compositions)
    losses = {abs(loss) for counts in every for curve in counts for loss, _ in atoms(curve)} - {0.0}
    if not losses:
        return 1.0
    least = min(losses)
    if all(abs(loss / least - round(loss / least)) <= LATTICE_ERROR * loss / least for loss in losses):
        return least
    return max(least / STEPS_PER_LOSS, max(map(largest_loss, every)) / MOST_GRID)


def largest_loss(counts: CurveCounts) -> float:
    """The largest loss of a composition, in nats, of either sign; infinite losses are left out."""
    return sum(count * max(abs(loss) for loss, _ in atoms(curve)) for curve, count in counts.items())


@lru_cache(maxsize=2048)
def atoms(curve: PrivacyCurve) -> tuple[tuple[float, float], ...]:
    """(ln p/q, p) for each class of symbols that both inputs send, p and q being its probabilities under the two."""
    return tuple(
        (log(p.numerator * q.denominator) - log(p.denominator * q.numerator) if p != q else 0.0, float(p))
        for p, q in curve.classes()
        if p and q
    )


def distribution(curve: PrivacyCurve, interval: float) -> PrivacyLossDistribution:
    """The distribution of the loss ln p/q under the first input, on multiples of an interval, rounded up.

    curve: of one report. interval: in nats.
    """
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
    return pld.PrivacyLossDistribution.create_from_rounded_probability(masses, infinite, interval)


def composed(counts: CurveCounts, interval: float) -> PrivacyLossDistribution:
    """The distribution of the loss of several independent reports, on multiples of an interval in nats."""
    made = [_repeated(curve, interval, count) for curve, count in counts.items() if count]
    return all_together(made) if made else distribution(SILENT, interval)


@lru_cache(maxsize=1024)
def _repeated(curve: PrivacyCurve, interval: float, count: int) -> PrivacyLossDistribution:
    return distribution(curve, interval).self_compose(count)


def all_together(distributions: Sequence[PrivacyLossDistribution]) -> PrivacyLossDistribution:
    """The distribution of the sum of independent losses; of at least one."""
    first, *rest = distributions
    for other in rest:
        first = first.compose(other)
    return first


def upper_distribution(compositions: Sequence[CurveCounts], interval: float) -> PrivacyLossDistribution:
    """One distribution whose δ(ε) is at least that of every composition: the largest at some ε, joined by chords.

    interval: of the grid, in nats.
    """
    made = [composed(counts, interval) for counts in compositions]
    if len(made) == 1:
        return made[0]
    reach = floor(max(map(largest_loss, compositions)) / interval) + 2
    knots = np.unique(np.linspace(-reach, reach, min(2 * reach + 1, MOST_KNOTS)).round().astype(np.int64))
    epsilons = knots.astype(np.float64) * interval
    deltas = np.array([losses.get_delta_for_epsilon(epsilons) for losses in made], np.float64).max(axis=0)
    return from_knots(knots, deltas, interval)


def from_knots(knots: NDArray[np.int64], deltas: Floats, interval: float) -> PrivacyLossDistribution:
    """The distribution whose δ(ε) runs through some points, and between them along chords.

    knots: the points' ε in intervals, rising, shape (n,).
    deltas: their δ, shape (n,).
    interval: in nats.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    # A curve is at least 1 - e^ε and at most 1, and falls; what rounding took from that is given back.
    held = np.clip(deltas, np.maximum(0.0, -np.expm1(knots * interval)), 1.0)
    falling = np.maximum.accumulate(held[::-1])[::-1]
    masses = pld_pmf.create_pmf_pessimistic_connect_dots(interval, knots, falling)
    return pld.PrivacyLossDistribution(masses)


def symmetric_deltas(deltas: Floats, epsilons: Floats) -> tuple[Floats, Floats]:
    """Continues a curve δ(ε) to negative ε, where either input may stand for the other: δ(-ε) = 1 - e^-ε + e^-ε δ(ε).

    deltas: shape (n,). epsilons: rising from 0, shape (n,).
    Returns the epsilons and deltas of the whole curve, each of shape (2n-1,).
    """
    down = -np.expm1(-epsilons[1:]) + np.exp(-epsilons[1:]) * deltas[1:]
    return np.concatenate((-epsilons[:0:-1], epsilons)), np.concatenate((down[::-1], deltas))

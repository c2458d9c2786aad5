"""The exact (ε, δ) curve of one report, in fractions.

    δ(ε) = max over inputs u, v of Σ_o max(0, P[o, u] - e^ε P[o, v])

Knows nothing of surveys.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import inf, nextafter
from typing import TypeAlias

from changeling_protocol import Randomizer, log_ratio, rounded_up

from ..randomizers import Likelihoods, PairKind, counterpart_of

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

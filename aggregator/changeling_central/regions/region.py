"""The privacy region of a finite mechanism: how often a test of "x or x'?" must be wrong, exactly.

    R(M) = hull of {(Pr[M(x) ∈ S], Pr[M(x') ∉ S]) : all sets S of outputs, all neighbours x, x' in either order}

A point is (false alarm, missed detection) of some test. M is (ε, δ)-differentially private if and only if R(M) lies
within R(ε, δ): e^ε·f + m ≥ 1 - δ and f + e^ε·m ≥ 1 - δ. Every tangent line of R(M) is such a pair, and those at its
edges, a finite list (ε_i, δ_i), determine it. In fractions; an ε is the logarithm of a fraction, rounded up.

Source: "Composition theorem for streaming CW-privacy", section 1; Kairouz, Oh, Viswanath 2017. The paper calls the
union over the pairs convex; it need not be, and nothing changes when its hull is taken.

    >>> third = region_of(FiniteMechanism.of([["3/4", "1/4"], ["1/4", "3/4"]]))
    >>> [(corner.ratio, corner.delta) for corner in third.corners]
    [(Fraction(3, 1), Fraction(0, 1))]
    >>> third.delta_at_ratio(Fraction(2)), third.allows(Fraction(2), Fraction(1, 4))
    (Fraction(1, 4), True)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from changeling_protocol import Randomizer
from changeling_statistics import SILENT, Corner, Point, PrivacyCurve, curve_of, randomizer_curve, worst_curve

from .finite import FiniteMechanism, Law, faced


@dataclass(frozen=True, slots=True)
class TangentLine:
    """alarm·f + missed·m ≥ 1 - δ for every test's false alarm f and missed detection m, reached by some test."""

    alarm: Fraction
    missed: Fraction
    delta: Fraction

    def holds(self, false_alarm: Fraction, missed_detection: Fraction) -> bool:
        """Whether a test with these errors lies on this side of the line."""
        return self.alarm * false_alarm + self.missed * missed_detection >= 1 - self.delta


@dataclass(frozen=True, slots=True)
class PrivacyRegion:
    """All pairs (false alarm, missed detection) that some test of the output can have.

    curve: of the worst pair of databases, in either order; so the region is its own mirror image in f = m.
    """

    curve: PrivacyCurve

    @property
    def corners(self) -> tuple[Corner, ...]:
        """The (ε_i, δ_i), ε falling: M is (ε_i, δ_i)-private, and the region is all that they allow."""
        return self.curve.corners()

    @property
    def lines(self) -> tuple[TangentLine, ...]:
        """Two lines for each (ε_i, δ_i), one where ε_i = 0: with the unit square they bound the region from below."""
        unit = Fraction(1)
        steep = [TangentLine(corner.ratio, unit, corner.delta) for corner in self.corners]
        flat = [TangentLine(unit, line.alarm, line.delta) for line in reversed(steep) if line.alarm != 1]
        return (*steep, *flat)

    @property
    def best_tests(self) -> tuple[Point, ...]:
        """(f, m) where the lower boundary bends, f rising, from the end of f = 0 on: the most that can be told."""
        certain = self.curve.delta_at_ratio_infinite
        return tuple((wrong, 1 - power) for wrong, power in self.curve.points if wrong or power == certain)

    @property
    def vertices(self) -> tuple[Point, ...]:
        """The convex polygon, counterclockwise from (0, 1): a test and its contrary are both tests."""
        below = ((Fraction(0), Fraction(1)), *self.best_tests)
        return tuple(dict.fromkeys([*below, *((1 - f, 1 - m) for f, m in below)]))

    def holds(self, false_alarm: Fraction, missed_detection: Fraction) -> bool:
        """Whether some test, drawn at random perhaps, errs like this."""
        f, m = false_alarm, missed_detection
        if not (0 <= f <= 1 and 0 <= m <= 1):
            return False
        return all(line.holds(f, m) and line.holds(1 - f, 1 - m) for line in self.lines)

    def allows(self, ratio: Fraction, delta: Fraction) -> bool:
        """Whether M is (ln ratio, delta)-differentially private, exactly. ValueError for a ratio below 1."""
        return self.delta_at_ratio(ratio) <= delta

    def delta_at_ratio(self, ratio: Fraction) -> Fraction:
        """δ at e^ε = ratio, exactly. ValueError below 1."""
        if ratio < 1:
            raise ValueError(f"e^epsilon is at least 1, got {ratio}")
        return self.curve.delta_at_ratio(ratio)

    def delta_at(self, epsilon: float) -> float:
        """δ(ε) for any ε >= 0 in nats, rounded up."""
        return self.curve.delta_at(epsilon)

    def epsilon_at(self, delta: Fraction | float) -> float:
        """The least ε with δ(ε) <= delta, rounded up; inf where there is none."""
        return self.curve.epsilon_at(delta)


def region_of(mechanism: FiniteMechanism) -> PrivacyRegion:
    """The region of a mechanism, over all its neighbours in either order."""
    return region_of_laws((mechanism.column(x), mechanism.column(y)) for x, y in mechanism.neighbours)


def pair_region(mechanism: FiniteMechanism, first: int, second: int) -> PrivacyRegion:
    """The region of telling two databases apart, in either order, neighbours or not. first, second: their columns."""
    return region_of_laws([(mechanism.column(first), mechanism.column(second))])


def region_of_randomizer(randomizer: Randomizer) -> PrivacyRegion:
    """The region of one report of the local model, whatever the two inputs."""
    return PrivacyRegion(randomizer_curve(randomizer))


def region_of_laws(pairs: Iterable[tuple[Law, Law]]) -> PrivacyRegion:
    """The region of laws of outputs that are to be told apart, pair by pair, in either order."""
    curves = [curve_of(faced(*way)) for one, other in pairs for way in ((one, other), (other, one))]
    return PrivacyRegion(worst_curve([SILENT, *curves]))

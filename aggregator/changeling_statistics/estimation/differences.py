"""Differences of shares: between two arms, between two times, and how much more one arm changed than another.

Arms are disjoint strata, so given who is in which their estimates are independent; between two times the covariance is
that of one estimate of the change, made of the same nodes (`Solution.shares`). Where arms are compared their entries
count as drawn at random: a difference that the draw alone makes is noise too.

A difference Δ is judged by the variance that the two shares would have if Δ were true: both are moved to where they
differ by Δ and fit the estimates best (Miettinen and Nurminen 1985), and few large steps make errors skew (Cornish and
Fisher 1938). So the chance of so large a difference by noise alone, and the interval of all Δ that are not rejected,
hold for rare answers as well, and agree with each other. docs/mathematics.md, "Differences".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, sqrt

import numpy as np
from changeling_protocol import Node

from ..estimate import SETTLED, Estimate, Floats, VarianceCurve, half_width
from .solution import Gap, Solution, missing_on_the_way

BISECTIONS = 50
"""Halvings of the span that an end lies in: its place is known to 1e-15 of the span."""
_two_tails = np.vectorize(lambda z: erfc(abs(z) / sqrt(2)), otypes=[np.float64])


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Shares less other shares, at k times, of z answers; or changes of shares.

    first, second: the values of the two, shape (k, z); the second is 0 where one change is looked at by itself.
    curves: the variances of the two at every value that may be true.
    """

    first: Floats
    second: Floats
    curves: tuple[VarianceCurve, VarianceCurve]

    @property
    def values(self) -> Floats:
        """The differences, shape (k, z): 0.02 is two points."""
        return self.first - self.second

    @property
    def standard_errors(self) -> Floats:
        """The standard errors that intervals are made of, if the difference is the estimated one, shape (k, z)."""
        return np.sqrt(self._fitted(self.values)[1])

    @property
    def p_values(self) -> Floats:
        """The chance of at least so large a difference by noise alone, if there is none, shape (k, z)."""
        return np.asarray(_two_tails(self.scores(np.zeros_like(self.values))), np.float64)

    @property
    def p_together(self) -> Floats:
        """The chance that noise alone makes any answer differ as clearly as the clearest does, shape (k,).

        At most, for normal errors however they are correlated (Šidák 1967): 1 - (1 - least p-value)^z.
        """
        together: Floats = -np.expm1(self.values.shape[1] * np.log1p(-self.p_values.min(1, initial=1 - 1e-16)))
        return together

    def intervals(self, level: float = 0.95) -> Floats:
        """The differences that are not rejected, shape (k, z, 2). level: the chance that they hold the true one."""
        critical, values = half_width(level), self.values
        reach = self.standard_errors * critical + 1e-12
        ends = np.empty((*values.shape, 2))
        for at, side in enumerate((-1, 1)):
            near, far = values.copy(), values + side * reach
            for _ in range(SETTLED):
                far = np.where(side * self.scores(far) > -critical, values + 2 * (far - values), far)
            for _ in range(BISECTIONS):
                middle = (near + far) / 2
                rejected = side * self.scores(middle) <= -critical
                near, far = np.where(rejected, near, middle), np.where(rejected, middle, far)
            ends[..., at] = far
        return ends

    def scores(self, difference: Floats) -> Floats:
        """How many standard errors the estimates lie above a difference if that is true, corrected for skew; (k, z)."""
        theta, variance = self._fitted(difference)
        skew = np.zeros_like(variance)
        for sign, curve, value in zip((1, -1), self.curves, theta, strict=True):
            skew += sign * curve.skewness(np.clip(value, 0.0, 1.0)) * curve.at(value) ** 1.5
        gamma = np.divide(skew, variance**1.5, out=np.zeros_like(skew), where=variance > 0)
        gone = self.values - difference
        z = gone / np.sqrt(np.maximum(variance, 1e-300)) + gamma / 6  # w + gamma (w^2 - 1) / 6 = z, solved for w
        scores: Floats = 2 * z / (1 + np.sqrt(np.maximum(1 + 2 * gamma / 3 * z, 0.0)))
        return scores

    def _fitted(self, difference: Floats) -> tuple[tuple[Floats, Floats], Floats]:
        """The two values that differ so and fit the estimates best, and the variance of the difference if they hold."""
        one, other = self.curves
        theta = self.first, self.second
        for _ in range(SETTLED):
            V, W = one.at(theta[0]), other.at(theta[1])
            total = np.where(V + W > 0, V + W, 1.0)
            second = (W * (self.first - difference) + V * self.second) / total
            second = np.clip(second, np.maximum(0.0, -difference), np.minimum(1.0, 1.0 - difference))
            theta = second + difference, second
        return theta, one.at(theta[0]) + other.at(theta[1])


def difference(first: Sequence[Estimate], second: Sequence[Estimate] = ()) -> Difference:
    """The differences of k shares, or changes of shares, from k others that are independent of them, or from none.

    first, second: what `Solution.shares` gives; as many of both, or no second.
    """
    values, curve = _together(first)
    if not second:
        none = np.zeros_like(values)
        return Difference(values, none, (curve, VarianceCurve.constant(none)))
    others, other_curve = _together(second)
    return Difference(values, others, (curve, other_curve))


def share_difference(arm: Solution, other: Solution | None, period: int, *, since: int = 0) -> Difference:
    """The difference between two arms at a period's end; of one arm between two; or how much more one arm changed.

    arm: the solution of one arm's tallies, or of everybody's. other: that of the other arm; None for none.
    since: the period from whose end the change is looked at; 0 to compare the shares themselves.
    Raises NotEstimable, and ValueError where there is nothing to compare with.
    """
    arms = _arms(arm, other, since)
    return difference(*([each.shares(period, since=since, drawn=len(arms) == 2)] for each in arms))


def share_differences(
    arm: Solution, other: Solution | None, until: int, *, since: int = 0
) -> tuple[list[int], Difference, list[Gap]]:
    """`share_difference` of the periods since + 1 to `until`: those estimated, the differences, and gaps for others."""
    arms = _arms(arm, other, since)
    shares = [each.all_shares(until, since=since, drawn=len(arms) == 2) for each in arms]
    there = [period for period in range(since + 1, until + 1) if all(period in each for each in shares)]
    gaps = [
        Gap(Node(since, period), missing_on_the_way(each.releases, Node(since, period), each.known_until(period)))
        for period in range(since + 1, until + 1)
        for each in [next((each for each, known in zip(arms, shares, strict=True) if period not in known), None)]
        if each is not None
    ]
    return there, difference(*([known[period] for period in there] for known in shares)), gaps


def _arms(arm: Solution, other: Solution | None, since: int) -> list[Solution]:
    if other is None and not since:
        raise ValueError("a difference is from another arm, or from another time: name one of them")
    return [each for each in (arm, other) if each is not None]


def _together(estimates: Sequence[Estimate]) -> tuple[Floats, VarianceCurve]:
    if not estimates:
        return np.zeros((0, 0)), VarianceCurve.constant(np.zeros((0, 0)))
    curves = [each.curve().parts for each in estimates]
    parts = [np.array(part) for part in zip(*curves, strict=True)]
    return np.array([each.values for each in estimates]), VarianceCurve(*parts)

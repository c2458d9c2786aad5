"""Figures made of shares: differences between arms or times; and numbers, their means, quantiles and shares above.

Arms are disjoint strata, so given who is in which their estimates are independent; between two times the covariance is
that of one estimate of the change, made of the same nodes (`Solution.shares`). Where arms are compared their entries
count as drawn at random: a difference that the draw alone makes is noise too.

A difference Δ is judged by the variance that the two shares would have if Δ were true: both are moved to where they
differ by Δ and fit the estimates best (Miettinen and Nurminen 1985), and few large steps make errors skew (Cornish and
Fisher 1938). So the chance of so large a difference by noise alone, and the interval of all Δ that are not rejected,
hold for rare answers as well, and agree with each other. docs/mathematics.md, "Differences".

Entries round a number to levels, each with a public offset of its own, one of J. So J strata show the share at or above
J values between two levels; a parabola is fitted to these on a scale of smooth steps (Fritsch and Carlson 1980). The
mean of all levels is that of the numbers. Quantiles lie where these shares, made to fall, pass their mark, and their
intervals hold the values at which the share is not too far from it. What lies beyond the first or last level counts as
that. docs/mathematics.md, "Numbers".
"""

from collections.abc import Mapping, Sequence
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


STEPS = 16
"""Shares are worked out at so many values between two levels."""


@dataclass(frozen=True, slots=True)
class NumberFigure:
    """One figure of a number, with its confidence interval, in the number's unit; or a share.

    value, low, high: the figure, and the ends of its interval.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NumberFigures:
    """The figures of a number at a period's end, of the entries that hold one.

    period: its number. held: the share of the entries that holds a number.
    mean: unbiased but for `rounding`, of what lies between the first and the last level.
    quantiles, above: by the share asked for, and by the value; none if an offset's entries cannot be estimated.
    rounding: how far a number and the level that it is rounded to are apart on average over the offsets, at most.
    """

    period: int
    held: float
    mean: NumberFigure
    quantiles: Mapping[float, NumberFigure]
    above: Mapping[float, NumberFigure]
    rounding: float


def number_series(
    levels: Sequence[float],
    everybody: Solution,
    by_offset: Sequence[Solution],
    until: int,
    *,
    quantiles: Sequence[float] = (0.5,),
    above: Sequence[float] = (),
    level: float = 0.95,
) -> list[NumberFigures]:
    """The figures of a number at the ends of the periods 1 to `until`, but for those that are not estimable.

    levels: v_0 to v_m, rising; answer i + 1 is level i. everybody: the solution of all tallies about the number, or of
    those of a stratum. by_offset: those of the entries with each offset (2j + 1)/2J, j from 0 on.
    quantiles: shares of entries below, between 0 and 1: 0.5 for the median. above: values, to know the share at or
    above each. level: of the intervals.
    Raises ValueError for a quantile that is none, and for levels that are not those of the answers.
    """
    values, J = np.asarray(levels, np.float64), len(by_offset)
    survey = everybody.releases.survey
    if len(values) != len(survey.answers):
        raise ValueError(f"the number has {len(values)} levels, its question {len(survey.answers)} answers")
    if any(not 0 < q < 1 for q in quantiles):
        raise ValueError(f"quantiles lie between 0 and 1, got {[*quantiles]}")
    z, critical = len(values), half_width(level)
    shifted = values - values.mean()  # the same mean, with the least noise where shares are known to add up to 1
    means = everybody.all_figures(until, _with_held(shifted[None]))
    grid = np.linspace(0, z - 1, STEPS * (z - 1) + 1)
    fitted = fits(values, J, np.concatenate([grid, _steps(values, np.asarray(above, np.float64))]))
    at_least = np.arange(z) > np.arange(z - 1)[:, None]
    strata = [
        each.all_figures(until, _with_held(fitted[:, :, j] @ at_least, 1 / J)) for j, each in enumerate(by_offset)
    ]
    widths = np.diff(values)
    figures = []
    for period, told in means.items():
        mean = _of_held(_Pairs.of([told]), survey.closed)
        spread = critical * np.sqrt(mean.variances(mean.ratios)[0] + widths.max() ** 2 / 4 / _heard(everybody, period))
        centre = float(values.mean() + mean.ratios[0])
        by_quantile, by_value = {}, {}
        if all(period in each for each in strata):
            shares = _of_held(_Pairs.of([each[period] for each in strata]), survey.closed)
            by_quantile = {q: _quantile(shares, grid, 1 - q, critical, values) for q in quantiles}
            errors = critical * np.sqrt(shares.variances(shares.ratios))
            by_value = {
                x: NumberFigure(*(float(shares.ratios[at] + side * errors[at]) for side in (0, -1, 1)))
                for at, x in enumerate(above, len(grid))
            }
        figures.append(
            NumberFigures(
                period,
                mean.b,
                NumberFigure(centre, centre - float(spread), centre + float(spread)),
                by_quantile,
                by_value,
                float(widths.max()) / (2 * J),
            )
        )
    return figures


def fits(levels: Floats, offsets: int, points: Floats) -> Floats:
    """How much each known share counts in the parabola around each point, shape (points, m, offsets).

    levels: m + 1 values. offsets: J. points: in steps of levels, from 0 to m.
    The points of the parabola count the less the farther they are, to none one level away, or farther near the ends,
    where as many are taken as inside.
    """
    m, u = len(levels) - 1, (2 * np.arange(offsets) + 1) / (2 * offsets)
    known = _steps(levels, (levels[:-1, None] + u * np.diff(levels)[:, None]).ravel())
    apart = known - points[:, None]
    reach = 1.0 + np.maximum(0.0, np.maximum(1 - points, points - (m - 1)))
    kernel = np.maximum(0.0, 1 - np.abs(apart) / reach[:, None])
    powers = apart[:, :, None] ** np.arange(min(3, m * offsets))
    weighed = powers * kernel[:, :, None]
    solved = np.linalg.solve(np.einsum("pki,pkj->pij", powers, weighed), weighed.transpose(0, 2, 1))
    weights: Floats = solved[:, 0].reshape(len(points), m, offsets)
    return weights


def _steps(levels: Floats, values: Floats) -> Floats:
    """Values in steps of levels."""
    from scipy.interpolate import PchipInterpolator  # late: it loads slowly

    steps: Floats = PchipInterpolator(levels, np.arange(len(levels)))(np.clip(values, levels[0], levels[-1]))
    return steps


def _value(levels: Floats, step: float) -> float:
    """The value at so many steps of levels."""
    low = int(min(step, len(levels) - 2))
    finer = np.linspace(levels[low], levels[low + 1], 257)
    return float(np.interp(step, _steps(levels, finer), finer))


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Figures a of all entries and the share b that holds a number, with their covariance: the figures are a / b.

    a: shape (q,). b: a number. aa, ab: shape (q,). bb: a number.
    """

    a: Floats
    b: float
    aa: Floats
    ab: Floats
    bb: float

    @classmethod
    def of(cls, parts: Sequence[tuple[Floats, Floats]]) -> "_Pairs":
        """The sums over some that are independent, each of what `_with_held` asks for."""
        value, variance = (np.sum([part[at] for part in parts], axis=0) for at in (0, 1))
        q = (len(value) - 1) // 2
        ab = (variance[q + 1 :] - variance[:q] - variance[q]) / 2
        return cls(value[:q], float(value[q]), variance[:q], ab, float(variance[q]))

    @property
    def ratios(self) -> Floats:
        """a / b."""
        return self.a / self.b

    def variances(self, ratio: Floats | float) -> Floats:
        """The variances of (a - ratio b) / b, by which a ratio is judged (Fieller 1954), shape (q,)."""
        variances: Floats = np.maximum(self.aa - 2 * ratio * self.ab + ratio**2 * self.bb, 0.0) / self.b**2
        return variances


def _with_held(figures: Floats, part: float = 1.0) -> Floats:
    """Figures, the share that holds any number, times a part, and the sums of each figure with that; (2q + 1, z)."""
    held = np.full((1, figures.shape[1]), part)
    return np.concatenate([figures, held, figures + held])


def _of_held(pairs: _Pairs, closed: bool) -> _Pairs:
    """In a closed cohort everybody holds one, and it is known."""
    return _Pairs(pairs.a, 1.0, pairs.aa, np.zeros_like(pairs.ab), 0.0) if closed else pairs


def _heard(solution: Solution, period: int) -> float:
    return max(1.0, float(solution.releases.enrolment.latest[period]))


def _quantile(shares: _Pairs, grid: Floats, mark: float, critical: float, levels: Floats) -> NumberFigure:
    """The value at or above which the share `mark` lies. shares: at the points of the grid, and maybe others after."""
    from scipy.optimize import isotonic_regression  # late: it loads slowly

    raw, errors = shares.ratios[: len(grid)], np.sqrt(shares.variances(mark)[: len(grid)])
    at = _passing(grid, isotonic_regression(raw, increasing=False).x - mark)
    ends = []
    for side, points in ((-1, grid[grid < at][::-1]), (1, grid[grid > at])):
        away = np.array([at, *points])
        apart, error = np.interp(away, grid, raw - mark), np.interp(away, grid, errors)
        ends.append(_passing(away, side * apart + critical * error))
    low, high = ends
    return NumberFigure(*(_value(levels, each) for each in (at, low, high)))


def _passing(points: Floats, figures: Floats) -> float:
    """Where figures first fall to 0, on a straight line between points; the last point if they never do."""
    fallen = np.flatnonzero(figures <= 0)
    if not len(fallen) or fallen[0] == 0:
        return float(points[-1] if not len(fallen) else points[0])
    one, other = fallen[0] - 1, fallen[0]
    part = figures[one] / (figures[one] - figures[other])
    return float(points[one] + part * (points[other] - points[one]))

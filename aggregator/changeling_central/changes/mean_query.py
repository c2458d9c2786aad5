"""Means of a clipped number, as two columns that the same noise is right for.

With x clipped and rounded, v = x - middle and h half the range, an entry that counts has -h <= v <= h, and one of two
forms is measured:

    v, and the count, weighted            where entries may change: a change moves v alone
    h + v, and h - v                      where they only come and go: the two add up to 2h, whatever v is

The first has a corner at (±h, weight), so in both an entry moves less than each column's most taken together
(`body`). The second has half the variance with Laplace noise: sum and count are half the difference and half the sum of
its columns. What is shown of them costs nothing more (post-processing).

The weight is that of the least error of a mean at the end of its range, which is the worst: with Laplace noise h; with
Gaussian noise h √√(4k - 3), at most h √3, for k mutations, as then weight ² + h² + 4h²(k - 1) bounds what is moved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, sqrt
from typing import NamedTuple

from changeling_protocol import AtMost, AtMostWithin, Constraint, Hybrid

from ..node_noise import Law
from .linear_query import LinearQuery
from .release_graph import Level

SURE = 3.0
"""Standard errors of the count that it must exceed 0 by, before a sum is divided by it."""


class Shown(NamedTuple):
    """A number that is published of a release. name: of it. value: its estimate. error: standard; nan if unknown."""

    name: str
    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Mean:
    """column: of the numbers. low, high: what they are clipped to. unit: what they are rounded to a multiple of.

    weight: of the count, in halves of the range; None for the second form, which is measured from both ends.
    ValueError unless low < high, and unit and weight are above 0.
    """

    column: str
    low: Fraction
    high: Fraction
    unit: Fraction = Fraction(1)
    weight: float | None = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high or self.unit <= 0:
            raise ValueError(f"a mean needs low < high and a unit above 0, got {self.low}, {self.high}, {self.unit}")
        if self.weight is not None and not 0 < self.weight < inf:
            raise ValueError(f"the count of a mean has a weight above 0, got {self.weight}")

    @property
    def middle(self) -> Fraction:
        """Of the range."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> int:
        """Of the range, in units, rounded up."""
        return ceil((self.high - self.low) / (2 * self.unit))

    @property
    def of_one(self) -> int:
        """What one more in the count adds to what `shown` takes for it, in units."""
        return self.half if self.weight is None else max(1, round(self.weight * self.half))

    def row(self, value: float | None) -> tuple[int, int]:
        """The two columns of an entry with this number, or with none."""
        if value is None:
            return (0, 0)
        v = round((min(max(Fraction(value), self.low), self.high) - self.middle) / self.unit)
        return (v, self.of_one) if self.weight is not None else (self.half + v, self.half - v)

    def shown(self, level: Level) -> list[Shown]:
        """The count, the sum, and the mean where the count is surely above 0.

        level: of `mean_query`'s columns. Standard errors of count and sum are exact; that of the mean is to first
        order, and holds where the count is many times its own.
        """
        total, weighted = (float(value) for value in level.values)
        sigma, unit, middle = sqrt(level.variance), float(self.unit), float(self.middle)
        if self.weight is None:
            total, weighted, sigma = (total - weighted) / 2, (total + weighted) / 2, sigma / sqrt(2)
        count, of_count = weighted / self.of_one, sigma / self.of_one
        above = unit * total
        rows = [
            Shown(f"count of {self.column}", count, of_count),
            Shown(
                f"sum of {self.column}", above + middle * count, sqrt((unit * sigma) ** 2 + (middle * of_count) ** 2)
            ),
        ]
        if count > SURE * of_count:
            slope = above / count
            error = sqrt((unit * sigma) ** 2 + (slope * of_count) ** 2) / count
            rows.append(Shown(f"mean of {self.column}", middle + slope, error))
        return rows


def best_weight(constraint: Constraint, fixed: bool, law: str | None, delta: Fraction) -> float | None:
    """The weight of the count for entries that keep to the constraint; None to measure from both ends.

    fixed: no entry ever holds two different answers. law: of the noise, None if it is not chosen yet; with a delta
    above 0 that is taken to be Gaussian.
    """
    k = _mutations(constraint)
    if fixed or k == 1:
        return 1.0 if law == Law.GAUSSIAN else None
    gaussian = law == Law.GAUSSIAN or (law is None and delta > 0)
    return sqrt(min(3.0, sqrt(4 * k - 3))) if gaussian else 1.0


def mean_query(mean: Mean, values: Mapping[str, float], answers: Sequence[str], fixed: bool = False) -> LinearQuery:
    """The two columns of a mean.

    values: the number that each answer stands for; an answer without one counts in neither. answers: of the changelog,
    states 1..z. fixed: no entry ever holds two different answers.
    """
    h, of_one = mean.half, mean.of_one
    table = ((0, 0), *(mean.row(values.get(answer)) for answer in answers))
    if mean.weight is None:
        names = f"{mean.column} above its least", f"{mean.column} below its most"
        corners = ((0, 0), (2 * h, 0), (0, 2 * h))
        appearing = (2 * h, h)
        moving = appearing if fixed else (2 * h, 2 * h)
    else:
        names = f"sum of {mean.column} above its middle", f"count of {mean.column}, weighted"
        corners = ((0, 0), (h, of_one), (-h, of_one))
        appearing = (h, of_one)
        moving = appearing if fixed else (2 * h, of_one)
    return LinearQuery(names, table, appearing, moving, mean.unit, fixed, corners)


def _mutations(constraint: Constraint) -> float:
    match constraint:
        case AtMost(k) | AtMostWithin(k, _):
            return k
        case Hybrid(classes):
            return max(_mutations(each) for each in classes)
    return inf

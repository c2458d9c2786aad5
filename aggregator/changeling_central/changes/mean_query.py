"""Means of a clipped number, as a sum and a count that the same noise is right for.

A mean is two columns in one release: Σ (x - middle), x clipped and rounded, and the count of those that hold a number,
weighted by half the range. Measured from the middle, one entry moves the sum by at most half the range when it comes or
goes, and by the whole range when it changes; both columns then have about the same reach, as noise of one scale asks
for. What is shown of them costs nothing more (post-processing).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt
from typing import NamedTuple

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

    ValueError unless low < high and the unit is above 0.
    """

    column: str
    low: Fraction
    high: Fraction
    unit: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not self.low < self.high or self.unit <= 0:
            raise ValueError(f"a mean needs low < high and a unit above 0, got {self.low}, {self.high}, {self.unit}")

    @property
    def middle(self) -> Fraction:
        """Of the range."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> int:
        """Of the range, in units, rounded up: the weight of the count."""
        return ceil((self.high - self.low) / (2 * self.unit))

    def shown(self, level: Level) -> list[Shown]:
        """The count, the sum, and the mean where the count is surely above 0.

        level: of `mean_query`'s columns. Standard errors of count and sum are exact; that of the mean is to first
        order, and holds where the count is many times its own.
        """
        total, weighted = (float(value) for value in level.values)
        sigma, unit, middle = sqrt(level.variance), float(self.unit), float(self.middle)
        count, of_count = weighted / self.half, sigma / self.half
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


def mean_query(mean: Mean, values: Mapping[str, float], answers: Sequence[str], fixed: bool = False) -> LinearQuery:
    """The two columns of a mean.

    values: the number that each answer stands for; an answer without one counts in neither. answers: of the changelog,
    states 1..z. fixed: no entry ever holds two different answers.
    """
    rows = [
        (round((min(max(Fraction(values[answer]), mean.low), mean.high) - mean.middle) / mean.unit), mean.half)
        if answer in values
        else (0, 0)
        for answer in answers
    ]
    h = mean.half
    moving = (h, h) if fixed else (2 * h, h)
    names = f"sum of {mean.column} above its middle", f"count of {mean.column}, weighted"
    return LinearQuery(names, ((0, 0), *rows), (h, h), moving, mean.unit, fixed)

"""What a counting query is answered with, and what two tables told apart differ in."""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

from ..intervals import Interval, sum_interval
from ..mechanism import Guarantee
from ..node_noise import NodeNoise

ADDED_OR_REMOVED = "tables that differ by one row added or removed"
REPLACED = "tables that differ in one row replaced"


@dataclass(frozen=True, slots=True)
class Answer:
    """value: in order, where the mechanism promises order. estimate: without bias, before anything is clipped.

    atoms: how many draws of `noise` the estimate is the sum of.
    """

    value: int
    estimate: int
    atoms: int
    noise: NodeNoise

    @property
    def standard_error(self) -> float:
        """Of the estimate, in rows."""
        return sqrt(self.atoms * self.noise.variance)

    def interval(self, level: float = 0.95) -> Interval:
        """Around the estimate, which for a query that holds of no row at all is 0 for certain."""
        return Interval(0.0, 1.0) if not self.atoms else sum_interval(self.noise, self.atoms, level)


def under_replacement(guarantee: Guarantee) -> Guarantee:
    """The guarantee where one row is replaced: a removal and an addition, twice the cost (group privacy)."""
    if guarantee.neighbours != ADDED_OR_REMOVED:
        raise ValueError(f"this guarantee speaks of {guarantee.neighbours}")
    return Guarantee(2 * guarantee.epsilon, Fraction(0), REPLACED, guarantee.source)

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
    """How many rows satisfy a query, with noise.

    value: never out of order among nested queries, where the mechanism promises that. estimate: without bias, before
    anything is clipped. atoms: how many draws of `noise` the estimate adds up.
    """

    value: int
    estimate: int
    atoms: int
    noise: NodeNoise

    @property
    def standard_error(self) -> float:
        """The standard error of the estimate, in rows."""
        return sqrt(self.atoms * self.noise.variance)

    def interval(self, level: float = 0.95) -> Interval:
        """The interval around the estimate; exactly 0 for a query that no row satisfies. level: the coverage wanted."""
        return Interval(0.0, 1.0) if not self.atoms else sum_interval(self.noise, self.atoms, level)


def under_replacement(guarantee: Guarantee) -> Guarantee:
    """What a guarantee about one row added or removed promises where one row is replaced: twice the epsilon.

    A row replaced is a removal and an addition (group privacy). ValueError for a guarantee about other neighbours.
    """
    if guarantee.neighbours != ADDED_OR_REMOVED:
        raise ValueError(f"this guarantee speaks of {guarantee.neighbours}")
    return Guarantee(2 * guarantee.epsilon, Fraction(0), REPLACED, guarantee.source)

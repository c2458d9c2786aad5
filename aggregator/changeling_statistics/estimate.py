"""An estimate: one figure for each answer, and their covariance. It is never clipped."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A histogram, or the change of one, as it is estimated.

    values: unbiased, shape (z,), in entries. They may be below zero.
    covariance: shape (z, z), in entries squared. It is itself estimated, without bias unless `upper_bound` is set.
    upper_bound: whether the covariance is on average too large, because the tallies do not tell all of it
    (docs/mathematics.md, "Decoding a node").
    """

    values: Floats
    covariance: Floats
    upper_bound: bool = False

    @property
    def standard_errors(self) -> Floats:
        """The root of each variance, shape (z,), in entries.

        As the covariance is estimated too, a variance can come out below zero if there are few reports; its standard
        error is then nan.
        """
        variances = np.diag(self.covariance)
        return np.sqrt(np.where(variances >= 0, variances, np.nan))

    def __add__(self, other: "Estimate") -> "Estimate":
        """The sum of two independent estimates; its covariance is an upper bound if one of theirs is."""
        upper_bound = self.upper_bound or other.upper_bound
        return Estimate(self.values + other.values, self.covariance + other.covariance, upper_bound)

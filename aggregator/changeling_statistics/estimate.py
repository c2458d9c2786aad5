"""An estimate: values and their covariance, never clipped."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """values of shape (z,), in entries; covariance of shape (z, z), in entries squared.

    upper_bound: the covariance is not unbiased but on average too large, because the tallies do not identify all of
    it (docs/mathematics.md, "Decoding a node"); a sum with such an estimate is one too.
    """

    values: Floats
    covariance: Floats
    upper_bound: bool = False

    @property
    def standard_errors(self) -> Floats:
        """Shape (z,), in entries.

        The covariance is itself an unbiased estimate, so a variance can come out below zero where there are
        few reports; its standard error is then nan.
        """
        variances = np.diag(self.covariance)
        return np.sqrt(np.where(variances >= 0, variances, np.nan))

    def __add__(self, other: "Estimate") -> "Estimate":
        """The sum of two independent estimates."""
        upper_bound = self.upper_bound or other.upper_bound
        return Estimate(self.values + other.values, self.covariance + other.covariance, upper_bound)

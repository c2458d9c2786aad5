"""An estimate: values and their covariance, never clipped."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """values of shape (z,), in entries; covariance of shape (z, z), in entries squared."""

    values: Floats
    covariance: Floats

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
        return Estimate(self.values + other.values, self.covariance + other.covariance)

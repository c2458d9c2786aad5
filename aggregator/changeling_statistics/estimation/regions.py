"""Confidence regions: for one answer, for all answers at one time, and for several times at once.

An estimate is a sum of very many small reports, so its errors are taken to be normal. If its covariance is an upper
bound, regions cover with at least the stated level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ..estimate import Estimate, Floats

FLAT = 1e-9
"""Directions with less than this share of the largest variance are known exactly, like the sum of a closed cohort."""
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, eq=False)
class Ellipsoid:
    """A confidence region for all answers at once: the histograms v with (v - centre)' C⁺ (v - centre) <= bound.

    centre: the estimate, shape (z,), in entries.
    inverse: C⁺, shape (z, z).
    rank: in how many directions the region has a width; in the others the histogram is known exactly.
    bound: a quantile of chi-squared with `rank` degrees of freedom.
    """

    centre: Floats
    inverse: Floats
    rank: int
    bound: float

    def contains(self, histogram: Floats) -> bool:
        """True if a histogram, shape (z,), in entries, lies in the region. Directions without a width do not count."""
        return self.distance(histogram) <= self.bound

    def distance(self, histogram: Floats) -> float:
        """(v - centre)' C⁺ (v - centre). For the true histogram it is chi-squared with `rank` degrees of freedom."""
        off = histogram - self.centre
        return float(off @ self.inverse @ off)


def intervals(estimate: Estimate, level: float = 0.95) -> Floats:
    """Confidence intervals, one for each answer by itself: lower and upper ends, shape (z, 2), in entries.

    level: the probability with which each of them covers, between 0 and 1.
    """
    half = half_width(level) * estimate.standard_errors
    return np.stack([estimate.values - half, estimate.values + half], axis=1)


def region(estimate: Estimate, level: float = 0.95) -> Ellipsoid:
    """The ellipsoid that covers all answers of one estimate at once.

    level: the probability with which it covers, between 0 and 1.
    """
    from scipy.special import gammaincinv  # late: it loads slowly

    half_width(level)  # raises outside the range of levels
    variances, axes = np.linalg.eigh(estimate.covariance)
    kept = variances > FLAT * max(float(variances[-1]), 0.0)
    inverse = (axes[:, kept] / variances[kept]) @ axes[:, kept].T
    rank = int(kept.sum())
    return Ellipsoid(estimate.values, inverse, rank, 2 * float(gammaincinv(rank / 2, level)) if rank else 0.0)


def bands(estimates: Sequence[Estimate], level: float = 0.95) -> Floats:
    """Confidence bands for several times at once: lower and upper ends, shape (k, z, 2), in entries.

    estimates: k of them.
    level: the probability, at least, with which all k·z intervals cover together, between 0 and 1.
    Each of the m = kz intervals has the level^(1/m), which is enough for normal errors, however they are correlated
    (Šidák 1967), and never wider than Bonferroni's.
    """
    m = max(1, len(estimates) * (len(estimates[0].values) if estimates else 1))
    half = half_width(level, m) * np.array([estimate.standard_errors for estimate in estimates])
    values = np.array([estimate.values for estimate in estimates])
    return np.stack([values - half, values + half], axis=-1)


def half_width(level: float, together: int = 1) -> float:
    """The half-width, in standard errors, of each of some intervals for normal errors that cover together.

    level: the probability with which they do, between 0 and 1. Raises ValueError outside.
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
    return NORMAL.inv_cdf(0.5 + level ** (1 / together) / 2)

"""Confidence regions: for one answer, for all answers at one time, and for several times at once.

An estimate is a sum of very many small reports, so its errors are taken to be normal, with the variance that they have
if a hypothesised histogram is true (`Estimate.curve`). An interval holds what is not rejected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ..estimate import Estimate, Floats, VarianceCurve

FLAT = 1e-9
"""Directions with less than this share of the largest variance are known exactly, like the sum of a closed cohort."""
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, eq=False)
class Ellipsoid:
    """A confidence region for all answers at once: the histograms v with (v - centre)' C(v)⁺ (v - centre) <= bound.

    C(v) has the variances that the estimate has if v is true, and the correlations of the published covariance.

    centre: the estimate, shape (z,), in entries.
    curve: its variances at every histogram.
    correlations: positive semidefinite, with ones on the diagonal but for answers that are known exactly, shape (z, z).
    rank: in how many directions the region has a width; in the others the histogram is known exactly.
    bound: a quantile of chi-squared with `rank` degrees of freedom.
    """

    centre: Floats
    curve: VarianceCurve
    correlations: Floats
    rank: int
    bound: float

    def contains(self, histogram: Floats) -> bool:
        """True if a histogram, shape (z,), in entries, lies in the region. Directions without a width do not count."""
        return self.distance(histogram) <= self.bound

    def distance(self, histogram: Floats) -> float:
        """(v - centre)' C(v)⁺ (v - centre). For the true histogram it is about chi-squared with `rank` degrees."""
        errors = np.sqrt(self.curve.at(histogram))
        variances, axes = np.linalg.eigh(errors[:, None] * self.correlations * errors)
        kept = variances > FLAT * max(float(variances[-1]), 0.0)
        along = axes[:, kept].T @ (histogram - self.centre)
        return float((along**2 / variances[kept]).sum())


def intervals(estimate: Estimate, level: float = 0.95) -> Floats:
    """Confidence intervals, one for each answer by itself: lower and upper ends, shape (z, 2), in entries.

    level: the probability with which each of them covers, between 0 and 1.
    """
    return estimate.curve().ends(estimate.values, half_width(level))


def region(estimate: Estimate, level: float = 0.95) -> Ellipsoid:
    """The ellipsoid that covers all answers of one estimate at once.

    level: the probability with which it covers, between 0 and 1.
    """
    from scipy.special import gammaincinv  # late: it loads slowly

    half_width(level)  # raises outside the range of levels
    correlations = _correlations(estimate.covariance)
    rank = int(np.linalg.matrix_rank(correlations, tol=FLAT * len(correlations), hermitian=True))
    bound = 2 * float(gammaincinv(rank / 2, level)) if rank else 0.0
    return Ellipsoid(estimate.values, estimate.curve(), correlations, rank, bound)


def _correlations(covariance: Floats) -> Floats:
    """The nearest that an estimated covariance has to correlations: what came out below zero counts as none."""
    variances, axes = np.linalg.eigh(covariance)
    kept = np.where(variances > FLAT * max(float(variances[-1]), 0.0), variances, 0.0)
    within = (axes * kept) @ axes.T
    errors = np.sqrt(np.maximum(np.diag(within), 0.0))
    correlations: Floats = within / np.where(errors > 0, errors, 1.0) / np.where(errors > 0, errors, 1.0)[:, None]
    return correlations


def bands(estimates: Sequence[Estimate], level: float = 0.95) -> Floats:
    """Confidence bands for several times at once: lower and upper ends, shape (k, z, 2), in entries.

    estimates: k of them.
    level: the probability, at least, with which all k·z intervals cover together, between 0 and 1.
    Each of the m = kz intervals has the level^(1/m), which is enough for normal errors, however they are correlated
    (Šidák 1967), and never wider than Bonferroni's. That is far out in the tails, where ends allow for large steps.
    """
    m = max(1, len(estimates) * (len(estimates[0].values) if estimates else 1))
    critical = half_width(level, m)
    ends = [estimate.curve().far_ends(estimate.values, critical) for estimate in estimates]
    return np.array(ends).reshape(len(estimates), -1, 2)


def half_width(level: float, together: int = 1) -> float:
    """The half-width, in standard errors, of each of some intervals for normal errors that cover together.

    level: the probability with which they do, between 0 and 1. Raises ValueError outside.
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
    return NORMAL.inv_cdf(0.5 + level ** (1 / together) / 2)

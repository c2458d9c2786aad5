"""Confidence regions from estimates: per answer, for all answers of one time, and for several times at once.

Every estimate is a sum of very many small reports, so regions are those of the normal distribution. Where the
estimate's covariance is an upper bound, coverage is at least the level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ..estimate import Estimate, Floats

FLAT = 1e-9
"""Directions with less than this share of the largest variance are known exactly, like the sum of a closed cohort."""
DRAWS = 20_000
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, eq=False)
class Ellipsoid:
    """A confidence region for all answers at once: { v : (v - centre)' C⁺ (v - centre) <= bound }, in entries.

    centre: the estimate, shape (z,). inverse: C⁺, shape (z, z). rank: in how many directions it has a width; in the
    others it is known exactly. bound: the quantile of chi-squared with `rank` degrees of freedom.
    """

    centre: Floats
    inverse: Floats
    rank: int
    bound: float

    def contains(self, histogram: Floats) -> bool:
        """Whether a histogram, shape (z,), lies inside; directions without variance are not looked at."""
        return self.distance(histogram) <= self.bound

    def distance(self, histogram: Floats) -> float:
        """(v - centre)' C⁺ (v - centre): chi-squared with `rank` degrees of freedom where v is the truth."""
        off = histogram - self.centre
        return float(off @ self.inverse @ off)


def intervals(estimate: Estimate, level: float = 0.95) -> Floats:
    """Confidence intervals, one for each answer by itself: lower and upper ends, shape (z, 2), in entries.

    level: the probability with which each of them covers, between 0 and 1.
    """
    half = NORMAL.inv_cdf(0.5 + _level(level) / 2) * estimate.standard_errors
    return np.stack([estimate.values - half, estimate.values + half], axis=1)


def region(estimate: Estimate, level: float = 0.95) -> Ellipsoid:
    """The ellipsoid that covers all answers of one estimate at once with probability `level` (chi-squared).

    level: between 0 and 1.
    """
    variances, axes = np.linalg.eigh(estimate.covariance)
    kept = variances > FLAT * max(float(variances[-1]), 0.0)
    inverse = (axes[:, kept] / variances[kept]) @ axes[:, kept].T
    rank = int(kept.sum())
    return Ellipsoid(estimate.values, inverse, rank, _chi_squared(rank, _level(level)))


def bands(estimates: Sequence[Estimate], level: float = 0.95) -> Floats:
    """Confidence bands for several times at once: lower and upper ends, shape (k, z, 2), in entries.

    level: the probability, at least, with which all k·z intervals cover together.
    Šidák: each of the m = kz intervals at level^(1/m), which is enough for normal errors however correlated
    (Šidák 1967), and never wider than Bonferroni's.
    """
    m = max(1, len(estimates) * (len(estimates[0].values) if estimates else 1))
    return _bands(estimates, NORMAL.inv_cdf(0.5 + _level(level) ** (1 / m) / 2))


def correlated_bands(
    estimates: Sequence[Estimate], joint: Floats, generator: np.random.Generator, level: float = 0.95
) -> Floats:
    """As `bands`, but narrower: the level-quantile of the largest |error|/standard error over all of them.

    joint: Cov(v̂_t, v̂_t') of the k estimates, shape (k, k, z, z). The quantile is of 20,000 normal draws, so the
    level is met within .003 (twice its standard error). O((kz)³): for some hundreds of times and answers.
    """
    k, z = len(estimates), joint.shape[-1]
    covariance = joint.transpose(0, 2, 1, 3).reshape(k * z, k * z)
    scale = np.sqrt(np.diag(covariance))
    scale = np.where(scale > 0, scale, 1.0)
    variances, axes = np.linalg.eigh((covariance + covariance.T) / 2 / np.outer(scale, scale))
    root = axes * np.sqrt(np.maximum(variances, 0.0))
    largest = np.concatenate([np.abs(root @ generator.standard_normal((k * z, DRAWS // 20))).max(0) for _ in range(20)])
    return _bands(estimates, float(np.quantile(largest, _level(level))))


def _bands(estimates: Sequence[Estimate], critical: float) -> Floats:
    values = np.array([estimate.values for estimate in estimates])
    half = critical * np.array([estimate.standard_errors for estimate in estimates])
    return np.stack([values - half, values + half], axis=-1)


def _chi_squared(rank: int, level: float) -> float:
    from scipy.special import gammaincinv

    return 2 * float(gammaincinv(rank / 2, level)) if rank else 0.0


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
    return level

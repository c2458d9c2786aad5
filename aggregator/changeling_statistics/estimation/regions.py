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
DRAWS = 20_000
"""How many normal errors are drawn for a quantile."""
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
        """Whether a histogram, shape (z,), in entries, lies in the region. Directions without a width do not count."""
        return self.distance(histogram) <= self.bound

    def distance(self, histogram: Floats) -> float:
        """(v - centre)' C⁺ (v - centre). For the true histogram it is chi-squared with `rank` degrees of freedom."""
        off = histogram - self.centre
        return float(off @ self.inverse @ off)


def intervals(estimate: Estimate, level: float = 0.95) -> Floats:
    """Confidence intervals, one for each answer by itself: lower and upper ends, shape (z, 2), in entries.

    level: the probability with which each of them covers, between 0 and 1.
    """
    half = NORMAL.inv_cdf(0.5 + _level(level) / 2) * estimate.standard_errors
    return np.stack([estimate.values - half, estimate.values + half], axis=1)


def region(estimate: Estimate, level: float = 0.95) -> Ellipsoid:
    """The ellipsoid that covers all answers of one estimate at once.

    level: the probability with which it covers, between 0 and 1.
    """
    variances, axes = np.linalg.eigh(estimate.covariance)
    kept = variances > FLAT * max(float(variances[-1]), 0.0)
    inverse = (axes[:, kept] / variances[kept]) @ axes[:, kept].T
    rank = int(kept.sum())
    return Ellipsoid(estimate.values, inverse, rank, _chi_squared(rank, _level(level)))


def bands(estimates: Sequence[Estimate], level: float = 0.95) -> Floats:
    """Confidence bands for several times at once: lower and upper ends, shape (k, z, 2), in entries.

    estimates: k of them.
    level: the probability, at least, with which all k·z intervals cover together, between 0 and 1.
    Each of the m = kz intervals has the level^(1/m), which is enough for normal errors, however they are correlated
    (Šidák 1967), and never wider than Bonferroni's.
    """
    m = max(1, len(estimates) * (len(estimates[0].values) if estimates else 1))
    return _bands(estimates, NORMAL.inv_cdf(0.5 + _level(level) ** (1 / m) / 2))


def correlated_bands(
    estimates: Sequence[Estimate], joint: Floats, generator: np.random.Generator, level: float = 0.95
) -> Floats:
    """Narrower bands than `bands`: the half-width is a quantile of the largest |error| in standard errors.

    estimates: k of them.
    joint: their covariance Cov(v̂_t, v̂_t'), shape (k, k, z, z), in entries squared.
    generator: draws DRAWS normal errors, from which the quantile is taken; so the level is met within .003 (twice
    its standard error).
    level: as for `bands`.
    Returns lower and upper ends, shape (k, z, 2), in entries. Takes O((kz)³) steps: for some hundreds of kz.
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


def displayed(values: Floats, population: float, *, null: bool = True) -> Floats:
    """The histogram without negative counts that is closest to an estimate (least squares) and fits the population.

    values: of one or more estimates, shape (..., z), in entries.
    population: how many entries there are, at least 0.
    null: whether entries may have no answer. If so, the answers add up to the population at most; if not, exactly.
    Negative counts become 0, and the same number is taken from, or added to, each of the others (projection on the
    simplex, Duchi et al. 2008; "norm-sub" in Wang et al. 2020).
    Raises ValueError for a population below 0, or values that are not finite.
    """
    if not population >= 0:
        raise ValueError(f"a population has 0 entries or more, got {population}")
    values = np.asarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("an estimate that is not finite cannot be displayed")
    whole = values
    if null:
        whole = np.concatenate([values, population - values.sum(-1, keepdims=True)], axis=-1)
    shown: Floats = _on_simplex(whole, population)
    return shown[..., : values.shape[-1]]


def _on_simplex(values: Floats, total: float) -> Floats:
    """max(values - θ, 0), θ such that they sum to the total."""
    falling = -np.sort(-values, axis=-1)
    theta = (falling.cumsum(-1) - total) / np.arange(1, values.shape[-1] + 1)
    last = np.maximum((falling > theta).sum(-1, keepdims=True), 1) - 1
    return np.maximum(values - np.take_along_axis(theta, last, axis=-1), 0.0)

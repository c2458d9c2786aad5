"""Confidence intervals, ellipsoids and bands."""

import numpy as np
import pytest
from changeling_statistics import Estimate, bands, intervals, region

DRAWS = 20_000
SLACK = 4 * np.sqrt(0.95 * 0.05 / DRAWS)
"""Four standard errors of a share of 95%: a false alarm in 16,000 per comparison."""


def toy(generator, size):
    root = generator.normal(size=(size, size))
    covariance = root @ root.T
    return covariance, generator.multivariate_normal(np.zeros(size), covariance, size=DRAWS)


def test_intervals_and_ellipsoids_cover_as_they_say():
    """Of 20,000 normal errors, 95% within four standard errors (false alarms: 1 in 3,000 over all five)."""
    covariance, errors = toy(np.random.default_rng(1), 4)
    estimate = Estimate(np.array([3.0, -1.0, 0.0, 9.0]), covariance)
    ends = intervals(estimate) - estimate.values[:, None]
    inside = (errors >= ends[:, 0]) & (errors <= ends[:, 1])
    np.testing.assert_allclose(inside.mean(0), 0.95, atol=SLACK)
    ellipsoid = region(estimate)
    covered = np.mean([ellipsoid.contains(estimate.values + error) for error in errors])
    assert covered == pytest.approx(0.95, abs=SLACK)
    assert ellipsoid.rank == 4


def test_directions_that_are_known_exactly_take_no_degree_of_freedom():
    """Where the answers sum to the cohort the ellipsoid is flat, and covers as it says."""
    generator = np.random.default_rng(2)
    flat = np.eye(4) - 0.25
    errors = generator.normal(size=(DRAWS, 4)) @ flat
    ellipsoid = region(Estimate(np.zeros(4), flat))
    assert ellipsoid.rank == 3
    assert np.mean([ellipsoid.contains(error) for error in errors]) == pytest.approx(0.95, abs=SLACK)


def test_bands_cover_all_times_at_once():
    """At least as often as they say, however correlated the times are."""
    generator = np.random.default_rng(3)
    k, z = 6, 2
    walk = np.cumsum(generator.normal(size=(DRAWS, k, z)), axis=1)
    joint = np.einsum("ts,ab->tsab", np.minimum.outer(np.arange(1, k + 1), np.arange(1, k + 1)), np.eye(z))
    estimates = [Estimate(np.zeros(z), joint[t, t]) for t in range(k)]
    wide = bands(estimates)
    assert (np.abs(walk) <= wide[..., 1]).all((1, 2)).mean() >= 0.95


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_are_probabilities(level):
    """And the message holds the value."""
    with pytest.raises(ValueError, match=f"between 0 and 1, got {level}"):
        intervals(Estimate(np.zeros(1), np.eye(1)), level)

"""What is offered by name only: the drift smoother and the superpopulation variance."""

import numpy as np
import pytest
from changeling_protocol import Group, KaryResponse, MutationSpace, Odds, ReleasePlan, SignedSubset, StateSpace, Track
from changeling_statistics import (
    EmptyNode,
    NodeTally,
    NotEstimable,
    histogram_change,
    releases,
    series,
    smoothed_series,
    superpopulation_change,
)
from changeling_statistics.estimation.histograms import likely_drift

from ..protocol.examples import survey
from .graphs import attended, calendar, hierarchy, noiseless, random_tallies

T = 16
STATES = KaryResponse(StateSpace(3), Odds(3, 1))
SURVEY = survey(ReleasePlan((Group((Track(1, STATES, 0, T),)),)), calendar=calendar(T))


def test_the_smoother_is_named_biased_and_has_less_noise():
    """It averages neighbouring times, so its standard errors are smaller, and says that it is biased."""
    tallies = random_tallies(SURVEY, np.random.default_rng(1))
    smoothed = smoothed_series(SURVEY, tallies, T)
    assert smoothed.biased
    assert smoothed.drift > 0
    plain = series(SURVEY, tallies, T)
    for one, other in zip(smoothed.histograms[1:], plain[1:], strict=True):
        assert (one.estimate.standard_errors < other.estimate.standard_errors).all()


def test_the_smoother_lags_behind_a_jump():
    """Its bias is real: from tallies without noise the truth is missed, which the plain estimate hits."""
    states = np.repeat([[0] + [1] * 8 + [2] * 8], 50, axis=0)
    tallies = noiseless(SURVEY, states)
    smoothed = smoothed_series(SURVEY, tallies, T, drift=1.0).histograms
    truth = series(SURVEY, tallies, T)
    assert smoothed[8].estimate.values[0] > 10 > abs(truth[8].estimate.values[0])


@pytest.mark.parametrize("retrospective", [False, True])
def test_a_smoothed_histogram_is_the_posterior_mean_of_a_random_walk(retrospective):
    """Against the dense normal equations with the drift's own equations, at every time."""
    tallies = random_tallies(SURVEY, np.random.default_rng(2))
    known, drift = releases(SURVEY, tallies), 3000.0
    smoothed = smoothed_series(SURVEY, tallies, T, retrospective=retrospective, drift=drift)
    for found in smoothed.histograms:
        n = T if retrospective else found.period
        D = np.diff(np.eye(n), axis=0)
        L = np.diag(1 / known.network.variance[:n]) + D.T @ D / drift
        v = np.linalg.solve(L, known.changes[:n] / known.network.variance[:n, None])
        np.testing.assert_allclose(found.estimate.values, v[found.period - 1], atol=1e-6)


def test_the_drift_is_found_by_likelihood():
    """A random walk of variance 100 seen with variance 50 at each time: within a factor of 1.5 over 400 times."""
    generator = np.random.default_rng(3)
    periods = 400
    walk = np.cumsum(generator.normal(0, 10, (periods, 3)), axis=0)
    panel = hierarchy(periods, (1,))
    panel = type(panel)(periods, np.zeros(periods, np.intp), panel.end, np.full(periods, 50.0))
    found = likely_drift(panel, walk + generator.normal(0, np.sqrt(50), walk.shape))
    assert 100 / 1.5 < found < 150


def test_the_likelihood_is_that_of_the_dense_normal_distribution():
    """Differences of -2 ln p between drifts, with a first time nearly without prior."""
    from changeling_statistics.estimation.histograms import _surprise

    generator = np.random.default_rng(4)
    panel = hierarchy(6, (1,))
    panel = type(panel)(6, np.zeros(6, np.intp), panel.end, generator.uniform(1, 3, 6))
    y = generator.normal(size=(6, 2))

    def dense(drift):
        steps = np.minimum.outer(np.arange(6), np.arange(6)) * drift
        S = 1e7 + steps + np.diag(panel.variance)
        return 2 * np.linalg.slogdet(S)[1] + np.trace(y.T @ np.linalg.solve(S, y))

    assert _surprise(panel, y, 2.0) - _surprise(panel, y, 0.3) == pytest.approx(dense(2.0) - dense(0.3), abs=1e-4)


def test_what_the_smoother_cannot_do_is_refused():
    """Times that nothing connects, and a drift of nothing."""
    tallies = random_tallies(SURVEY, np.random.default_rng(1))
    with pytest.raises(NotEstimable, match="track 0"):
        smoothed_series(SURVEY, attended(SURVEY, {key: t for key, t in tallies.items() if key[1] > 3}), T)
    with pytest.raises(ValueError, match="got 0"):
        smoothed_series(SURVEY, tallies, T, drift=0.0)


@pytest.mark.parametrize(
    "randomizer", [KaryResponse(MutationSpace(2), Odds(3, 1)), SignedSubset(MutationSpace(4), Odds(9, 1))], ids=str
)
def test_the_superpopulation_variance_is_that_of_multinomial_tallies(randomizer):
    """A (diag(O) - OO'/n) A', A read off single reports, and above the conditional one."""
    O = np.random.default_rng(1).multinomial(400, np.full(randomizer.symbols, 1 / randomizer.symbols))
    found = superpopulation_change(NodeTally(400, O), randomizer)
    units = np.eye(randomizer.symbols, dtype=np.int64)
    A = np.array([histogram_change(NodeTally(1, unit), randomizer).values for unit in units]).T
    np.testing.assert_allclose(found.values, A @ O, atol=1e-8)
    np.testing.assert_allclose(found.covariance, A @ (np.diag(O) - np.outer(O, O) / 400) @ A.T, atol=1e-6)


def test_the_superpopulation_variance_needs_counts():
    """Of symbols, and at least one report."""
    with pytest.raises(EmptyNode):
        superpopulation_change(NodeTally(0, np.zeros(7, dtype=np.int64)), KaryResponse(MutationSpace(2), Odds(3, 1)))
    large = SignedSubset(MutationSpace(16), Odds(9, 1))
    with pytest.raises(ValueError, match="keeps sums"):
        superpopulation_change(NodeTally(1, np.zeros(35, dtype=np.int64)), large)


def test_a_drift_counts_for_as_much_whatever_weighs_the_releases():
    """One group for everybody, said twice: once weighed as independent releases, once by its whole covariance."""
    track = Track(1, KaryResponse(MutationSpace(3), Odds(9, 2)), 0, 12)
    alone = survey(ReleasePlan((Group((track,)),)), calendar=calendar(12))
    twice = survey(ReleasePlan((Group((track,)), Group((track,)))), calendar=calendar(12))
    generator = np.random.default_rng(8)
    half, other = (random_tallies(alone, generator) for _ in range(2))
    whole = half + other
    parts = attended(twice, {**half, **{(1, node): tally for (_, node), tally in other.items()}})
    drift = 400.0
    one = smoothed_series(alone, whole, 12, retrospective=True, drift=drift).histograms
    two = smoothed_series(twice, parts, 12, retrospective=True, drift=drift).histograms
    for each, same in zip(one, two, strict=True):
        scale = np.abs(each.estimate.values).max()
        np.testing.assert_allclose(each.estimate.values, same.estimate.values, atol=0.15 * scale)

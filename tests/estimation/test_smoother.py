"""What is offered by name only: the drift smoother and the superpopulation variance."""

import numpy as np
import pytest
from changeling_protocol import (
    Group,
    KaryResponse,
    MutationSpace,
    Node,
    NodeNumber,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Track,
    TrackNumber,
)
from changeling_statistics import (
    EmptyNode,
    NodeTally,
    ShownAs,
    Smoothing,
    head_shown,
    histogram_figures,
    intervals,
    releases,
    series,
    span_figures,
    superpopulation_change,
)
from changeling_statistics.estimation.entries import expected_moments
from changeling_statistics.estimation.solution import _Noise

from ..protocol.examples import survey
from .graphs import attended, calendar, noiseless, random_tallies

T = 16
STATES = KaryResponse(StateSpace(3), Odds(3, 1))
SURVEY = survey(ReleasePlan((Group((Track(1, STATES, 0, T),)),)), calendar=calendar(T))


def test_the_smoother_is_named_biased_and_errs_less():
    """It averages neighbouring times, so its standard errors, bias and all, are smaller, and says that it is biased."""
    tallies = random_tallies(SURVEY, np.random.default_rng(1))
    solution = Smoothing(releases(SURVEY, tallies))
    head = head_shown(solution, (), ShownAs("smoothed", "heard", 0.95, T, 1, T))
    assert head["biased"]
    assert head["drift"] == solution.drifts.tolist()
    assert (solution.drifts > 0).all()
    plain = series(SURVEY, tallies, T, retrospective=True)
    smoothed, _ = histogram_figures(solution, T)
    for one, other in zip(smoothed.standard_errors[1:], plain[1:], strict=True):
        assert (one < other.estimate.standard_errors).all()


def test_a_smoothed_histogram_is_the_posterior_mean_of_a_random_walk():
    """Against the dense normal equations with the drift's own equations, where nodes are independent; and its variance
    is that of the noise alone and of the bias, which are the posterior variance together."""
    tallies = random_tallies(SURVEY, np.random.default_rng(2))
    known, drift = releases(SURVEY, tallies), 1e-3
    m, D = known.enrolment.stands_for[1:], np.diff(np.eye(T), axis=0)
    told = np.diag(m**2 / known.network.variance)
    posterior = np.linalg.inv(told + D.T @ D / drift)
    shares = posterior @ told @ (known.changes / m[:, None])
    solution = Smoothing(known, drift=drift)
    values = [estimate.values for estimate in solution.estimates(T)]
    np.testing.assert_allclose(values, shares * m[:, None] * known.enrolment.scales[T], atol=1e-6)
    S = posterior @ told
    biases = np.diag(posterior - S @ np.linalg.inv(told) @ S.T) * (m * known.enrolment.scales[T]) ** 2
    np.testing.assert_allclose(solution.errors, np.repeat(biases[:, None], 3, axis=1), rtol=1e-6)


def test_figures_and_estimates_of_smoothed_histograms_agree():
    """Values, variances and intervals of a series are those of its histograms one by one; an answer that moves has a
    larger drift than one that stands still."""
    solution, generator = Smoothing(releases(SURVEY, _walked(np.random.default_rng(3)))), range(T)
    first, second, third = solution.drifts
    assert min(first, second) > 3 * third
    figures, gaps = histogram_figures(solution, T)
    assert not gaps
    for at, estimate in zip(generator, solution.estimates(T), strict=True):
        np.testing.assert_allclose(figures.values[at], estimate.values, atol=1e-9)
        np.testing.assert_allclose(figures.variances[at], np.diag(estimate.covariance), rtol=1e-9)
        np.testing.assert_allclose(figures.intervals()[at], intervals(estimate), rtol=1e-9)
        assert np.linalg.eigvalsh(estimate.covariance).min() > 0
        one, _ = span_figures(solution, Node(0, at + 1))
        np.testing.assert_allclose(one.values[0], estimate.values)


def _walked(generator):
    """Tallies of 20,000 entries, of whom all go from the first answer to the second in time; the third stands still."""
    steps = np.rint(np.linspace(1000, 15000, T)).astype(np.int64)
    nodes = {}
    for at, second in enumerate(steps.tolist(), 1):
        held = np.array([0, 16000 - second, second, 4000])
        told = np.full((4, 4), 1 / 6) + np.eye(4) / 3
        nodes[TrackNumber(0), NodeNumber(at)] = NodeTally(
            20000, sum(generator.multinomial(count, row) for count, row in zip(held, told, strict=True))
        )
    return attended(SURVEY, nodes)


@pytest.mark.parametrize("drift", [1e-5, 1e-3])
def test_errors_and_drifts_of_random_walks_are_as_stated(drift):
    """400 walks of 60 periods with a known noise that hangs together: the mean squared error is the stated one within
    7% (its standard error is some 2%; seeded), and the median of the likeliest drifts is the true one."""
    generator = np.random.default_rng(5)
    periods, walks = 60, 400
    N = 1e-4 * (np.eye(periods) + 0.5 * np.exp(-np.abs(np.subtract.outer(range(periods), range(periods))) / 5))
    truth = np.cumsum(generator.normal(0, np.sqrt(drift), (periods, walks)), axis=0)
    seen = truth + np.linalg.cholesky(N) @ generator.normal(size=truth.shape)
    noise = _Noise.of(N, np.arange(periods), drift * 4.0 ** np.arange(-4, 5))
    off = noise.smoother(4) @ seen - truth
    assert (off**2).mean() == pytest.approx(noise.errors[4].mean(), rel=0.07)
    assert np.median(noise.likelihoods(seen).argmax(0)) == 4


def test_the_likelihood_is_that_of_the_dense_normal_distribution():
    """Differences of ln p between drifts, with a first time nearly without prior; times need not be neighbours."""
    generator = np.random.default_rng(6)
    times, y = np.array([1, 2, 5, 6, 9]), generator.normal(size=(5, 2))
    root = generator.normal(size=(5, 5))
    N, drifts = root @ root.T, np.array([0.3, 2.0])

    def dense(drift):
        S = 1e7 + np.minimum.outer(times, times) * drift + N
        return -0.5 * np.linalg.slogdet(S)[1] - 0.5 * np.diag(y.T @ np.linalg.solve(S, y))

    found = _Noise.of(N, times, drifts).likelihoods(y)
    np.testing.assert_allclose(found[1] - found[0], dense(2.0) - dense(0.3), atol=1e-3)


def test_noise_is_what_is_asked_not_who_might_have_been():
    """Half of the entries report their states almost without noise, the others theirs: together hardly any noise is
    left, and what is smoothed away as a population's own variety would be a hundred times as much."""
    true = KaryResponse(StateSpace(3), Odds(10**6, 1))
    both = survey(ReleasePlan((Group((Track(1, true, 0, T),)), Group((Track(1, true, 0, T),)))), calendar=calendar(T))
    states = np.array([[0] + [1, 2] * (T // 2), [0] + [2, 1] * (T // 2)])
    solution = Smoothing(noiseless(both, states, 500))
    of_others = expected_moments(3, both.expected, T).centred[1, 1] / 1000
    assert solution._noise.errors[-1].max() < 0.02 * of_others


def test_what_the_smoother_cannot_do_is_refused():
    """Times that nothing connects are gaps; a drift of nothing, changes, and a single time are refused; so is a
    superpopulation variance without a report, or of sums."""
    tallies = random_tallies(SURVEY, np.random.default_rng(1))
    late = attended(SURVEY, {key: t for key, t in tallies.items() if key[1] > 3})
    found, gaps = histogram_figures(Smoothing(releases(SURVEY, late)), T)
    assert [each.missing is not None and each.missing.node.end for each in gaps] == [1, 2, 3]
    assert [span.end for span in found.spans] == list(range(4, T + 1))
    with pytest.raises(ValueError, match="got 0"):
        Smoothing(releases(SURVEY, tallies), drift=0.0)
    with pytest.raises(ValueError, match="not smoothed"):
        Smoothing(releases(SURVEY, tallies)).estimate(5, 3)
    with pytest.raises(ValueError, match="two periods"):
        Smoothing(releases(SURVEY, attended(SURVEY, {key: t for key, t in tallies.items() if key[1] == 1})))
    with pytest.raises(EmptyNode):
        superpopulation_change(NodeTally(0, np.zeros(7, dtype=np.int64)), KaryResponse(MutationSpace(2), Odds(3, 1)))
    with pytest.raises(ValueError, match="keeps sums"):
        superpopulation_change(NodeTally(1, np.zeros(35, np.int64)), SignedSubset(MutationSpace(16), Odds(9, 1)))

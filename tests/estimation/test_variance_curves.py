"""Intervals at any count: the variance that a hypothesised value would have."""

import numpy as np
import pytest
from changeling_protocol import Group, KaryResponse, Odds, ReleasePlan, StateSpace, Track
from changeling_statistics import (
    Estimate,
    Solution,
    VarianceCurve,
    bands,
    counterpart_of,
    histogram_figures,
    intervals,
    releases,
)
from scipy.stats import binom, poisson

from ..protocol.examples import survey
from .graphs import attended, calendar

ODDS, ANSWERS, ENTRIES, SURVEYS = Odds(3000, 1), 20, 700, 250
STATES = KaryResponse(StateSpace(ANSWERS, null=False), ODDS)
TOTAL = ODDS.favoured + (ANSWERS - 1) * ODDS.other
P, Q = ODDS.favoured / TOTAL, ODDS.other / TOTAL


NAMES = tuple(f"answer {a}" for a in range(ANSWERS))


def sampled(asked, counts, generator):
    """Tallies of one state report of each entry, by track how many hold each answer."""
    told = counterpart_of(STATES)
    return attended(asked, {(track, 1): told.sample(held, generator) for track, held in enumerate(counts)})


def of_counts(level=0.0, linear=0.0, bent=0.0, floor=0.0, steps=0.0, entries=100.0):
    return VarianceCurve(*(np.array([each]) for each in (level, linear, bent, floor, entries, steps, steps, 0.0)))


def test_an_interval_of_a_binomial_count_is_wilsons():
    """5 of 100 hold an answer: V(θ) = θ (1 - θ/n) gives the score interval, in closed form."""
    k, n, z = 5, 100, 1.959964
    low, high = of_counts(bent=1.0, entries=n).ends(np.array([float(k)]), z)[0] / n
    middle, half = (k / n + z * z / 2 / n), z * np.sqrt(k / n * (1 - k / n) / n + z * z / 4 / n / n)
    np.testing.assert_allclose([low, high], [(middle + s * half) / (1 + z * z / n) for s in (-1, 1)], rtol=1e-9)


def test_every_end_is_as_far_as_its_own_variance_allows():
    """(v - θ)² = critical² V(θ) at both ends, wherever the curve bends, where errors are not skew."""
    curve, values = of_counts(level=3.0, linear=0.7, bent=0.8, floor=1.0), np.array([12.0])
    ends = curve.ends(values, 2.5)
    np.testing.assert_allclose((values[:, None] - ends) ** 2, 2.5**2 * curve.at(ends[0])[None], rtol=1e-9)


def test_a_variance_below_zero_never_takes_an_interval_away():
    """Neither of an estimate with a curve, which has a known part, nor of one without."""
    known = Estimate(np.array([1.0]), np.array([[-5.0]]), law=lambda: of_counts(level=-5.0, linear=1.0, floor=4.0))
    np.testing.assert_allclose(intervals(known)[0], [1 - 3.92, 1 + 3.92], atol=0.01)
    plain = Estimate(np.array([1.0]), -np.eye(1))
    assert not np.isnan(np.concatenate([intervals(known + known), *bands([known, plain])])).any()


def test_the_variance_of_one_report_of_everybody_is_known_for_every_truth():
    """k-RR of states, said by all: n q(1-q) + θ {p(1-p) - q(1-q)}, over (p - q)², whatever the tally was."""
    plan = ReleasePlan((Group((Track(1, STATES, 0, 1),)),))
    asked = survey(plan, answers=NAMES, calendar=calendar(1), closed=True)
    held = np.arange(ANSWERS) ** 2
    solution = Solution(releases(asked, sampled(asked, [held], np.random.default_rng(1))))
    estimate, n = solution.estimate(1), solution.releases.enrolment.enrolled[1]
    for truth in (0.0, 1.0, n / 2):
        wanted = (n * Q * (1 - Q) + truth * (P * (1 - P) - Q * (1 - Q))) / (P - Q) ** 2
        np.testing.assert_allclose(estimate.curve().at(np.full(ANSWERS, truth)), wanted, rtol=1e-6)
    figures, _ = histogram_figures(solution, 1)
    np.testing.assert_allclose(figures.intervals(0.95)[0], intervals(estimate, 0.95), rtol=1e-9)


def test_intervals_of_rare_answers_cover_as_they_say():
    """Two of 700 entries hold an answer, half of them are asked at ε = 8: of 250 surveys and 19 rare answers between
    93% and 97.5% (errors of a third of a point: false alarms below one in a million). Plugged-in variances cover less.
    """
    plan = ReleasePlan((Group((Track(1, STATES, 0, 1),)), Group((Track(1, STATES, 1, 2),))))
    asked = survey(plan, answers=NAMES, calendar=calendar(2), closed=True)
    generator, held, plugged = np.random.default_rng(2), [], []
    truth = np.array([2] * (ANSWERS - 1) + [ENTRIES - 2 * (ANSWERS - 1)])
    for _ in range(SURVEYS):
        first = generator.multivariate_hypergeometric(truth, ENTRIES // 2)
        tallies = sampled(asked, [first, truth - first], generator)
        estimate = Solution(releases(asked, tallies)).estimate(1)
        ends, off = intervals(estimate)[:-1], np.abs(estimate.values - truth)[:-1]
        held.append((ends[:, 0] <= 2) & (ends[:, 1] >= 2))
        plugged.append(off <= 1.96 * estimate.standard_errors[:-1])
    assert 0.93 <= np.mean(held) <= 0.975
    assert np.mean(plugged) < 0.9


@pytest.mark.parametrize("mean", [0.4, 0.6, 1.0, 2.0, 3.0, 20.0])
def test_an_interval_holds_a_count_of_few_large_steps(mean):
    """A Poisson number of steps, of the false reports that name an answer which nobody holds: at least 93% at any mean,
    summed up exactly. Normal errors alone cover 88% at a mean of 0.6."""
    none = np.array([0.0])
    curve = VarianceCurve(none, none, none, none + mean, none + 1000.0, none + 1.0, none, none)
    counts = np.arange(80.0)
    held = [ends[0, 0] <= 0 <= ends[0, 1] for ends in (curve.ends(np.array([k - mean]), 1.96) for k in counts)]
    assert poisson.pmf(counts[held], mean).sum() >= 0.93


@pytest.mark.parametrize("chance", [0.05, 0.2])
@pytest.mark.parametrize("held", [1, 3, 12])
def test_an_interval_holds_a_count_of_few_who_are_asked(held, chance):
    """Of those who hold an answer a few are asked, each of whom stands for many: at least 93%, summed up exactly."""
    curve, asked = of_counts(bent=1 / chance - 1, entries=1e6), np.arange(held + 1)
    inside = [ends[0, 0] <= held <= ends[0, 1] for ends in (curve.ends(np.array([k / chance]), 1.96) for k in asked)]
    assert binom.pmf(asked[inside], held, chance).sum() >= 0.93


@pytest.mark.parametrize("mean", [0.05, 1.0, 20.0])
def test_far_ends_hold_for_few_large_steps(mean):
    """Of a Poisson number of steps: at a nominal chance of 1 in 100,000 (two-sided) at most thrice as many miss."""
    curve, critical = of_counts(linear=1.0, steps=1.0, floor=mean), 4.4172
    counts = np.arange(80.0)
    missed = [
        poisson.pmf(counts[[ends(np.array([k]), critical)[0, 0] > mean for k in counts]], mean).sum()
        for ends in (curve.far_ends, curve.ends)
    ]
    assert missed[0] <= 3e-5
    assert missed[1] > 2 * missed[0]

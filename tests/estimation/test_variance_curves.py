"""Intervals at any count: the variance that a hypothesised value would have."""

from dataclasses import replace

import numpy as np
import pytest
from changeling_protocol import Group, KaryResponse, Odds, ReleasePlan, StateSpace, Track
from changeling_statistics import (
    Estimate,
    NodeTally,
    Solution,
    VarianceCurve,
    counterpart_of,
    histogram_figures,
    intervals,
    releases,
)
from scipy.stats import binom, norm, poisson

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


def asking(parts):
    """In every period another part of the entries, of so many, report what they hold at its end."""
    groups = tuple(Group((Track(1, STATES, period, period + 1),)) for period in range(parts))
    return survey(ReleasePlan(groups), answers=NAMES, calendar=calendar(parts), closed=True)


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
    assert not np.isnan([intervals(plain), plain.curve().far_ends(plain.values, 3.0)]).any()


def test_intervals_of_normal_errors_cover_as_they_say_alone_and_together():
    """Of 20,000 walks of six times 95% each, within four standard errors (false alarms: 1 in 2,000 over all twelve); at
    least as many at all times at once, however correlated these are."""
    draws, k, z = 20_000, 6, 2
    walks = np.cumsum(np.random.default_rng(3).normal(size=(draws, k, z)), axis=1)
    curve = VarianceCurve.constant(np.repeat(np.arange(1.0, k + 1)[:, None], z, axis=1))
    alone = curve.ends(np.zeros((k, z)), norm.ppf(0.975))
    inside = (walks >= alone[..., 0]) & (walks <= alone[..., 1])
    np.testing.assert_allclose(inside.mean(0), 0.95, atol=4 * np.sqrt(0.95 * 0.05 / draws))
    together = curve.far_ends(np.zeros((k, z)), norm.ppf(0.5 + 0.95 ** (1 / k / z) / 2))
    assert (np.abs(walks) <= together[..., 1]).all((1, 2)).mean() >= 0.95
    for level in (0.0, 1.0, 95.0):
        with pytest.raises(ValueError, match=f"between 0 and 1, got {level}"):
            intervals(Estimate(np.zeros(1), np.eye(1)), level)


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
    asked = asking(2)
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


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("mean", [0.4, 0.6, 1.0, 2.0, 3.0, 20.0])
def test_an_interval_holds_a_count_of_few_large_steps(mean, everybody):
    """A Poisson number of steps, of the false reports that name an answer which nobody holds, or that do not name one
    which everybody holds: at least 93% at any mean, summed up exactly. Normal errors alone cover 88% at a mean of 0.6.
    """
    entries, counts = 1000.0, np.arange(80.0)
    curve, held = of_counts(floor=mean, entries=entries), entries * everybody
    curve = replace(curve, up=np.array([1.0]))
    found = (held + (mean - k if everybody else k - mean) for k in counts)
    inside = [ends[0, 0] <= held <= ends[0, 1] for ends in (curve.ends(np.array([each]), 1.96) for each in found)]
    assert poisson.pmf(counts[inside], mean).sum() >= 0.93


@pytest.mark.parametrize("chance", [0.05, 0.2])
@pytest.mark.parametrize("held", [1, 3, 12])
def test_an_interval_holds_a_count_of_few_who_are_asked(held, chance):
    """Of those who hold an answer a few are asked, each of whom stands for many: at least 93%, summed up exactly."""
    curve, asked = of_counts(bent=1 / chance - 1, entries=1e6), np.arange(held + 1)
    inside = [ends[0, 0] <= held <= ends[0, 1] for ends in (curve.ends(np.array([k / chance]), 1.96) for k in asked)]
    assert binom.pmf(asked[inside], held, chance).sum() >= 0.93


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("mean", [0.05, 1.0, 20.0])
def test_far_ends_hold_for_few_large_steps(mean, everybody):
    """Of a Poisson number of steps, those that name an answer falsely, or fail to name it: at a nominal chance of 1 in
    100,000 (two-sided) at most thrice as many miss; with ends for normal errors more."""
    curve, critical = replace(of_counts(floor=mean, entries=1000.0), up=np.array([1.0])), 4.4172
    counts, held, side = np.arange(80.0), 1000.0 * everybody, int(everybody)
    missed = []
    for ends in (curve.far_ends, curve._normal_ends):
        found = (ends(np.array([held + (mean - k if everybody else k - mean)]), critical)[0, side] for k in counts)
        outside = [end < held if everybody else end > held for end in found]
        missed.append(poisson.pmf(counts[outside], mean).sum())
    assert missed[0] <= 3e-5
    assert missed[1] > 2 * missed[0]


@pytest.mark.parametrize(("held", "parts"), [(0, 2), (1, 7)])
def test_with_few_outcomes_no_interval_covers_between_93_and_975(held, parts):
    """Of 700 entries none or one holds an answer, and a part is asked at ε = 8; every outcome, summed up exactly.
    An interval that holds the truth in 93% of surveys holds it in every outcome that is likelier than 7%, and these
    alone are 99%. Ours holds it in them and in hardly any other.
    """
    asked, asked_of, outcomes = asking(parts), ENTRIES // parts, np.arange(8)
    false, others = (binom.pmf(outcomes, reports, Q) for reports in (asked_of, asked_of - 1))
    of_holder = P * np.append(0, others[:-1]) + (1 - P) * others
    chances = false if held == 0 else ((parts - 1) * false + of_holder) / parts
    inside = []
    for count in outcomes:
        slots = np.zeros(ANSWERS, np.int64)
        slots[0], slots[-1] = count, asked_of - count
        tallies = attended(asked, {(track, 1): NodeTally(asked_of, slots) for track in range(parts)})
        low, high = intervals(Solution(releases(asked, tallies)).estimate(1))[0]
        inside.append(low <= held <= high)
    assert abs(chances.sum() - 1) < 1e-9
    least = chances[chances > 0.07].sum()
    assert least > 0.99
    assert least - 1e-12 <= chances[inside].sum() <= least + 1e-3

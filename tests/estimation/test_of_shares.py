"""Figures made of shares: differences between arms and times, how often noise is taken for one; and numbers."""

from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import OFFSETS, AtMost, Group, KaryResponse, Odds, Question, ReleasePlan, StateSpace, Track
from changeling_simulations import Population, sample_tallies
from changeling_statistics import (
    Estimate,
    Solution,
    VarianceCurve,
    Wish,
    difference,
    number_series,
    optimal_plan,
    releases,
    share_difference,
    share_differences,
    steady_changes,
)
from changeling_statistics.estimation.of_shares import fits
from scipy.stats import binom

from ..protocol.examples import survey
from .graphs import calendar

SURVEYS = 80
FALSE_ALARM = 1e-4
"""The chance that right intervals fail for an answer below, were the seed drawn anew."""
MOST = binom.isf(FALSE_ALARM, SURVEYS, 0.05) / SURVEYS


def holding(asked, shares, generator, entries=50_000):
    """Entries who hold answers with these shares, of whom a quarter changes at some time to an answer by the same."""
    T = asked.calendar.periods
    states = np.zeros((entries, T + 1), np.uint16)
    states[:, 1:] = generator.choice(len(shares), (entries, 1), p=shares) + 1
    if T > 1:
        changes, at = generator.random(entries) < 0.4, generator.integers(2, T + 1, entries)
        moved = changes[:, None] & (np.arange(T + 1) >= at[:, None])
        states = np.where(moved, generator.choice(len(shares), (entries, 1), p=shares) + 1, states).astype(np.uint16)
    rows, counts = np.unique(states, axis=0, return_counts=True)
    return Population(asked.answers, rows, rows, counts)


def planned(periods, epsilon, entries):
    rates = {} if periods == 1 else {"expected": steady_changes(calendar(periods), AtMost(2), 0.25)}
    wish = Wish(3, calendar(periods), AtMost(2), Decimal(epsilon), entries, closed=True, **rates)
    return optimal_plan(wish).option.survey


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("periods", "since", "shares", "sizes"),
    [
        (1, 0, ([0.3, 0.5, 0.2], [0.3, 0.5, 0.2]), (1500, 1500)),
        (1, 0, ([0.32, 0.48, 0.2], [0.3, 0.5, 0.2]), (1500, 1500)),
        (1, 0, ([0.005, 0.495, 0.5], [0.005, 0.495, 0.5]), (300, 2700)),
        (6, 2, ([0.3, 0.5, 0.2], [0.3, 0.5, 0.2]), (1500, 1500)),
    ],
    ids=["no difference", "two points", "rare and uneven", "in differences"],
)
def test_intervals_hold_the_truth_and_noise_is_seldom_taken_for_a_difference(periods, since, shares, sizes):
    """Each answer's 95% interval misses in MOST of them at most; p is below 5% so often where nothing differs."""
    generator, asked = np.random.default_rng(5), planned(periods, 4, sum(sizes))
    arms = [holding(asked, share, generator) for share in shares]
    held = [(arm.histogram()[periods] - (since > 0) * arm.histogram()[since]) / arm.entries for arm in arms]
    told = [
        [
            Solution(releases(asked, sample_tallies(arm.resampled(size, generator), asked, generator))).shares(
                periods, since=since, drawn=True
            )
            for _ in range(SURVEYS)
        ]
        for arm, size in zip(arms, sizes, strict=True)
    ]
    found = difference(*told)
    low, high = np.moveaxis(found.intervals(), 2, 0)
    missed = (held[0] - held[1] < low) | (high < held[0] - held[1])
    assert (missed.mean(0) <= MOST).all()
    assert shares[0] != shares[1] or (found.p_together < 0.05).mean() <= MOST


def test_the_interval_holds_0_exactly_where_the_p_value_is_above_its_complement():
    """For normal and skew errors, at any size of difference: one test, inverted."""
    generator = np.random.default_rng(1)
    law = VarianceCurve(*(np.full(4, each) for each in (1e-4, 2e-4, 1e-4, 5e-5, 1.0, 3e-3, 1e-3, 0.0)))
    first, second = (
        [Estimate(generator.uniform(-0.02, 0.1, 4), np.eye(4) * 1e-4, law=lambda: law) for _ in range(200)]
        for _ in range(2)
    )
    found = difference(first, second)
    ends, p = found.intervals(0.9), found.p_values
    assert (((ends[..., 0] <= 0) & (ends[..., 1] >= 0)) == (p >= 0.1 - 1e-9)).all()
    assert (ends[..., 0] <= found.values).all()
    assert (ends[..., 1] >= found.values).all()


def test_series_of_differences_are_those_one_by_one():
    """Shares, changes, and differences in differences; and something to compare with is needed."""
    generator, asked = np.random.default_rng(2), planned(3, 4, 1000)
    one, other = (
        Solution(releases(asked, sample_tallies(holding(asked, [0.2, 0.3, 0.5], generator, 500), asked, generator)))
        for _ in range(2)
    )
    for against, since in ((other, 0), (other, 1), (None, 1)):
        there, many, gaps = share_differences(one, against, 3, since=since)
        assert there == [*range(since + 1, 4)]
        assert gaps == []
        single = share_difference(one, against, 2, since=since)
        at = there.index(2)
        assert many.values[at] == pytest.approx(single.values[0])
        assert many.p_values[at] == pytest.approx(single.p_values[0])
    with pytest.raises(ValueError, match="another arm, or from another time"):
        share_difference(one, None, 3)


LEVELS = ("0", "10", "20", "40", "80")
MINUTES = Question.of_number("minutes", "How long?", LEVELS, AtMost(1), unit="min")


def asking(odds):
    plan = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(5, null=False), odds), 0, 1),)),))
    return survey(plan, questions=(MINUTES,), calendar=calendar(1), closed=True)


def people(asked, numbers, generator):
    """The entries of each offset, which they draw."""
    offset, by_offset = generator.integers(OFFSETS, size=len(numbers)), []
    for j in range(OFFSETS):
        states = [MINUTES.rounded(float(x), j).answer + 1 for x in numbers[offset == j]]
        histories, counts = np.unique(states, return_counts=True)
        rows = np.stack([np.zeros_like(histories), histories], axis=1).astype(np.uint16)
        by_offset.append(Population(asked.answers, rows, rows, counts))
    return by_offset


def answered(asked, by_offset, generator):
    """The solutions of everybody, and of each offset."""
    tallies = [sample_tallies(each, asked, generator) for each in by_offset]
    everybody = tallies[0]
    for each in tallies[1:]:
        everybody = everybody + each
    return [Solution(releases(asked, each)) for each in (everybody, *tallies)]


def test_a_share_that_falls_in_a_straight_line_is_fitted_exactly():
    """At every point, near the ends too; a parabola in steps of levels as well."""
    levels, points = np.arange(6.0), np.linspace(0, 5, 41)
    weights = fits(levels, OFFSETS, points)
    at = np.arange(5)[:, None] + (2 * np.arange(OFFSETS) + 1) / (2 * OFFSETS)
    for shares in (lambda x: 1 - x / 5, lambda x: (1 - x / 5) ** 2):
        assert np.einsum("pij,ij->p", weights, shares(at)) == pytest.approx(shares(points))


def test_figures_without_noise_are_those_of_the_numbers():
    """At odds of 2e9 to 1, of 8,000 entries: the mean, quantiles and shares within what rounding may move them."""
    generator = np.random.default_rng(3)
    numbers = np.exp(np.log(20) + 0.5 * generator.standard_normal(8_000))
    asked = asking(Odds(2**31, 1))
    one, *others = answered(asked, people(asked, numbers, generator), generator)
    (found,) = number_series(MINUTES.values, one, others, 1, quantiles=(0.25, 0.5, 0.9), above=(15.0, 50.0))
    clipped = np.clip(numbers, 0, 80)
    assert found.mean.value == pytest.approx(clipped.mean(), abs=0.4)
    for q, figure in found.quantiles.items():
        assert figure.value == pytest.approx(np.quantile(clipped, q), rel=0.05)
        assert figure.low <= figure.value <= figure.high
    for x, figure in found.above.items():
        assert figure.value == pytest.approx((clipped >= x).mean(), abs=0.02)
    assert found.rounding == 40 / 16


@pytest.mark.heavy
def test_intervals_of_mean_and_median_hold_the_truth():
    """At epsilon 2, of 4,000 entries, in 93 to 97.5% of 150 surveys, but for chance: 4.1 standard errors, 5e-5."""
    generator, surveys = np.random.default_rng(4), 150
    asked = asking(Odds(7, 1))
    numbers = np.exp(np.log(20) + 0.5 * generator.standard_normal(4_000))
    clipped = np.clip(numbers, 0, 80)
    held, by_offset = np.zeros(2), people(asked, numbers, generator)
    for _ in range(surveys):
        one, *others = answered(asked, by_offset, generator)
        (found,) = number_series(MINUTES.values, one, others, 1)
        pairs = ((found.mean, clipped.mean()), (found.quantiles[0.5], np.median(clipped)))
        held += [figure.low <= truth <= figure.high for figure, truth in pairs]
    off = 4.1 * np.sqrt(0.05 * 0.95 / surveys)
    assert ((held / surveys > 0.93 - off) & (held / surveys < 0.975 + off)).all()


def test_what_is_no_quantile_or_has_other_levels_is_refused():
    generator = np.random.default_rng(5)
    asked = asking(Odds(7, 1))
    one, *others = answered(asked, people(asked, np.full(200, 12.0), generator), generator)
    with pytest.raises(ValueError, match="between 0 and 1"):
        number_series(MINUTES.values, one, others, 1, quantiles=(1.0,))
    with pytest.raises(ValueError, match="3 levels"):
        number_series((0, 1, 2), one, others, 1)

"""Differences of shares: how often their intervals hold the truth, and how often noise alone is taken for one."""

from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar
from changeling_simulations import Population, sample_tallies
from changeling_statistics import (
    Estimate,
    Solution,
    VarianceCurve,
    Wish,
    difference,
    optimal_plan,
    releases,
    share_difference,
    share_differences,
    steady_changes,
)
from scipy.stats import binom

SURVEYS = 80
FALSE_ALARM = 1e-4
"""The chance that right intervals fail for an answer below, were the seed drawn anew."""
MOST = binom.isf(FALSE_ALARM, SURVEYS, 0.05) / SURVEYS


def people(survey, shares, generator, entries=50_000):
    """Entries who hold answers with these shares, of whom a quarter changes at some time to an answer by the same."""
    T = survey.calendar.periods
    states = np.zeros((entries, T + 1), np.uint16)
    states[:, 1:] = generator.choice(len(shares), (entries, 1), p=shares) + 1
    if T > 1:
        changes, at = generator.random(entries) < 0.4, generator.integers(2, T + 1, entries)
        moved = changes[:, None] & (np.arange(T + 1) >= at[:, None])
        states = np.where(moved, generator.choice(len(shares), (entries, 1), p=shares) + 1, states).astype(np.uint16)
    rows, counts = np.unique(states, axis=0, return_counts=True)
    return Population(survey.answers, rows, rows, counts)


def planned(periods, epsilon, entries):
    calendar, constraint = Calendar(0, "1w", periods), AtMost(2)
    rates = {} if periods == 1 else {"expected": steady_changes(calendar, constraint, 0.25)}
    return optimal_plan(Wish(3, calendar, constraint, Decimal(epsilon), entries, closed=True, **rates)).option.survey


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
    generator, survey = np.random.default_rng(5), planned(periods, 4, sum(sizes))
    arms = [people(survey, share, generator) for share in shares]
    held = [(arm.histogram()[periods] - (since > 0) * arm.histogram()[since]) / arm.entries for arm in arms]
    told = [
        [
            Solution(releases(survey, sample_tallies(arm.resampled(size, generator), survey, generator))).shares(
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
    generator, survey = np.random.default_rng(2), planned(3, 4, 1000)
    one, other = (
        Solution(releases(survey, sample_tallies(people(survey, [0.2, 0.3, 0.5], generator, 500), survey, generator)))
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

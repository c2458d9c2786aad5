"""Intervals widened by the freezing question's bound hold what entries hold, where those of reports alone do not."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)
from changeling_simulations import Population, sample_tallies
from changeling_statistics import Changelog, Solution, histogram_figures, read_rows, releases
from scipy.stats import binom

from ..protocol.examples import survey

SURVEYS, SEED = 100, 24
ENTRIES, PERIODS, DAY = 4_000, 4, 86_400
ANSWERS = ("tea", "coffee", "water")
HEAVY = 0.4
"""Two of five entries go from answer to answer, one a day; the others stay with tea."""
FALSE_ALARM = 1e-5
"""The chance, in each of 16 cells, that more misses than `most_misses` come of right intervals."""


def changelog() -> Changelog:
    return read_rows(
        (entry, day * DAY + 60, ANSWERS[day % 3])
        for entry in range(1, ENTRIES + 1)
        for day in range(PERIODS if entry <= HEAVY * ENTRIES else 1)
    )


def asking(most: int) -> Survey:
    """Half of the entries tell at a random time what they hold, and half whether they are frozen."""
    drink = Question("drink", "What do you drink?", ANSWERS, AtMost(most))
    questions = (drink, Question.of_freezing(drink))
    groups = (
        Group((Track(1, KaryResponse(StateSpace(len(each.answers)), Odds(20, 1)), 0, PERIODS, 1, place),))
        for place, each in enumerate(questions)
    )
    return survey(ReleasePlan(tuple(groups)), questions=questions, calendar=Calendar(0, DAY, PERIODS))


@pytest.fixture(scope="module", params=[1, 3])
def lived(request: pytest.FixtureRequest) -> tuple[Survey, Population, Population]:
    """A survey that counts so many changes, with the people of `changelog` in it: by what they hold, and by whether
    they are frozen."""
    asked, log, constraint = asking(request.param), changelog(), AtMost(request.param)
    main = Population.from_changelog(replace(log, answers=ANSWERS), asked.calendar, constraint)
    return asked, main, Population.of_freezing(log, asked.calendar, constraint)


@pytest.fixture(scope="module")
def shares(lived) -> tuple[np.ndarray, ...]:
    """The true shares and those reported, shape (PERIODS, z), and the frozen, shape (PERIODS,)."""
    _, main, freezing = lived
    counts = main.histogram(), main.frozen_histogram(), freezing.histogram()[:, 1]
    return tuple(count[1:] / ENTRIES for count in counts)


@pytest.fixture(scope="module")
def surveyed(lived) -> tuple[np.ndarray, np.ndarray]:
    """Of each survey the intervals, shape (SURVEYS, PERIODS, z, 2), and the bounds at 95%, (SURVEYS, PERIODS)."""
    generator, (asked, main, freezing) = np.random.default_rng(SEED), lived
    bands = [share_intervals(main, asked.about(0), generator) for _ in range(SURVEYS)]
    bounds = [share_intervals(freezing, asked.about(1), generator)[:, 1, 1] for _ in range(SURVEYS)]
    return np.array(bands), np.array(bounds)


def share_intervals(population: Population, asked: Survey, generator: np.random.Generator) -> np.ndarray:
    """95% intervals of a simulated survey, as they are published, shape (PERIODS, z, 2)."""
    known = releases(asked, sample_tallies(population, asked, generator))
    return histogram_figures(Solution(known), PERIODS)[0].intervals() / ENTRIES


def most_misses(chance: float) -> float:
    return float(binom.isf(FALSE_ALARM, SURVEYS, chance))


def test_no_share_is_further_from_what_is_reported_than_the_frozen_are_many(shares):
    """Exactly, without noise: at every period, and for every change since an earlier one."""
    truth, reported, frozen = shares
    bias = truth - reported
    assert np.abs(bias).max() > 0.3 * HEAVY
    assert (np.abs(bias) <= frozen[:, None] + 1e-12).all()
    for later in range(PERIODS):
        assert (np.abs(bias[later] - bias[:later]) <= frozen[later] + 1e-12).all()


@pytest.mark.heavy
def test_the_upper_end_is_above_the_frozen_share_as_often_as_it_says(shares, surveyed):
    """In 97.5% of surveys at each period, as it is one end of a 95% interval."""
    (_, _, frozen), (_, bounds) = shares, surveyed
    assert ((bounds < frozen).sum(0) <= most_misses(0.025)).all()


@pytest.mark.heavy
def test_true_shares_lie_within_band_and_bound_and_not_within_the_band_alone(shares, surveyed):
    """At least 92.5% each, as the band misses 5% and the bound 2.5%; the band alone misses where freezing is large."""
    (truth, reported, _), (bands, bounds) = shares, surveyed
    wide = bands + bounds[:, :, None, None] * np.array([-1, 1])
    missed = (truth < wide[..., 0]) | (truth > wide[..., 1])
    assert (missed.sum(0) <= most_misses(0.075)).all()
    alone = (truth < bands[..., 0]) | (truth > bands[..., 1])
    biased = np.abs(truth - reported) > 0.3
    assert biased.any()
    assert alone.mean(0)[biased].min() > 0.95


def test_a_mean_over_those_that_hold_a_number_is_off_by_the_frozen_among_those_that_report_one():
    """Every population of four entries that hold none, the least, or the largest, and every one they may report."""
    held = np.array(list(product((np.nan, 0.0, 1.0), repeat=4)))
    held = held[~np.isnan(held).all(1)]
    means, numbers = np.nanmean(held, axis=1), (~np.isnan(held)).sum(1)
    frozen = 4 - np.isclose(held[:, None], held, equal_nan=True).sum(2)
    apart = np.abs(means[:, None] - means)
    assert (apart <= frozen / numbers + 1e-12).all()
    assert np.isclose(apart, frozen / numbers)[frozen > 0].any()

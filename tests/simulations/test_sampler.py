"""The aggregated sampler: distributed as the sum of the devices' reports, and as fast for a billion as for ten."""

from itertools import combinations
from time import perf_counter

import numpy as np
import pytest
from changeling_protocol import (
    ONLY,
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)
from changeling_simulations import Population, sample_tallies, synthetic_changelog
from changeling_simulations.sampler import reporting
from changeling_statistics import Attendance, read_rows
from scipy.stats import chisquare

FALSE_ALARM = 1e-6
"""The chance that a right sampler fails one of the tests below, were its seed drawn anew."""

RESPONSE = KaryResponse(MutationSpace(2), Odds(9, 2))


def test_random_nodes_are_subsets_drawn_uniformly():
    """Two of four nodes: all six subsets of one entry equally often, and every entry reports exactly twice."""
    track = Track(1, RESPONSE, 0, 4, reported=2)
    generator, n = np.random.default_rng(4), 12_000
    subsets = dict.fromkeys(combinations(range(4), 2), 0)
    for _ in range(n):
        picked = [int(count[0]) for count in reporting(track, np.array([1]), generator)]
        subsets[tuple(i for i, count in enumerate(picked) if count)] += 1
    assert chisquare(list(subsets.values())).pvalue > FALSE_ALARM
    members = np.array([3, 10**9, 0])
    per_node = np.array(list(reporting(track, members, generator)))
    assert np.array_equal(per_node.sum(0), 2 * members)
    assert np.abs(per_node[:, 1] - 5e8).max() < 6 * np.sqrt(2.5e8)


def survey(population: Population, calendar: Calendar, *groups: Group, closed: bool = False, most: int = 3) -> Survey:
    """Of these groups, at most `most` mutations, and whatever it costs."""
    return Survey(
        questions=(Question(ONLY, "?", population.answers, AtMost(most)),),
        calendar=calendar,
        plan=ReleasePlan(groups),
        epsilon_micro=10**9,
        closed=closed,
        skew=0,
        spread=1,
        grace=2,
        minimum=1,
    )


@pytest.fixture(scope="module")
def calendar() -> Calendar:
    return Calendar(0, 60, 12)


@pytest.fixture(scope="module")
def population(calendar) -> Population:
    changelog = synthetic_changelog(2, 2_000, 2, calendar, np.random.default_rng(6))
    return Population.from_changelog(changelog, calendar, AtMost(3))


def test_groups_split_the_entries_by_share_and_their_tracks_share_them(population, calendar):
    """Group sizes add up and are binomial; the tracks of a group have the same entries, so the same reports.

    All of them are heard at every closing, and are new at the first.
    """
    pair = Group((Track(1, RESPONSE, 0, 12), Track(4, RESPONSE, 0, 12)), share=3)
    panel = Group((Track(2, KaryResponse(StateSpace(2), Odds(2, 1)), 0, 12, reported=2),), share=1)
    tallies = sample_tallies(population, survey(population, calendar, pair, panel), np.random.default_rng(7))
    assert set(tallies) == {(0, n) for n in range(1, 13)} | {(1, n) for n in range(1, 4)} | {
        (2, n) for n in range(1, 7)
    }
    size = tallies[0, 1].reports
    assert abs(size - 1_500) < 5 * np.sqrt(2_000 * 3 / 16)  # false alarm 6e-7
    assert {t.reports for (track, _), t in tallies.items() if track < 2} == {size}
    assert sum(t.reports for (track, _), t in tallies.items() if track == 2) == 2 * (2_000 - size)
    assert all(t.slots.sum() == t.reports for t in tallies.values())
    assert tallies.attendance == {
        (group, period): Attendance(heard=members, new=members if period == 1 else 0)
        for group, members in enumerate((size, 2_000 - size))
        for period in range(1, 13)
    }


@pytest.mark.timed
def test_a_billion_entries_take_seconds(population, calendar):
    """No more than a thousand would: the cost is in histories, nodes and symbols."""
    many = population.resampled(10**9, np.random.default_rng(8))
    group = Group(tuple(Track(width, RESPONSE, 0, 12) for width in (1, 2, 4)))
    began = perf_counter()
    tallies = sample_tallies(many, survey(many, calendar, group), np.random.default_rng(9))
    assert perf_counter() - began < 5
    assert {t.reports for t in tallies.values()} == {10**9}


def test_a_survey_of_something_else_is_refused(population, calendar):
    """Other answers, or another number of periods."""
    one = Group((Track(1, RESPONSE, 0, 12),))
    longer = survey(population, Calendar(0, 60, 13), one)
    with pytest.raises(ValueError, match="lives 12 periods, the survey 13"):
        sample_tallies(population, longer, np.random.default_rng(0))
    others = Population.from_changelog(read_rows([("1", 1, "x"), ("2", 1, "y")]), calendar, AtMost(3))
    with pytest.raises(ValueError, match="same answers"):
        sample_tallies(population, survey(others, calendar, one), np.random.default_rng(0))

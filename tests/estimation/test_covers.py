"""Cover sums: histograms at any time from the nodes of a hierarchy."""

from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar, plan_cost
from changeling_statistics import NodeTally, NotEstimable, hierarchical_plan, histogram_change
from changeling_statistics.estimation import cover_histogram, cover_series

from ..protocol.examples import mixed, survey
from .graphs import noiseless

CALENDAR = Calendar(0, 10, 12)
SURVEY = survey(
    hierarchical_plan(3, CALENDAR, AtMost(2), epsilon=Decimal(40), branching=2, layers=3),
    calendar=CALENDAR,
    constraint=AtMost(2),
)


def test_the_histogram_at_every_time_is_the_truth_where_there_is_no_noise():
    """The changes over each cover add up to the histogram, through insertions, deletions and changes."""
    generator = np.random.default_rng(3)
    states = np.hstack([np.zeros((7, 1), dtype=int), generator.integers(0, 4, (7, 12))])
    tallies = noiseless(SURVEY, states)
    total = SURVEY.plan.tracks[0].randomizer.total()
    for t in range(13):
        truth = np.bincount(states[:, t], minlength=4)[1:]
        np.testing.assert_allclose(cover_histogram(SURVEY, tallies, t).estimate.values / total, truth, atol=1e-6)


def test_covariances_of_the_nodes_add_up():
    """Node estimates are independent, so the covariance at t is the sum over the cover, and the nodes are told."""
    generator = np.random.default_rng(4)
    tallies = {
        (number, i): NodeTally(500, generator.multinomial(500, np.full(13, 1 / 13)))
        for number, track in enumerate(SURVEY.plan.tracks)
        for i in range(1, track.count + 1)
    }
    at_7 = cover_histogram(SURVEY, tallies, 7)
    assert [(used.node.start, used.node.end) for used in at_7.nodes] == [(0, 4), (4, 6), (6, 7)]
    parts = [histogram_change(tallies[u.track, u.number], SURVEY.plan.tracks[u.track].randomizer) for u in at_7.nodes]
    np.testing.assert_allclose(at_7.estimate.covariance, sum(p.covariance for p in parts))
    np.testing.assert_allclose(at_7.estimate.values, sum(p.values for p in parts))
    every = cover_series(SURVEY, tallies, 12)
    assert [h.period for h in every] == list(range(1, 13))
    np.testing.assert_array_equal(every[6].estimate.values, at_7.estimate.values)


def test_a_missing_node_is_named():
    """A time whose cover lacks a node answers NotEstimable, and times that do not need it are not disturbed."""
    generator = np.random.default_rng(4)
    tallies = {
        (number, i): NodeTally(50, generator.multinomial(50, np.full(13, 1 / 13)))
        for number, track in enumerate(SURVEY.plan.tracks)
        for i in range(1, track.count + 1)
        if (number, i) != (1, 3)
    }
    with pytest.raises(NotEstimable, match=r"\(4, 6\] of track 1"):
        cover_histogram(SURVEY, tallies, 6)
    assert cover_histogram(SURVEY, tallies, 8).period == 8
    with pytest.raises(ValueError, match="13"):
        cover_histogram(SURVEY, tallies, 13)


def test_plans_without_a_hierarchy_have_no_covers():
    """Panels and shares are not cover sums."""
    with pytest.raises(ValueError, match="cover sums"):
        cover_histogram(survey(mixed(3, 8)), {}, 1)


@pytest.mark.parametrize(("k", "c", "h"), [(1, 2, 1), (2, 2, 3), (3, 3, 2), (20, 2, 4)])
@pytest.mark.parametrize("epsilon", ["0.5", "8", "33"])
def test_the_papers_plan_uses_its_budget_and_never_more(k, c, h, epsilon):
    """The charge is within epsilon and within a billionth of it."""
    plan = hierarchical_plan(3, CALENDAR, AtMost(k), epsilon=Decimal(epsilon), branching=c, layers=h)
    charge = plan_cost(plan, CALENDAR, AtMost(k))
    assert Decimal(epsilon) * (1 - Decimal("1e-9")) < charge <= Decimal(epsilon)
    assert [track.width for track in plan.tracks] == [c**i for i in range(h)]


@pytest.mark.parametrize(
    ("c", "h", "epsilon", "says"),
    [(2, 0, 8, "layers"), (1, 2, 8, "branching"), (2, 5, 8, "fewer layers"), (2, 1, 0, "a loss must be above 0")],
)
def test_impossible_plans_are_refused(c, h, epsilon, says):
    """With the value that is wrong and what would do."""
    with pytest.raises(ValueError, match=says):
        hierarchical_plan(3, CALENDAR, AtMost(2), epsilon=Decimal(epsilon), branching=c, layers=h)

"""Histograms, windows and series from every release of a survey."""

import numpy as np
import pytest
from changeling_protocol import (
    Group,
    History,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    StateSpace,
    TimeBounded,
    Track,
)
from changeling_statistics import (
    Gap,
    NodeTally,
    NotEstimable,
    Solution,
    Tallies,
    histogram_change,
    releases,
    series,
    window_figures,
)

from ..protocol.examples import hierarchical, survey
from .graphs import attended, best_row, calendar, dense_row, random_tallies

T = 12
SURVEY = survey(hierarchical(3, T, (1, 2, 4), Odds(7, 2)), calendar=calendar(T))
CHANGES, STATES = KaryResponse(MutationSpace(3), Odds(9, 2)), KaryResponse(StateSpace(3), Odds(4, 1))
EVERY_KIND = ReleasePlan(
    (
        Group((Track(1, STATES, 0, T, reported=2),), share=3),
        Group((Track(2, CHANGES, 0, T),), share=2),
        Group((Track(1, STATES, 0, 1), Track(1, CHANGES, 1, T), Track(3, CHANGES, 1, T, reported=2))),
    )
)

TOGETHER = ReleasePlan(
    (
        Group.jointly(
            (Track(1, STATES, 0, T, reported=2), Track(1, KaryChange(MutationSpace(3), Odds(2, 1)), 0, T)),
            Joint(Odds(90, 1), 4, (2, 1), (2, 6)),
            share=3,
        ),
        Group((Track(2, CHANGES, 0, T),), share=2),
    )
)


def without(tallies, *keys):
    return Tallies({key: tally for key, tally in tallies.items() if key not in keys}, tallies.attendance)


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize(
    ("plan", "weights"),
    [
        (SURVEY.plan, lambda known, *times: dense_row(known.network, *times)),
        (EVERY_KIND, best_row),
        (TOGETHER, best_row),
    ],
    ids=["hierarchy", "every kind", "joint"],
)
def test_values_and_covariance_are_the_dense_solution_and_its_sandwich(plan, weights, retrospective):
    """For all times of the series and for windows, response noise by the exact formula with these weights."""
    asked = survey(plan, calendar=calendar(T))
    tallies = random_tallies(asked, np.random.default_rng(5))
    known = releases(asked, tallies)
    every = series(asked, tallies, T, retrospective=retrospective)
    solution = Solution(known, retrospective)
    sampling = solution.sampling
    for t, found in enumerate(every, 1):
        row = weights(known, t, 0, None if retrospective else t)
        np.testing.assert_allclose(found.estimate.values, row @ known.changes, rtol=1e-8, atol=1e-6)
        spread = (
            np.tensordot(row**2, known.covariances, axes=1) + sampling.covariance(row, T if retrospective else t)[0]
        )
        np.testing.assert_allclose(found.estimate.covariance, spread, rtol=1e-7, atol=1e-4)
        alone = solution.estimate(t)
        np.testing.assert_allclose(alone.values, found.estimate.values, rtol=1e-8, atol=1e-6)
        np.testing.assert_allclose(alone.covariance, found.estimate.covariance, rtol=1e-7, atol=1e-4)
    for end in range(5, T + 1):
        row = weights(known, end, end - 5, None if retrospective else end)
        found = solution.estimate(end, end - 5).values
        np.testing.assert_allclose(found, row @ known.changes, rtol=1e-8, atol=1e-6)


def test_weights_do_not_depend_on_what_was_answered():
    """Other symbols, as many reports: the same weights; else the estimate would be biased."""
    one, other = (random_tallies(SURVEY, np.random.default_rng(seed)) for seed in (1, 2))
    rows = [Solution(releases(SURVEY, tallies)).row(7) for tallies in (one, other)]
    np.testing.assert_array_equal(*rows)


def test_a_missing_node_raises_the_variance_and_where_it_disconnects_is_named():
    """The solve goes round it where it can; what nothing reaches answers NotEstimable, the rest is not disturbed."""
    whole = random_tallies(SURVEY, np.random.default_rng(4))
    tallies = without(whole, (1, 3))
    variances = [each.row(6) ** 2 @ each.variance for each in (releases(SURVEY, t).network for t in (tallies, whole))]
    assert variances[0] > variances[1]
    assert Solution(releases(SURVEY, tallies)).reaches(6)
    tallies = without(whole, (0, 7))
    known = releases(SURVEY, tallies)
    with pytest.raises(NotEstimable, match=r"period 7 .* \(6, 7\] of track 0"):
        Solution(known).estimate(7)
    found = series(SURVEY, tallies, 12)
    assert found.pop(6) == Gap(Node(0, 7), (0, Node(6, 7)))
    assert [each.period for each in found] == [*range(1, 7), *range(8, 13)]
    assert Solution(known, True).reaches(7)
    with pytest.raises(NotEstimable, match=r"window \(3, 7\] .* \(6, 7\] of track 0"):
        Solution(known).estimate(7, 3)
    with pytest.raises(ValueError, match="13"):
        series(SURVEY, tallies, 13)
    wide = survey(hierarchical(3, T, (2, 4), Odds(3, 1)), calendar=calendar(T))
    with pytest.raises(NotEstimable, match="no nodes of the plan that close by period 3"):
        Solution(releases(wide, random_tallies(wide, np.random.default_rng(1)))).estimate(3)
    with pytest.raises(ValueError, match="one period wide, got 0"):
        window_figures(Solution(known), 0, 12)


def test_a_window_needs_no_way_back_to_the_start():
    """With its own nodes alone it is estimable, and the histograms at its ends are not."""
    nodes = {(0, at): t for (_, at), t in random_tallies(SURVEY, np.random.default_rng(1)).items() if 5 <= at <= 8}
    tallies = attended(SURVEY, nodes)
    solution = Solution(releases(SURVEY, tallies))
    window = solution.estimate(7, 4)
    assert [used.number for used in solution.used(7, 4)] == [5, 6, 7]
    parts = [histogram_change(tallies[0, at], SURVEY.plan.tracks[0].randomizer) for at in (5, 6, 7)]
    np.testing.assert_allclose(window.values, sum(part.values for part in parts), atol=1e-6)
    np.testing.assert_allclose(window.covariance, sum(part.covariance for part in parts))
    with pytest.raises(NotEstimable, match=r"of track \d"):
        solution.estimate(7)


@pytest.mark.parametrize("closed", [False, True])
def test_a_node_below_the_minimum_leaves_no_trace(closed):
    """Whatever was reported on it, all estimates are those without it: no difference reveals it."""
    asked = survey(EVERY_KIND, calendar=calendar(T), minimum=10, closed=closed)
    generator = np.random.default_rng(2)
    tallies = random_tallies(asked, generator)
    few = generator.multinomial(9, np.full(CHANGES.symbols, 1 / CHANGES.symbols))
    with_few = Tallies({**tallies, (1, 3): NodeTally(9, few)}, tallies.attendance)
    for retrospective in (False, True):
        pair = (series(asked, each, T, retrospective=retrospective) for each in (with_few, without(tallies, (1, 3))))
        for one, other in zip(*pair, strict=True):
            np.testing.assert_array_equal(one.estimate.values, other.estimate.values)
            np.testing.assert_array_equal(one.estimate.covariance, other.estimate.covariance)
            assert all((used.track, used.number) != (1, 3) for used in one.nodes)


def test_a_report_stands_for_those_who_are_heard_over_those_who_report():
    """Whatever the shares say, in open cohorts as in closed ones."""
    for closed in (False, True):
        asked = survey(EVERY_KIND, calendar=calendar(T), closed=closed)
        counted = random_tallies(asked, np.random.default_rng(2))
        tallies = Tallies({**counted, (2, 1): NodeTally(400, counted[2, 1].slots)}, counted.attendance)
        known = releases(asked, tallies)
        heard = 500 * 12 / 2 + 500 + 500
        assert known.enrolment.enrolled[T] == heard
        of = {(u.track, u.number): x for u, x in zip(known.nodes, known.expansion, strict=True)}
        assert of[2, 1] == pytest.approx(heard / 400)
        assert of[0, 1] == of[3, 1] == pytest.approx(heard / 500)


@pytest.mark.parametrize("odds", [Odds(3, 1), Odds(10**12, 1)])
def test_reports_that_can_never_differ_are_weighed_all_the_same(odds):
    """A closed group whose entries may change for two periods only says the same six times: weights add up to 1, none
    is wild, and the variance is that of one of them."""
    eight, bound = calendar(8), TimeBounded(100)
    group = Group.of_history(History.of(odds, range(1, 9), bound, eight, True), 3)
    assert group.joint.limits.span == 2
    asked = survey(ReleasePlan((group,)), calendar=eight, constraint=bound, closed=True)
    solution = Solution(releases(asked, random_tallies(asked, np.random.default_rng(1))))
    row = solution.row(8)
    assert row.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(row).sum() == pytest.approx(1, abs=1e-6)
    assert solution._best.planned[8, 8] == pytest.approx(solution._best.planned[4, 4], rel=1e-6)

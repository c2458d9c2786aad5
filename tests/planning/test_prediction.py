"""Predicted variances, against the estimator; and how long estimates are missing after a lost period."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
    plan_cost,
)
from changeling_simulations import Population, exact_error
from changeling_statistics import PRICE, Attendance, Solution, optimal_plan, outage, predict, releases
from changeling_statistics.estimation.entries import SamplingDesign, draws, ties
from changeling_statistics.planning.outages import GOOD, allowed_gap, enough_reports, longest_gap
from changeling_statistics.planning.prediction import PlannedEdges
from hypothesis import given
from hypothesis import strategies as st

from tests.true_sampling import true_response_covariance, true_sampling_covariance

from ..estimation.graphs import answered
from .wishes import wish, without_histories


def mixed_plan(answers, periods):
    """Panels of one and of two random nodes, changes, a mix, and a joint mix, of very different shares."""
    changes, states = MutationSpace(answers), StateSpace(answers)
    return ReleasePlan(
        (
            Group((Track(1, KaryResponse(states, Odds(5, 1)), 0, periods, reported=2),), share=5),
            Group((Track(1, SignedSubset(changes, Odds(9, 2), 0, Fraction(1, 2)), 0, periods),), share=3),
            Group(
                (
                    Track(1, KaryResponse(states, Odds(4, 1)), 0, 1),
                    Track(1, KaryResponse(changes, Odds(3, 1)), 1, periods),
                ),
                share=2,
            ),
            Group.jointly(
                (
                    Track(1, SubsetSelection(states, Odds(2, 1), answers // 2), 0, periods, reported=1),
                    Track(1, KaryChange(changes, Odds(2, 1)), 0, periods, reported=2),
                ),
                Joint(Odds(40, 1), 3, (2, 1), (1, 2)),
                share=4,
            ),
        )
    )


def small():
    """Three entries of an open cohort under a mixed plan."""
    survey = wish(periods=3, answers=2, devices=3).survey(mixed_plan(2, 3))
    return survey, np.array([[0, 1, 1, 2], [0, 0, 2, 2], [0, 2, 1, 0]], np.uint16)


@cache
def best():
    """A closed cohort of 200 under the best plan for it."""
    of, generator = wish(periods=8, answers=3, devices=200, closed=True), np.random.default_rng(2)
    states = np.zeros((200, 9), np.uint16)
    states[:, 1] = generator.integers(1, 4, 200)
    for time in range(2, 9):
        states[:, time] = np.where(generator.random(200) < 0.1, generator.integers(1, 4, 200), states[:, time - 1])
    return of.survey(optimal_plan(of).plan), states


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize("lived", [small, best])
def test_the_predicted_variance_is_that_of_the_estimator_over_everybody_s_histories(lived, retrospective):
    """Of groups, random nodes and symbols, whose covariance `tests/estimation/test_joint_covariance.py` enumerates.

    What drawing from so few entries adds is counted n/(n - 1) times, which makes up for their own mean.
    """
    survey, states = lived()
    n, z, plan = len(states), len(survey.answers), survey.plan
    population = Population(survey.answers, states, states, np.ones(n, np.int64))
    found = exact_error(population, survey, retrospective=retrospective)
    edges = PlannedEdges(survey)
    K, _ = edges.weights(retrospective)
    kept, scatter = draws(plan.tracks)
    sampled = SamplingDesign(
        start=edges.start,
        end=edges.end,
        group=edges.group,
        track=edges.track,
        expansion=np.array([[plan.total_share / group.share for group in plan.groups]]),
        group_of=np.array([plan.group_of(track) for track in range(len(plan.tracks))]),
        kept=kept,
        scatter=scatter,
        whole=np.ones(1),
        entries=np.array([float(n)]),
    )
    whole = replace(sampled, ties=ties(survey))
    each = np.array([track.count / track.reports for track in plan.tracks])[edges.track]
    stands_for = each * sampled.expansion[0][edges.group]
    for at, row in enumerate(K):
        of_draws, of_all = (true_sampling_covariance(each, row, states, z) for each in (sampled, whole))
        assert found.sampling[at] == pytest.approx(np.trace(of_draws) / z / n**2, rel=1e-6, abs=1e-12)
        of_coins = true_response_covariance(survey, edges.track, edges.end, stands_for, row, states)
        exact = np.trace(of_all + of_coins) / z / n**2
        assert found.errors[at] ** 2 == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_four_times_the_devices_halve_the_error_and_devices_needed_follow():
    """Errors fall with the root of the number; devices_for inverts that, and is never below one. Where everybody is on
    all tracks what is left is the randomizers' noise. Devices, periods and errors that make no sense are named."""
    of = wish(periods=6)
    survey = of.survey(mixed_plan(3, 6))
    few, many = predict(survey, 1000), predict(survey, 4000)
    whole = of.survey(ReleasePlan((Group((Track(1, KaryResponse(MutationSpace(3), Odds(5, 1)), 0, 6),)),)))
    assert not predict(whole, 100).sampling.any()
    assert (predict(whole, 100).response > 0).all()
    np.testing.assert_allclose(few.errors, 2 * many.errors)
    needed = few.devices_for(0.02)
    assert predict(survey, round(needed)).mean == pytest.approx(0.02, rel=1e-3)
    assert many.devices_for(0.02) == pytest.approx(needed)
    assert few.devices_for(1e3) == 1
    for asked, named in (
        (lambda: predict(survey, 0), "got 0"),
        (lambda: few.at(7), "1 to 6, got 7"),
        (lambda: few.devices_for(0), "above 0, got 0"),
    ):
        with pytest.raises(ValueError, match=named):
            asked()


def test_a_period_that_nothing_connects_is_predicted_to_have_no_finite_error():
    """Pairs of periods alone tell of every second time only, until a later one is known."""
    of = wish(periods=4)
    survey = of.survey(ReleasePlan((Group((Track(2, KaryResponse(MutationSpace(3), Odds(5, 1)), 0, 4),)),)))
    found = predict(survey, 100)
    assert np.isfinite(found.errors).tolist() == [False, True, False, True]
    assert found.devices_for() == np.inf


@pytest.mark.parametrize("retrospective", [False, True])
def test_parts_that_float_are_weighed_as_the_estimator_does(retrospective):
    """Changes from period 1 on with the state at period 3 alone: before it nothing is known, after it everything."""
    of = wish(periods=5, retrospective=retrospective)
    changes, states = KaryResponse(MutationSpace(3), Odds(5, 1)), KaryResponse(StateSpace(3), Odds(5, 1))
    tracks = (Track(1, changes, 1, 5), Track(3, changes, 1, 5), Track(1, states, 2, 3))
    survey = of.survey(ReleasePlan((Group(tracks),)))
    found = predict(survey, 100, retrospective=retrospective)
    assert np.isfinite(found.errors).tolist() == [retrospective] * 2 + [True] * 3
    heard = {(0, period): Attendance(100, 100 * (period == 2)) for period in range(2, 6)}
    solution = Solution(releases(survey, answered(survey, heard, np.random.default_rng(1))), retrospective)
    planned = solution.releases.network.variance
    for time in (3, 4, 5):
        assert found.errors[time - 1] ** 2 == pytest.approx(solution.row(time) ** 2 @ planned / 100**2)


@cache
def needy(periods, epsilon, minimum, bridge=True):
    """Few changes and a large budget: the best plan without histories hardly tells states after the start."""
    later = 5000 if periods == 32 else 3000
    of = wish(periods, 4, 2, epsilon, 20_000, later, closed=True, minimum=minimum, bridge=bridge)
    with without_histories():
        return of, optimal_plan(of)


@pytest.mark.heavy
@pytest.mark.parametrize(("periods", "epsilon", "minimum"), [(64, "12", 100), (32, "30", 1)])
def test_a_floor_bridges_every_loss_for_a_small_part_of_the_error(periods, epsilon, minimum):
    """Where the best plan does not: without the floor the gap is longer than a tenth of the horizon, with it not."""
    of, planned = needy(periods, epsilon, minimum)
    _, without = needy(periods, epsilon, minimum, bridge=False)
    lost = outage(of, planned.option)
    assert lost.bridged
    assert np.isfinite(lost.error)
    assert not outage(of, without.option).bridged
    assert 0 < planned.floor < 0.1
    assert without.floor == 0
    assert planned.without == without.option.error(of) == without.without
    assert 0 <= planned.option.error(of) / planned.without - 1 <= 1.01 * PRICE
    assert plan_cost(planned.plan, of.calendar, of.constraint, of.closed) <= of.epsilon


@pytest.mark.heavy
def test_a_floor_is_as_small_as_is_of_use():
    """With a minimum of 100 its scarcest node is expected to have four deviations more, and estimates are good then."""
    of, planned = needy(64, "12", 100)
    group = min(planned.plan.groups, key=lambda group: group.share)
    assert group.share / planned.plan.total_share == pytest.approx(planned.floor)
    scarcest = min(20_000 * planned.floor * track.reports / track.count for track in group.tracks)
    assert scarcest == pytest.approx(enough_reports(100), rel=0.01)
    assert scarcest >= enough_reports(100) - 1e-9
    assert outage(of, planned.option).error <= GOOD * planned.without


def test_where_no_floor_is_cheap_enough_there_is_none_and_the_gap_says_so():
    """At ε = 30 the nodes of a floor with enough reports for a minimum of 100 cost more than 3% of the error."""
    of, planned = needy(32, "30", 100)
    assert planned.floor == 0
    assert planned.option.error(of) == planned.without
    assert outage(of, planned.option).gap == of.periods


def test_a_plan_that_bridges_by_itself_has_no_floor():
    """Panels report states at all times."""
    of = wish(periods=24, epsilon="4")
    planned = optimal_plan(of)
    assert planned.floor == 0
    assert outage(of, planned.option).bridged
    assert planned.plan == optimal_plan(wish(periods=24, epsilon="4", bridge=False)).plan


@pytest.mark.parametrize("retrospective", [False, True])
def test_predictions_after_a_loss_are_those_of_the_nodes_that_are_left(retrospective):
    """None is better than before, those of earlier times online are as before, and the lost time is unknown online."""
    of = wish(periods=12, epsilon="6", constraint=AtMost(3), closed=True, answers=3, retrospective=retrospective)
    survey = of.survey(optimal_plan(of).plan)
    whole = predict(survey, 1000, retrospective=retrospective).errors
    after = predict(survey, 1000, retrospective=retrospective, lost=5).errors
    assert (after >= whole * (1 - 1e-9)).all()
    assert (after > whole)[5]
    if not retrospective:
        np.testing.assert_allclose(after[:4], whole[:4])
        assert np.isinf(after[4])


CHANGES, STATES = KaryResponse(MutationSpace(2), Odds(3, 1)), KaryResponse(StateSpace(2), Odds(3, 1))
PERIODS = 9


@st.composite
def tracks(draw):
    """One to four tracks of changes or states anywhere in the horizon."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        width = draw(st.integers(1, 4))
        first = draw(st.integers(0, PERIODS - width))
        last = draw(st.integers(first + width, PERIODS))
        made.append(Track(width, draw(st.sampled_from([CHANGES, STATES])), first, last))
    return made


def connected(tracks, lost, time, known):
    """Whether nodes that end by `known`, but not with the lost period, lead from time 0 to a time: by plain search."""
    edges = [(node.start if track.reports_changes else 0, node.end) for track in tracks for node in track.nodes()]
    edges = [(start, end) for start, end in edges if end <= known and end != lost]
    reached, more = {0}, True
    while more:
        more = {t for edge in edges for t in edge if reached & set(edge)} - reached
        reached |= more
    return time in reached


@given(tracks(), st.booleans())
def test_the_gap_is_that_of_trying_every_loss_and_every_time(tracks, retrospective):
    """Online to the last period that nothing known by then connects; in the end to the farthest that nothing connects,
    before the lost one or after; both counted."""
    missing = [
        abs(time - lost) + 1
        for lost in range(1, PERIODS + 1)
        for time in range(1 if retrospective else lost, PERIODS + 1)
        if not connected(tracks, lost, time, known=PERIODS if retrospective else time)
    ]
    assert longest_gap(tracks, PERIODS, retrospective=retrospective) == max(missing, default=0)


def test_states_bridge_where_they_are_and_wide_nodes_what_they_straddle():
    """One cadence of changes is cut for good; two that straddle every loss are not, unless all begins with that."""
    assert longest_gap([Track(1, STATES, 0, 9, reported=1)], PERIODS) == 1
    straddling = [Track(1, CHANGES, 1, 9), Track(2, CHANGES, 1, 9), Track(2, CHANGES, 2, 9)]
    assert [longest_gap([*straddling, Track(1, STATES, 0, last)], PERIODS) for last in (1, 2)] == [9, 1]


@pytest.mark.parametrize(("periods", "allowed"), [(1, 1), (10, 1), (11, 2), (64, 7), (365, 37)])
def test_a_tenth_of_the_horizon_is_allowed_rounded_up(periods, allowed):
    """At least one period, which is the lost one itself."""
    assert allowed_gap(periods) == allowed

"""How long estimates are missing after a lost period; plans bridge it at little cost, or say that they do not."""

from functools import cache

import numpy as np
import pytest
from changeling_protocol import AtMost, KaryResponse, MutationSpace, Odds, StateSpace, Track, plan_cost
from changeling_statistics import PRICE, optimal_plan, outage, predict
from changeling_statistics.planning.outages import GOOD, allowed_gap, enough_reports, longest_gap
from hypothesis import given
from hypothesis import strategies as st

from .wishes import wish, without_histories


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

"""Plans never cost more than they may, reach every period, and do what a designer would hope."""

import numpy as np
import pytest
from changeling_protocol import AtMost, Hybrid, Survey, TimeBounded, plan_cost
from changeling_statistics import compare_plans, optimal_plan
from changeling_statistics.planning.plans import NAMES
from hypothesis import given, settings
from hypothesis import strategies as st

from .wishes import wish

CONSTRAINTS = st.one_of(
    st.integers(1, 8).map(AtMost),
    st.integers(1, 900).map(TimeBounded),
    st.tuples(st.integers(1, 4).map(AtMost), st.integers(1, 300).map(TimeBounded)).map(Hybrid),
)


@pytest.mark.heavy
@settings(max_examples=6)
@given(
    periods=st.integers(1, 14),
    answers=st.integers(1, 7),
    constraint=CONSTRAINTS,
    epsilon=st.floats(0.01, 60),
    closed=st.booleans(),
    retrospective=st.booleans(),
    later=st.integers(0, 400_000),
    first=st.integers(0, 10**6),
    objective=st.sampled_from(["mean", "worst"]),
)
def test_every_plan_of_the_table_charges_at_most_epsilon_and_reaches_every_period(
    periods, answers, constraint, epsilon, closed, retrospective, later, first, objective
):
    """For random wishes: charges recomputed by the protocol, and predictions finite, positive and certified."""
    of = wish(
        periods,
        max(answers, 2) if closed else answers,
        epsilon=f"{epsilon:.4f}",
        constraint=constraint,
        closed=closed,
        retrospective=retrospective,
        later=later,
        first=10**6 if closed else first,
        objective=objective,
    )
    comparison = compare_plans(of)
    for option in comparison.options.values():
        assert plan_cost(option.plan, of.calendar, constraint, closed) <= of.epsilon
        assert Survey.from_fields(option.survey.as_fields()) == option.survey
    best = comparison.planned.option
    assert np.isfinite(best.prediction.errors).all()
    assert (best.prediction.errors > 0).all()
    assert 0 <= comparison.planned.gap < 1
    assert sum(comparison.planned.share_of(kind) for kind in set(comparison.planned.kinds)) == pytest.approx(1)
    assert comparison.verdict


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("epsilon", ["1", "8", "30"])
def test_no_other_plan_of_the_table_is_more_accurate(closed, epsilon):
    """The optimal plan has them among its candidates, or better ones."""
    of = wish(periods=32, answers=4, epsilon=epsilon, closed=closed, devices=20_000, later=20_000)
    comparison = compare_plans(of)
    assert tuple(comparison.options) == NAMES
    best = comparison.planned.option.error(of)
    assert all(best <= 1.01 * option.error(of) for option in comparison.options.values())


def test_it_says_when_a_panel_beats_every_hierarchy_and_when_not():
    """At small budgets and short horizons a panel wins; with few changes and a large budget a hierarchy does."""
    small = compare_plans(wish(periods=32, answers=4, epsilon="2", devices=20_000))
    assert small.panel_beats_every_hierarchy
    assert small.verdict.startswith("A panel beats every hierarchy here")
    large = compare_plans(wish(periods=32, answers=4, k=1, epsilon="30", devices=20_000, later=0))
    assert not large.panel_beats_every_hierarchy
    assert large.verdict.startswith("A hierarchy beats every panel here")


def test_a_plan_is_chosen_by_name_and_an_unknown_name_tells_which_there_are():
    """`paper`, `flat`, `sampled`, `panel`, `optimal`; a horizon of one period has no hierarchy."""
    comparison = compare_plans(wish(periods=1))
    assert comparison.choose("optimal") is comparison.planned.option
    with pytest.raises(ValueError, match=r"no plan 'paper' .* choose one of flat, panel, optimal"):
        comparison.choose("paper")


def test_devices_upload_as_much_as_the_protocol_pads_them_to():
    """Reports are the mean over the groups, bytes the same for every device."""
    comparison = compare_plans(wish(periods=8))
    assert comparison.options["flat"].reports == 8
    assert comparison.options["panel"].reports < 8
    assert comparison.options["flat"].sent_bytes == comparison.options["panel"].sent_bytes > 8 * 81


def test_a_budget_for_the_worst_time_makes_that_better_than_one_for_the_mean():
    """The objectives differ, and each wins at its own."""
    for_mean, for_worst = (
        optimal_plan(wish(periods=24, answers=4, epsilon="6", devices=20_000, retrospective=True, objective=objective))
        for objective in ("mean", "worst")
    )
    assert for_worst.option.prediction.worst < for_mean.option.prediction.worst
    assert for_mean.option.prediction.mean < for_worst.option.prediction.mean

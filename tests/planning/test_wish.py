"""Wishes that no plan can meet are refused, and say what would do."""

import pytest

from .wishes import wish


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"epsilon": "0"}, "at least 0.001 .* got 0"),
        ({"epsilon": "-2"}, "got -2"),
        ({"epsilon": "NaN"}, "got NaN"),
        ({"devices": 0}, "at least one device, got 0"),
        ({"answers": 0}, "at least one answer, got 0"),
        ({"periods": 5000}, "5000 periods .* 5 times as wide"),
        ({"objective": "median"}, "mean or worst, got 'median'"),
        ({"answers": 1, "closed": True}, "at least two answers"),
        ({"minimum": 0}, "minimum of 0"),
        ({"k": 0}, "k >= 1, got 0"),
    ],
)
def test_an_impossible_wish_names_the_value_and_what_would_do(bad, named):
    """The message holds what was wrong."""
    with pytest.raises(ValueError, match=named):
        wish(**bad)


def test_a_wish_makes_a_survey_that_states_what_its_plan_costs():
    """Its epsilon is the plan's own charge, so that it is never understated."""
    from changeling_statistics import hierarchical_plan

    made = wish(periods=8)
    plan = hierarchical_plan(3, made.calendar, made.constraint, epsilon=made.epsilon, layers=2)
    survey = made.survey(plan, ("a", "b", "c"), "which?")
    assert survey.cost <= survey.epsilon <= made.epsilon
    assert survey.answers == ("a", "b", "c")
    assert made.survey(plan).answers == ("answer 1", "answer 2", "answer 3")

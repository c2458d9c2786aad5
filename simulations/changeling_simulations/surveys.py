"""A survey to simulate, with the paper's plan at a given epsilon."""

from collections.abc import Sequence
from decimal import Decimal

from changeling_protocol import Calendar, Constraint, Survey
from changeling_statistics import hierarchical_plan


def paper_survey(
    answers: Sequence[str],
    calendar: Calendar,
    constraint: Constraint,
    *,
    epsilon: Decimal,
    branching: int = 2,
    layers: int = 1,
) -> Survey:
    """A survey whose entries all report on every layer of a hierarchy through k-RR, as in Pan 2023.

    answers: the names of the answers.
    calendar, constraint: the survey's.
    epsilon: the most that an entry may lose over the whole calendar.
    branching: c; layers have nodes of 1, c, c², … periods.
    layers: how many; one is the flat release.
    What only devices and a server need (skew, spread, grace, minimum) is filled with the least there is.
    Raises ValueError if there is no such plan.
    """
    plan = hierarchical_plan(len(answers), calendar, constraint, epsilon=epsilon, branching=branching, layers=layers)
    return Survey.at_cost(
        question="a simulation",
        answers=answers,
        calendar=calendar,
        constraint=constraint,
        plan=plan,
        skew=0,
        spread=1,
        grace=2,
        minimum=1,
    )

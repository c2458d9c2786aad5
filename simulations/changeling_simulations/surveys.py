"""A survey to simulate: the paper's plan at a given epsilon, with the parts that only a server needs left open."""

from collections.abc import Sequence
from decimal import Decimal

from changeling_protocol import Calendar, Constraint, Survey, plan_cost
from changeling_protocol.survey import micro
from changeling_statistics.planning.paper import hierarchical_plan


def paper_survey(
    answers: Sequence[str],
    calendar: Calendar,
    constraint: Constraint,
    *,
    epsilon: Decimal,
    branching: int = 2,
    layers: int = 1,
) -> Survey:
    """The survey whose entries all report on every layer of a hierarchy, and lose at most epsilon.

    Raises ValueError where there is no such plan.
    """
    plan = hierarchical_plan(len(answers), calendar, constraint, epsilon=epsilon, branching=branching, layers=layers)
    return Survey(
        question="a simulation",
        answers=tuple(answers),
        calendar=calendar,
        constraint=constraint,
        plan=plan,
        epsilon_micro=micro(plan_cost(plan, calendar, constraint)),
        closed=False,
        skew=0,
        spread=1,
        grace=2,
        minimum=1,
    )

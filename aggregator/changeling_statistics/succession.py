"""Surveys that go on from one another: each with a budget of its own, and one series across all of them.

An entry answers a successor afresh: it draws its group anew and every coin, and its answer is inserted in the first
period again. So the estimates of one survey are independent of those of another, given the true answers.
"""

from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate, pairwise

from changeling_protocol import Calendar, Survey
from changeling_protocol.survey import per_week


def check_successor(first: Survey, second: Survey) -> None:
    """Raises ValueError, which names what does not fit, unless `second` goes on from `first`.

    It follows it by id, has its answers in their order, its breakdowns and the length of its periods, and its calendar
    starts where the first one's ends.
    """
    if second.follows != first.id:
        raise ValueError(f"survey {second.id.hex()} does not follow survey {first.id.hex()}")
    for name, before, after in (
        ("answers", list(first.answers), list(second.answers)),
        ("breakdowns", _named(first), _named(second)),
        ("period", first.calendar.period, second.calendar.period),
    ):
        if before != after:
            raise ValueError(f"a successor has the {name} of the survey that it follows, {before}, got {after}")
    if second.calendar.start != (end := first.calendar.time(first.calendar.periods)):
        raise ValueError(
            f"a successor's calendar starts where the one before ends, at Unix time {end}, got {second.calendar.start}"
        )


def offsets(surveys: Sequence[Survey]) -> list[int]:
    """How many periods lie before each survey's first, counted from the start of the first survey.

    surveys: at least one, in order. Raises ValueError where one does not follow the one before.
    """
    for first, second in pairwise(surveys):
        check_successor(first, second)
    return list(accumulate((survey.calendar.periods for survey in surveys[:-1]), initial=0))


def next_calendar(survey: Survey, periods: int) -> Calendar:
    """The calendar of so many periods that goes on from a survey's."""
    before = survey.calendar
    return Calendar(before.time(before.periods), before.period, periods)


def total_cost(surveys: Sequence[Survey]) -> tuple[Decimal, Decimal]:
    """What successive surveys cost a person who takes part in all of them with one entry.

    Returns the sum of their stated epsilons, and that for each week of their calendars, rounded up to millionths.
    """
    epsilon = sum((survey.epsilon for survey in surveys), Decimal(0))
    return epsilon, per_week(epsilon, sum(survey.calendar.period * survey.calendar.periods for survey in surveys))


def _named(survey: Survey) -> dict[str, list[str]]:
    return {each.name: list(each.values) for each in survey.breakdowns}

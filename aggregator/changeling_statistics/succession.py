"""Surveys that go on from one another: each with a budget of its own, and one series across all of them.

An entry answers a successor afresh: it draws its group anew and every coin, and its answer is inserted in the first
period again. So the estimates of one survey are independent of those of another, given the true answers.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import TypeAlias

from changeling_protocol import Calendar, Node, Survey, per_week, upwards

from .estimate import Estimate, VarianceCurve
from .estimation.histograms import Histogram
from .estimation.solution import Gap

Series: TypeAlias = Sequence[Histogram | Gap]


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
    """The cost of successive surveys to a person who takes part in all of them with one entry.

    Returns the sum of their stated epsilons, and that for each week of their calendars, rounded up to millionths.
    """
    with upwards():
        epsilon = sum((survey.epsilon for survey in surveys), Decimal(0))
    return epsilon, per_week(epsilon, sum(survey.calendar.period * survey.calendar.periods for survey in surveys))


def joined_series(surveys: Sequence[Survey], results: Sequence[Series]) -> list[Histogram | Gap]:
    """One series across successive surveys, whose periods are counted from the start of the first survey.

    surveys: in order.
    results: of each survey what `series` returns, from its first period on; of one that was ended early, or still runs,
    as far as there is any.
    Returns one for each period up to the last that has a result; a gap also where a survey has none.
    Raises ValueError where one survey does not follow the one before, or has more results than periods.
    """
    joined: list[Histogram | Gap] = []
    for survey, before, own in zip(surveys, offsets(surveys), results, strict=True):
        if len(own) > survey.calendar.periods:
            raise ValueError(f"a survey of {survey.calendar.periods} periods has no {len(own)} results")
        joined += [Gap(Node(0, period), None) for period in range(len(joined) + 1, before + 1) if own]
        joined += [
            replace(result, period=before + result.period)
            if isinstance(result, Histogram)
            else Gap(Node(0, before + result.span.end), result.missing)
            for result in own
        ]
    return joined


def change_across(surveys: Sequence[Survey], joined: Series, window: Node) -> Estimate | Gap:
    """The change of the histogram over a window (l, r] that spans the boundary of two surveys: v̂_r - v̂_l.

    The two are of different surveys, so they are independent, and their covariances add up.
    surveys: in order. joined: what `joined_series` makes of them. window: in its periods.
    Returns a gap if one of the two is. Raises ValueError for a window inside one survey, of which
    `changeling_statistics.estimation.change` knows how its ends hang together; or outside of the series.
    """
    starts = offsets(surveys)
    if window.end > len(joined):
        raise ValueError(f"the series has {len(joined)} periods, the window ends with {window.end}")
    if bisect_left(starts, window.end) == bisect_left(starts, max(window.start, 1)):
        raise ValueError(f"the window ({window.start}, {window.end}] lies inside of one survey: use `change` there")
    end = joined[window.end - 1]
    if isinstance(end, Gap) or window.start == 0:
        return replace(end, span=window) if isinstance(end, Gap) else end.estimate
    start = joined[window.start - 1]
    if isinstance(start, Gap):
        return replace(start, span=window)
    before, after = start.estimate, end.estimate
    known = VarianceCurve.constant(before.curve().at(before.values))
    return after + replace(before, values=-before.values, law=lambda: known)


def _named(survey: Survey) -> dict[str, list[str]]:
    return {each.name: list(each.values) for each in survey.breakdowns}

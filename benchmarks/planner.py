"""Measure 7 of the release plans: how long the planner takes over a year of days, and its certificate."""

from decimal import Decimal
from time import perf_counter, process_time

from changeling_protocol import MICRO, AtMost, Calendar, ExpectedChanges
from changeling_statistics import Wish, compare_plans, optimal_plan

PERIODS, ANSWERS, AT_MOST, EPSILON, DEVICES = 365, 6, 3, 4, 10**6
CHANGES = 2
"""A year, after the first answer."""


def measure(periods: int = PERIODS) -> dict[str, float]:
    """Seconds and the dual gap of a plan for open and closed surveys, online and retrospective.

    Processor seconds beside those of the clock: they are what it takes on a machine that has nothing else to do.
    """
    figures: dict[str, float] = {}
    for closed in (False, True):
        for retrospective in (False, True):
            wish = Wish(
                answers=ANSWERS,
                calendar=Calendar(1_800_000_000, 86_400, periods),
                constraint=AtMost(AT_MOST),
                epsilon=Decimal(EPSILON),
                devices=DEVICES,
                closed=closed,
                expected=ExpectedChanges(MICRO, round(MICRO * CHANGES / periods)),
                retrospective=retrospective,
            )
            name = f"7_{'closed' if closed else 'open'}_{'retrospective' if retrospective else 'online'}"
            began, worked = perf_counter(), process_time()
            planned = optimal_plan(wish)
            figures[f"{name}_seconds"] = perf_counter() - began
            figures[f"{name}_processor_seconds"] = process_time() - worked
            figures[f"{name}_gap"] = planned.gap
    began = perf_counter()
    compare_plans(wish)
    figures["7_whole_table_seconds"] = perf_counter() - began
    return figures

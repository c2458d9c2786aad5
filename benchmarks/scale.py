"""Measure 6 of the release plans: how long the release graph of 10,000 periods takes, and one more period of it."""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Survey,
    Track,
)
from changeling_statistics import (
    Attendance,
    ClosingEdges,
    Frontier,
    NodeTally,
    Releases,
    Solution,
    Tallies,
    advance,
    histogram_figures,
    releases,
)
from changeling_statistics.estimation.network import last_uses

PERIODS, SHORT, ANSWERS, REPORTS = 10_000, 1_000, 16, 20_000
SEED = 6
APPENDED = 200
"""How many periods are appended to time one; the median counts."""


def measure() -> dict[str, float]:
    """Seconds; the ratio of appending one period at T = 10,000 and at T = 1,000.

    Histograms start from tallies, nothing decoded; the rest from a decoded graph, and one time and one window
    from a factored one.
    """
    survey, tallies = synthetic(PERIODS)
    values_online = timed(lambda: Solution(releases(survey, tallies)).values(PERIODS))
    values_all = timed(lambda: Solution(releases(survey, tallies), retrospective=True).values(PERIODS))
    known = releases(survey, tallies)
    errors_online = timed(lambda: histogram_figures(Solution(known), PERIODS))
    errors_all = timed(lambda: histogram_figures(Solution(known, retrospective=True), PERIODS))
    online, whole = Solution(known), Solution(known, retrospective=True)
    one = max(best(partial(solution.estimate, PERIODS - 1)) for solution in (online, whole))
    window = max(best(partial(solution.estimate, PERIODS - 1, PERIODS // 3)) for solution in (online, whole))
    return {
        "6_seconds_all_histograms_online": values_online,
        "6_seconds_all_histograms_retrospective": values_all,
        "6_seconds_all_standard_errors_online": errors_online,
        "6_seconds_all_standard_errors_retrospective": errors_all,
        "6_seconds_covariance_of_one_time": one,
        "6_seconds_covariance_of_one_window": window,
        "6_append_10000_over_1000": appending(known) / appending(releases(*synthetic(SHORT))),
    }


def synthetic(periods: int) -> tuple[Survey, Tallies]:
    """All tracks of a hierarchy of c = 2 up to the calendar, and tallies of nearly unchanged entries."""
    response = KaryResponse(MutationSpace(ANSWERS), Odds(50, 1))
    widths = [2**i for i in range(periods.bit_length()) if 2**i <= periods]
    plan = ReleasePlan((Group(tuple(Track(width, response, 0, periods) for width in widths)),))
    calendar, constraint = Calendar(0, 86_400, periods), AtMost(3)
    survey = Survey.at_cost(
        question="What is it like at scale?",
        answers=tuple(f"answer {a}" for a in range(1, ANSWERS + 1)),
        calendar=calendar,
        constraint=constraint,
        plan=plan,
        skew=60,
        spread=600,
        grace=86_400,
        minimum=10,
    )
    generator = np.random.default_rng(SEED)
    q = response.odds.other / response.total()
    chances = np.full(response.symbols, q)
    chances[0] = 1 - q * (response.symbols - 1)
    tallies = {
        (number, at): NodeTally(REPORTS, slots)
        for number, track in plan.numbered(0)
        for at, slots in zip(
            track.node_numbers(), generator.multinomial(REPORTS, chances, size=track.count), strict=True
        )
    }
    attendance = {(0, t): Attendance(REPORTS, REPORTS if t == 1 else 0) for t in range(1, periods + 1)}
    return survey, Tallies(tallies, attendance)


def appending(known: Releases) -> float:
    """Seconds for one more period at the end of the calendar: the median of many."""
    network, last_use = known.network, last_uses(known.network)
    frontier, seconds = Frontier.before(len(known.survey.answers)), []
    for period in range(1, network.periods + 1):
        at = np.flatnonzero(network.end == period)
        closing = ClosingEdges(network.start[at], network.variance[at], known.changes[at])
        started = perf_counter()
        frontier, _ = advance(frontier, closing, last_use)
        if period > network.periods - APPENDED:
            seconds.append(perf_counter() - started)
    return float(np.median(seconds))


def timed(do: Callable[[], object]) -> float:
    """Seconds."""
    started = perf_counter()
    do()
    return perf_counter() - started


def best(do: Callable[[], object], times: int = 5) -> float:
    """The median seconds of several runs after one."""
    do()
    return float(np.median([timed(do) for _ in range(times)]))

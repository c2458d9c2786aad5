"""The calendar of a simulation: parts that the designer leaves open are fitted to the changelog."""

from math import ceil

from changeling_protocol import Calendar
from changeling_statistics import MICROSECONDS, SECONDS, Changelog

PERIODS = 24
"""About how many periods a fitted calendar has."""
MOST_SIMULATED_PERIODS = 100_000
"""A simulation holds every period of every history in memory."""


def calendar_for(
    changelog: Changelog, period: int | None = None, start: int | None = None, periods: int | None = None
) -> Calendar:
    """A calendar that spans the whole changelog, as far as the parts that are given allow.

    period: in seconds; if not given, about a 24th of the changelog.
    start: in Unix seconds; if not given, such that the first period ends in the second of the first mutation.
    periods: how many; if not given, as many as it takes to hold the last mutation.
    Raises ValueError for more than MOST_SIMULATED_PERIODS periods.
    """
    first, last = ceil(changelog.time.min() / MICROSECONDS), ceil(changelog.time.max() / MICROSECONDS)
    if period is None:
        period = _rounded(max(1, ceil((last - (first if start is None else start)) / (periods or PERIODS))))
    if start is None:
        start = max(0, first - period)
    if periods is None:
        periods = max(1, ceil((last - start) / period))
    if periods > MOST_SIMULATED_PERIODS:
        raise ValueError(
            f"a simulation has at most {MOST_SIMULATED_PERIODS:,} periods, got {periods:,}: choose wider ones"
        )
    return Calendar(start, period, periods)


def _rounded(seconds: int) -> int:
    """Rounded up to whole weeks, days, hours or minutes: the widest unit that fits into it four times."""
    unit = next((unit for unit in SECONDS.values() if seconds >= 4 * unit), 1)
    return ceil(seconds / unit) * unit

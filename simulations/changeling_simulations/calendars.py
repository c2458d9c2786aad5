"""The calendar of a simulation, where the designer leaves it open: fitted to the changelog."""

from math import ceil

from changeling_protocol import Calendar
from changeling_statistics.changelog import MICRO, Changelog
from changeling_statistics.durations import SECONDS

PERIODS = 24
MOST_PERIODS = 100_000
"""A simulation holds every period of every history in memory."""


def calendar_for(
    changelog: Changelog, period: int | None = None, start: int | None = None, periods: int | None = None
) -> Calendar:
    """A calendar that holds the whole changelog, as far as its parts are not given.

    start, Unix seconds: so that the first period ends with the second of the first mutation. period, seconds:
    about a 24th of the changelog. periods: as many as it takes to hold the last mutation.
    """
    first, last = ceil(changelog.time.min() / MICRO), ceil(changelog.time.max() / MICRO)
    if period is None:
        period = _rounded(max(1, ceil((last - (first if start is None else start)) / (periods or PERIODS))))
    if start is None:
        start = max(0, first - period)
    if periods is None:
        periods = max(1, ceil((last - start) / period))
    if periods > MOST_PERIODS:
        raise ValueError(f"a simulation has at most {MOST_PERIODS:,} periods, got {periods:,}: choose wider ones")
    return Calendar(start, period, periods)


def _rounded(seconds: int) -> int:
    """Up to a whole number of the widest unit of which it has at least four."""
    unit = next((unit for unit in SECONDS.values() if seconds >= 4 * unit), 1)
    return ceil(seconds / unit) * unit

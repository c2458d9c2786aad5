"""Whether a changelog and a calendar are of the same dates, and moving a changelog where they are not.

Where a changelog says nothing nobody changes, so a survey of other dates would look more accurate than it is.
"""

from dataclasses import replace
from math import ceil

from changeling_protocol import Calendar
from changeling_statistics import MICROSECONDS, Changelog, format_instant

COVERED = 0.9
"""Of how many of a calendar's periods a changelog has to tell something: these lie between its first mutation and its
last."""


def aligned(changelog: Changelog, calendar: Calendar) -> Changelog:
    """The changelog, moved in time so that its first mutation lies at the end of the calendar's first period."""
    first = ceil(changelog.time.min() / MICROSECONDS)
    return replace(changelog, time=changelog.time + (calendar.time(1) - first) * MICROSECONDS)


def check_dates(changelog: Changelog, calendar: Calendar) -> None:
    """Raises ValueError for a changelog that tells nothing of more than a tenth of a calendar's periods."""
    first, last = changelog.time.min() / MICROSECONDS, changelog.time.max() / MICROSECONDS
    told = min(calendar.period_of(last), calendar.periods) - max(calendar.period_of(first), 1) + 1
    if told >= COVERED * calendar.periods:
        return
    if last - first < COVERED * calendar.period * (calendar.periods - 1):
        hint = "choose fewer or shorter periods"
    else:
        hint = "move it with --align"
    raise ValueError(
        f"the changelog tells of {format_instant(first)} to {format_instant(last)}, which is {max(told, 0)} of the "
        f"{calendar.periods} periods from {format_instant(calendar.start)} to "
        f"{format_instant(calendar.time(calendar.periods))}: {hint}"
    )

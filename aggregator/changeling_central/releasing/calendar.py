"""A release's calendar: as asked for; else as the release began; else as the data say, which then is not protected."""

from dataclasses import dataclass
from math import ceil

from changeling_protocol import Calendar
from changeling_statistics import MICROSECONDS, Changelog, format_instant, parse_instant

from .limits import check_periods
from .terms import Begun

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Dates:
    """from_data: an end of the calendar was read from the data. left: seconds at its end that are no whole period."""

    calendar: Calendar
    from_data: bool
    left: int


def calendar_for(log: Changelog, period: int, start: str | None, until: str | None, begun: Begun | None) -> Dates:
    """The calendar of a release of this changelog.

    period: in seconds. start, until: ISO 8601; left out, as the release has begun, else as the data say: whole days, or
    periods where these are longer, around the first and the last mutation.
    ValueError where there is no period, or too many.
    """
    from_data = begun is None and (start is None or until is None)
    if begun is not None:
        start = start or format_instant(begun.calendar.start)
        until = until or format_instant(begun.calendar.time(begun.calendar.periods))
    day = max(DAY, period)
    first = int(parse_instant(start)) if start else int(log.time.min()) // (day * MICROSECONDS) * day
    if until:
        end = int(parse_instant(until))
        periods = (end - first) // period
    else:
        end = -(-int(log.time.max()) // (day * MICROSECONDS)) * day
        end = end if start else max(end, first + day)  # all mutations at one midnight
        periods = ceil((end - first) / period)
    if end - first < period:
        raise ValueError(f"from {format_instant(first)} to {format_instant(end)} there is no period")
    left = (end - first) % period if until else 0
    remembered = begun is not None and begun.saved.calendar_from_data
    check_periods(periods)
    return Dates(Calendar(first, period, periods), from_data or remembered, left)

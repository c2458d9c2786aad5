"""Calendars as people keep them: months, quarters and years, and the days and weeks of a time zone.

Such periods differ in length. A mechanism needs their number, and how many of them a bound in time (`--within`) can
touch. That is counted as if all periods were as short as the shortest: then as much time touches as many periods, or
more, so what is promised holds. A release that has begun keeps its boundaries, whatever later rules of a zone say.
"""

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from math import ceil
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from changeling_protocol import (
    LAST_INSTANT,
    Calendar,
    UnixSeconds,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from changeling_statistics import MICROSECONDS, Changelog, Indices

from .budget import MOST_RELEASED_PERIODS, check_periods

DAY = 86_400
UTC_NAME = "UTC"
"""The zone where nobody names one."""
MONTHS = {"mo": 1, "q": 3, "y": 12}
DAYS = {"d": 1, "w": 7}
_PERIOD = re.compile(r"\s*(\d{1,12})\s*(mo|[dwqy])\s*", re.ASCII)


def zone_of(name: str | None) -> tzinfo:
    """The time zone of this name, UTC for None. ValueError for a name that is none."""
    if name in (None, UTC_NAME):
        return UTC  # where no database of zones is installed, too
    try:
        return ZoneInfo(name or "")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}: they are called as Europe/Berlin is") from None


def local_instant(time: float, zone: str = UTC_NAME) -> str:
    """ISO 8601 to the second, with the zone's offset; Z for UTC.

    >>> local_instant(1782856800, "Europe/Berlin")
    '2026-07-01T00:00:00+02:00'
    """
    return format_instant(time) if zone == UTC_NAME else datetime.fromtimestamp(int(time), zone_of(zone)).isoformat()


@dataclass(frozen=True, slots=True)
class Every:
    """The length of a period, as people write it: months, or days of a zone, or seconds; two of the three are 0."""

    zone: str
    months: int = 0
    days: int = 0
    seconds: int = 0

    @classmethod
    def parsed(cls, text: str, zone: str | None) -> "Every":
        """Parses `1mo`, `1q`, `1y`, or a duration. ValueError for anything else."""
        name = str(zone_of(zone))
        number, unit = (int(match[1]), match[2]) if (match := _PERIOD.fullmatch(text)) else (0, "")
        if unit in MONTHS and number:
            return cls(name, months=number * MONTHS[unit])
        if unit in DAYS and number and name != UTC_NAME:
            return cls(name, days=number * DAYS[unit])
        return cls(name, seconds=parse_duration(text))

    @property
    def words(self) -> str:
        """In the widest unit that divides it."""
        if self.months:
            unit = next(unit for unit in ("y", "q", "mo") if self.months % MONTHS[unit] == 0)
            return f"{self.months // MONTHS[unit]}{unit}"
        return format_duration(self.seconds or self.days * DAY)

    def periods_of(self, window: str) -> int:
        """How many periods a window has. ValueError where it is no whole number of them."""
        wide = Every.parsed(window, self.zone)
        for ours, theirs in ((self.months, wide.months), (self.days, wide.days), (self.seconds, wide.seconds)):
            if ours and theirs and theirs % ours == 0:
                return theirs // ours
        raise ValueError(f"a window is a whole number of periods of {self.words}, got {window}")

    def bounds(self, start: int) -> Iterator[int]:
        """The start, and the end of every period from it on: the same time of day, and day of the month or its last.

        A day that the zone's clocks left out, as Samoa's did the 30th of December 2011, is no period.
        """
        zone = zone_of(self.zone)
        before: int | None = None
        first = datetime.fromtimestamp(start, zone).replace(tzinfo=None)
        for i in range(MOST_RELEASED_PERIODS + 2):
            try:
                wall = _months_later(first, i * self.months) + timedelta(days=i * self.days)
                bound = int(wall.replace(tzinfo=zone).timestamp())
            except (OverflowError, ValueError):
                yield LAST_INSTANT + 1
                return
            if bound != before:
                yield bound
            before = bound

    def floor(self, time: float) -> int:
        """The midnight before, of the month, quarter or year where periods are such; Unix seconds."""
        wall = datetime.fromtimestamp(time, zone_of(self.zone)).replace(hour=0, minute=0, second=0, microsecond=0)
        if self.months:
            year, quarter = self.months % MONTHS["y"] == 0, self.months % MONTHS["q"] == 0
            month = 1 if year else (wall.month - 1) // 3 * 3 + 1 if quarter else wall.month
            wall = wall.replace(month=month, day=1)
        return int(wall.timestamp())


def _months_later(wall: datetime, months: int) -> datetime:
    year, month = divmod(wall.year * 12 + wall.month - 1 + months, 12)
    return wall.replace(year=year, month=month + 1, day=min(wall.day, monthrange(year, month + 1)[1]))


@dataclass(frozen=True, slots=True, init=False)
class DatedCalendar(Calendar):
    """A calendar in a time zone, whose periods may differ in length.

    period: of the shortest, in seconds: what bounds in time are counted with. every: in words. zone: its name.
    ends: the start and the end of every period, Unix seconds; () where all are `period` long.
    """

    every: str
    zone: str
    ends: tuple[int, ...]

    def __init__(self, calendar: Calendar, every: str, zone: str, ends: tuple[int, ...] = ()) -> None:
        for name, value in (("every", every), ("zone", zone), ("ends", ends)):
            object.__setattr__(self, name, value)
        Calendar.__init__(self, calendar.start, calendar.period, calendar.periods)

    def time(self, i: int) -> int:
        """The Unix time at which period i ends."""
        return self.ends[i] if self.ends else self.start + i * self.period

    def period_of(self, time: UnixSeconds) -> int:
        """The number of the period that holds this Unix time; 0 or less before the calendar, above T after it."""
        return bisect_left(self.ends, time) if self.ends else ceil((time - self.start) / self.period)


def zone_name(calendar: Calendar) -> str:
    """The zone that a calendar's times are written in."""
    return calendar.zone if isinstance(calendar, DatedCalendar) else UTC_NAME


def said_of_periods(calendar: Calendar) -> str:
    """How many periods there are, of what length, from when to when, in words."""
    zone, dated = zone_name(calendar), isinstance(calendar, DatedCalendar)
    every = calendar.every if isinstance(calendar, DatedCalendar) else format_duration(calendar.period)
    first, last = local_instant(calendar.start, zone), local_instant(calendar.time(calendar.periods), zone)
    return f"{calendar.periods} of {every} from {first} to {last}" + f" ({zone})" * dated


def bounds_of(calendar: Calendar) -> Indices:
    """The start and the end of every period, Unix microseconds, shape (periods + 1,)."""
    if isinstance(calendar, DatedCalendar) and calendar.ends:
        return np.array(calendar.ends, np.int64) * MICROSECONDS
    times: Indices = (calendar.start + calendar.period * np.arange(calendar.periods + 1, dtype=np.int64)) * MICROSECONDS
    return times


@dataclass(frozen=True, slots=True)
class Dates:
    """A release's calendar. from_data: an end of it was read from the data. left: seconds at its end that are no whole
    period. changed: the zone's rules would put boundaries elsewhere today."""

    calendar: Calendar
    from_data: bool
    left: int
    changed: bool = False

    def said(self, begins: bool) -> Iterator[str]:
        """Where an end was read from the data, what is no whole period, and whose rules changed, a sentence each.

        begins: the release does.
        """
        if self.from_data and begins:
            yield (
                "the calendar is read from the data, whole days around its first and last mutation; where one entry "
                "could be seen in that, give --start and --until"
            )
        if self.left:
            yield f"the last {format_duration(self.left)} before --until are no whole period, and are not released"
        if self.changed:
            yield "the rules of the time zone were changed since the release began: it keeps its own"


def calendar_for(log: Changelog, every: Every, start: str | None, until: str | None, begun: Calendar | None) -> Dates:
    """The calendar of a release of this changelog.

    start, until: ISO 8601, in the zone where they name none; left out, as the release has begun, else as the data say:
    whole days, or periods where these are longer, around the first and the last mutation.
    begun: the calendar that the release has begun with. ValueError where there is no period, or too many.
    """
    from_data = begun is None and (start is None or until is None)
    zone = zone_of(every.zone)
    first = int(parse_instant(start, zone)) if start else _first(log, every, begun)
    end = int(parse_instant(until, zone)) if until else None if begun is None else begun.time(begun.periods)
    last = ceil(int(log.time.max()) / MICROSECONDS) if len(log) else first
    if every.seconds:
        calendar = _regular(every, first, end, last if start else max(last, first + 1))
    else:
        count = begun.periods if begun is not None and until is None else None
        calendar = _dated(every, first, None if count else end, last, count)
    left = 0 if until is None or end is None else end - calendar.time(calendar.periods)
    if begun is not None and _same_but_bounds(calendar, begun):
        return Dates(begun, from_data, 0, calendar != begun)
    return Dates(calendar, from_data, left)


def _first(log: Changelog, every: Every, begun: Calendar | None) -> int:
    """When the first period begins, where nobody says it."""
    if begun is not None:
        return begun.start
    first = int(log.time.min()) // MICROSECONDS
    return first // every.seconds * every.seconds if every.seconds > DAY else every.floor(first)


def _regular(every: Every, first: int, end: int | None, last: int) -> Calendar:
    """Periods of one length. end: of the calendar, None for the midnight after `last`, and then no period is cut."""
    until = end
    if until is None:
        day = max(DAY, every.seconds)
        until = (
            -(-last // day) * day
            if every.zone == UTC_NAME or day > DAY
            else every.floor(every.floor(last - 1) + 1.5 * DAY)
        )
    if until - first < every.seconds:
        raise _no_period(first, until, every.zone)
    periods = -((first - until) // every.seconds) if end is None else (until - first) // every.seconds
    check_periods(periods)
    calendar = Calendar(first, every.seconds, periods)
    return calendar if every.zone == UTC_NAME else DatedCalendar(calendar, every.words, every.zone)


def _dated(every: Every, first: int, end: int | None, last: int, count: int | None) -> Calendar:
    """Periods of months, or of a zone's days. end: of the calendar, None for `count` of them, or to hold `last`."""
    ends: list[int] = []
    for bound in every.bounds(first):
        if end is not None and bound > end:
            break
        ends.append(bound)
        if end is None and len(ends) > 1 and (bound >= last if count is None else len(ends) > count):
            break
    if not ends[1:]:
        raise _no_period(first, first if end is None else end, every.zone)
    check_periods(len(ends) - 1)
    shortest = min(after - before for before, after in pairwise(ends))
    return DatedCalendar(Calendar(first, shortest, len(ends) - 1), every.words, every.zone, tuple(ends))


def _no_period(first: int, end: int, zone: str) -> ValueError:
    return ValueError(f"from {local_instant(first, zone)} to {local_instant(end, zone)} there is no period")


def _same_but_bounds(ours: Calendar, begun: Calendar) -> bool:
    """True if a calendar differs from the one that a release has begun with by what rules of the zone say at most."""
    if not (isinstance(ours, DatedCalendar) and isinstance(begun, DatedCalendar)):
        return ours == begun
    return (ours.start, ours.periods, ours.every, ours.zone) == (begun.start, begun.periods, begun.every, begun.zone)

"""Periods, nodes, and covers of a range by nodes; instants and durations as people write them.

Periods are numbered 1 to T; period i is the span (start + (i-1)·W, start + i·W] of Unix time. The number i
also names the time at its end, and 0 the calendar's start. Knows no clock: the caller brings the time.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from math import ceil
from typing import NewType

UnixSeconds = NewType("UnixSeconds", float)
"""Seconds since 1970, in UTC, whole or not: what clocks show and the calendar is asked about."""

UnixMilliseconds = NewType("UnixMilliseconds", int)
"""Milliseconds since 1970, in UTC: what is stored."""

MOST_PERIODS = 2**20
"""The most periods of a calendar: a year and four fifths of minutes, or 119 years of hours. What counts periods, a
device's or a server's, counts no further."""

LAST_INSTANT = 253_402_300_799
"""The last second of the year 9999, in Unix time: no calendar goes beyond, so that every time of a survey has a date
and fits into 64 bits of microseconds."""

DURATION_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""The seconds of each unit of a duration, the longest first."""

LONG_UNITS = {"mo": 2_628_000, "y": 31_536_000}
"""A month as a twelfth of a year, and a year of 365 days: good for a length of time, not for a calendar."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """The span (start, end] of periods, the domain of one release."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a node must have 0 <= start < end, got ({self.start}, {self.end}]")

    @property
    def width(self) -> int:
        """Length in periods."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, init=False)
class Calendar:
    """`periods` spans of `period` seconds each, from Unix time `start` on.

    start: Unix seconds, or a date or a time in ISO 8601, in UTC where it names no zone.
    period: seconds, or a duration such as "15m", "1h", "1d" or "1w".

    >>> Calendar("2027-01-01", "1w", 52)
    Calendar(start=1798761600, period=604800, periods=52)
    """

    start: int
    period: int
    periods: int

    def __init__(self, start: int | str, period: int | str, periods: int) -> None:
        began = parse_instant(start) if isinstance(start, str) else start
        if began != int(began):
            raise ValueError(f"a calendar starts at a whole second, got {start!r}")
        object.__setattr__(self, "start", int(began))
        object.__setattr__(self, "period", parse_duration(period) if isinstance(period, str) else period)
        object.__setattr__(self, "periods", periods)
        if self.start < 0:
            raise ValueError(f"a calendar must start at or after Unix time 0, got {self.start}")
        if self.period < 1:
            raise ValueError(f"a period must last at least one second, got {self.period}")
        if not 1 <= self.periods <= MOST_PERIODS:
            raise ValueError(f"a calendar must have 1 to {MOST_PERIODS} periods, got {self.periods}")
        if self.time(self.periods) > LAST_INSTANT:
            raise ValueError(
                f"a calendar must end with the year 9999 or before, got Unix time {self.time(self.periods)}"
            )

    def time(self, i: int) -> int:
        """The Unix time at which period i ends."""
        return self.start + i * self.period

    def period_of(self, time: UnixSeconds) -> int:
        """The number of the period that holds this Unix time; 0 or less before the calendar, above T after it."""
        return ceil((time - self.start) / self.period)

    def closed(self, time: UnixSeconds) -> int:
        """How many periods have closed by this Unix time: 0 to T. A period closes just after its last instant."""
        return min(max(self.period_of(time) - 1, 0), self.periods)


def parse_instant(text: str, zone: tzinfo = UTC) -> float:
    """Unix seconds of a date or a time in ISO 8601, or of Unix seconds in digits.

    zone: that of a time which names none; a date is its midnight there.
    Raises ValueError for anything else, and for a time after the year 9999.

    >>> parse_instant("1993-07-01"), parse_instant("1993-07-01T02:00+02:00"), parse_instant("741484800")
    (741484800.0, 741484800.0, 741484800.0)
    """
    try:
        if text.isascii() and text.isdigit() and len(text) != 8:  # eight digits are a date, 19930701
            time = float(text)
        else:
            instant = datetime.fromisoformat(text)
            time = (instant if instant.tzinfo else instant.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"a time is like 2026-01-31 or 2026-01-31T12:00:00Z, got {text!r}") from None
    if time > LAST_INSTANT:
        raise ValueError(f"there is no time after the year 9999, got {text!r}")
    return time


def parse_duration(text: str, *, months: bool = False) -> int:
    """The seconds of a whole number and its unit: s, m (minutes), h, d or w.

    months: whether months (mo, 365/12 days) and years (y, 365 days) will do as well, as they do for how long something
    may take. The periods of a calendar have one length, which months and years have not.
    Raises ValueError for anything else, and for a duration of zero.

    >>> parse_duration("13w"), parse_duration("12mo", months=True)
    (7862400, 31536000)
    """
    match = re.fullmatch(r"\s*(\d{1,12})\s*(mo|[smhdwy])\s*", text, re.ASCII)
    if match is None:
        units = "s, m (minutes), h, d, w" + ", mo (months), y" * months
        raise ValueError(f"a duration is a whole number and one of {units}, such as 90d or 13w: got {text!r}")
    if match[2] in LONG_UNITS and not months:
        raise ValueError(
            f"months and years differ in length, so a duration is in d or w here, as 30d or 52w: got {text!r}"
        )
    seconds = int(match[1]) * (DURATION_UNITS | LONG_UNITS)[match[2]]
    if seconds == 0:
        raise ValueError(f"a duration must be at least one second, got {text!r}")
    return seconds


def cover(span: Node, widths: Iterable[int]) -> list[Node]:
    """The fewest nodes, left to right, whose union is `span`, from hierarchies aligned to period 0.

    widths: the cadences' widths in periods; each must divide the next larger, which makes the widest
    aligned node at every step the best choice. With widths 1, c, c², … high enough there are at most
    max(1, 2(c-1)⌈log_c(r-l)⌉) nodes (Pan 2023, theorem 4.4).

    Raises ValueError if the widths do not nest or cannot reach an end of the span.

    >>> [(node.start, node.end) for node in cover(Node(1, 7), [1, 2, 4])]
    [(1, 2), (2, 4), (4, 6), (6, 7)]
    """
    nested = sorted(set(widths), reverse=True)
    if any(wide % narrow for wide, narrow in pairwise(nested)):
        raise ValueError(f"each width must divide the next larger one, got {sorted(nested)}")
    nodes: list[Node] = []
    at = span.start
    while at < span.end:
        width = next((w for w in nested if at % w == 0 and at + w <= span.end), None)
        if width is None:
            raise ValueError(f"nodes of widths {sorted(nested)} cannot cover ({span.start}, {span.end}]: stuck at {at}")
        nodes.append(Node(at, at + width))
        at += width
    return nodes


def format_duration(seconds: int) -> str:
    """The duration in the widest unit that divides it.

    >>> format_duration(7862400)
    '13w'
    """
    unit = next(unit for unit, length in DURATION_UNITS.items() if seconds % length == 0)
    return f"{seconds // DURATION_UNITS[unit]}{unit}"


def format_instant(time: float) -> str:
    """ISO 8601 in UTC, to the second.

    >>> format_instant(741484800)
    '1993-07-01T00:00:00Z'
    """
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

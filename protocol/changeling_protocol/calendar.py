"""Periods, nodes, and covers of a range by nodes.

Periods are numbered 1 to T; period i is the span (start + (i-1)·W, start + i·W] of Unix time. The number i
also names the time at its end, and 0 the calendar's start. Knows no clock: the caller brings the time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from .quantities import UnixSeconds

MOST_PERIODS = 2**20
"""The most periods of a calendar: a year and four fifths of minutes, or 119 years of hours. What counts periods, a
device's or a server's, counts no further."""

LAST_INSTANT = 253_402_300_799
"""The last second of the year 9999, in Unix time: no calendar goes beyond, so that every time of a survey has a date
and fits into 64 bits of microseconds."""


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


@dataclass(frozen=True, slots=True)
class Calendar:
    """`periods` spans of `period` seconds each, from Unix time `start` on."""

    start: int
    period: int
    periods: int

    def __post_init__(self) -> None:
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


def cadence(width: int, first: int, last: int) -> list[Node]:
    """The nodes of one width in a row that lie inside the periods (first, last]."""
    return [Node(s, s + width) for s in range(first, last - width + 1, width)]


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

"""History groups that a plan may be made of: at which times an entry says all or nothing of its history.

A history tells much once the budget is near the logarithm of the number of possible histories, and next to nothing far
below it. So there are fewer times where that number is large: every d-th of the calendar, or those of a window. Which
mix is best is for the shares to find out.
"""

from collections.abc import Iterable, Iterator

from changeling_protocol import MOST_TIMES, Group, History, Odds

from .wish import Wish

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""How far apart the times of a history may be, in periods."""
LEAST_TIMES = 2
"""With a single time a history is the report of a state, as a panel's."""
LEAST_TOLD = 0.02
"""A history that is told with a smaller chance tells less than other groups."""
MOST_TRACKS = 64
"""In an open cohort each time is a track of its own, and more of them make estimates slow."""
PHASES = 16
"""Histories of one width begin at so many different times at most, evenly."""
WINDOWS = (2, 4, 8)
"""A window is this part of the horizon, at most; they begin at every half of one."""


def history_groups(wish: Wish, odds: Odds, times: Iterable[range] | None = None) -> Iterator[Group]:
    """The history groups that are worth trying for a wish, at these odds; at all times that are, or at some."""
    for periods in _times(wish.periods) if times is None else times:
        if (group := history_group(wish, periods, odds)) is not None:
            yield group


def history_group(wish: Wish, periods: range, odds: Odds) -> Group | None:
    """The group that reports the history at the ends of these periods; None if it would tell next to nothing."""
    if not LEAST_TIMES <= len(periods) <= (MOST_TIMES if wish.closed else MOST_TRACKS):
        return None
    history = History.of(odds, periods, wish.constraint, wish.calendar, wish.closed)
    limits = history.limits
    counted, within = limits.changes > 0, limits.span == len(periods) - 1
    if wish.closed and not ((counted or within) if limits.either else (counted and within)):
        return None  # the last reports would always be the same one, and tell nothing more
    group = Group.of_history(history, wish.answers)
    return group if group.histories.told >= LEAST_TOLD else None


def _times(periods: int) -> Iterator[range]:
    """Every d-th time of the whole calendar, beginning with each of the first d, and of windows."""
    for width in (width for width in WIDTHS if LEAST_TIMES * width <= periods):
        for first in sorted({1 + width * phase // PHASES for phase in range(PHASES)}):
            yield range(first, periods + 1, width)
    for part in WINDOWS:
        length = periods // part
        for before in range(0, periods - length + 1, max(1, length // 2)):
            for width in (width for width in WIDTHS if LEAST_TIMES * width <= length):
                yield range(before + width, before + length + 1, width)

"""The changelogs of a simulation: made up, bundled or a designer's own; and the calendars that fit them.

Where a changelog says nothing nobody changes, so a survey of other dates would look more accurate than it is: dates are
checked, and a changelog can be moved.
"""

from dataclasses import replace
from enum import StrEnum
from math import ceil
from pathlib import Path

import numpy as np
from changeling_protocol import DURATION_UNITS, Calendar
from changeling_statistics import MICROSECONDS, Changelog, format_instant, periods_told
from numpy.typing import NDArray

HISTORIES = 10_000
"""So many histories are made up at most; a larger population is resampled from them."""
SWING = 0.8
"""How far an answer's popularity swings about its mean, as a share of it."""
START, PERIOD, PERIODS = 1_767_225_600, 604_800, 52
"""The 52 weeks of 2026, if nothing else is asked for."""
SEASONS = 4
"""How many swings a calendar holds where answers have seasons."""
HEAVY, HEAVIER, LIGHTER = 0.1, 5.5, 0.5
"""A tenth of the entries change eleven times as often as the others: so many times the mean, and they so many."""


class World(StrEnum):
    """How made-up answers change over a calendar.

    drift: popularity swings once, slowly. shift: half of all changes fall into the period after the middle, when what
    was popular no longer is. seasons: popularity swings four times. heavy: as drift, but a tenth of the entries change
    eleven times as often as the others, and make 55% of all changes.
    """

    DRIFT = "drift"
    SHIFT = "shift"
    SEASONS = "seasons"
    HEAVY = "heavy"

    def popularity(self, answers: int, u: float) -> NDArray[np.float64]:
        """How popular each answer is at a time u from 0 to 1 of the calendar, shape (z,), summing to one."""
        at = {World.SHIFT: 0.5 * (u > 0.5), World.SEASONS: SEASONS * u}.get(self, u)
        return popularity(answers, at)

    def chance(self, mean: float, period: int, periods: int) -> float:
        """The chance that an entry changes in a period after its first, which is `mean` on average over periods."""
        if self is not World.SHIFT or periods < 3:
            return mean
        after = period == periods // 2 + 1
        return min(1.0, mean * periods / 2) if after else mean / 2

    def speeds(self, entries: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """How many times as often as the mean each entry changes, shape (entries,)."""
        if self is not World.HEAVY:
            return np.ones(entries)
        return np.where(generator.random(entries) < HEAVY, HEAVIER, LIGHTER)


def synthetic_calendar(period: int | None = None, start: int | None = None, periods: int | None = None) -> Calendar:
    """A calendar for made-up entries: the 52 weeks of 2026, but for the parts that are given.

    period: its length in seconds.
    start: in Unix seconds.
    periods: how many.

    >>> synthetic_calendar(period=86_400).periods
    52
    """
    return Calendar(
        START if start is None else start,
        PERIOD if period is None else period,
        PERIODS if periods is None else periods,
    )


def synthetic_changelog(
    answers: int,
    entries: int,
    changes: float,
    calendar: Calendar,
    generator: np.random.Generator,
    *,
    gradual: bool = False,
    world: World = World.DRIFT,
) -> Changelog:
    """A changelog of entries that move between answers as a Markov chain, at most one step a period.

    An entry is inserted once and never deleted. In each later period it changes with a fixed chance, at a random time
    of the period, to another answer, which is drawn by its popularity.

    answers: how many, z.
    entries: how many.
    changes: how many an entry makes on average, its insertion not counted.
    generator: draws everything.
    gradual: whether each entry is inserted in a uniformly random period; if not, all are in the first.
    world: how the chances of a change, and the answers' popularity, go over the calendar.
    Raises ValueError if the calendar has not periods enough for so many changes.

    >>> made = synthetic_changelog(3, 100, 1.0, synthetic_calendar(), np.random.default_rng(1))
    >>> made.answers
    ('answer 1', 'answer 2', 'answer 3')
    """
    if answers < 1 or entries < 1:
        raise ValueError(f"there must be an answer and an entry, got {answers} and {entries}")
    chance = _chance_of_change(answers, changes, calendar.periods, gradual)
    inserted = generator.integers(1, calendar.periods + 1, entries) if gradual else np.ones(entries, np.int64)
    speeds = world.speeds(entries, generator)
    states = np.zeros(entries, np.int64)
    rows, times = [], []
    for period in range(1, calendar.periods + 1):
        now = world.chance(chance, period, calendar.periods) * speeds
        moving = (inserted == period) | ((inserted < period) & (generator.random(entries) < now))
        who = np.flatnonzero(moving)
        states[who] = _drawn(world.popularity(answers, period / calendar.periods), states[who], generator)
        rows.append(np.stack([who, states[who]]))
        times.append(calendar.time(period - 1) + generator.integers(1, calendar.period + 1, len(who)))
    entry, state = np.concatenate(rows, axis=1)
    by_entry = np.argsort(entry, kind="stable")
    return Changelog(
        answers=tuple(f"answer {a}" for a in range(1, answers + 1)),
        entries=tuple(str(i) for i in range(1, entries + 1)),
        entry=entry,
        time=np.concatenate(times) * MICROSECONDS,
        state=state.astype(np.uint16),
    ).take(by_entry)


def popularity(answers: int, u: float) -> NDArray[np.float64]:
    """How popular each answer a = 0..z-1 is: in proportion to 1 + 0.8 cos(2π(u - a/z)); shape (z,), summing to one.

    u: the time, from 0 at the start of the calendar to 1 at its end.
    """
    weights = 1 + SWING * np.cos(2 * np.pi * (u - np.arange(answers) / answers))
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _chance_of_change(answers: int, changes: float, periods: int, gradual: bool) -> float:
    if not changes >= 0:
        raise ValueError(f"the expected changes per entry must be 0 or more, got {changes}")
    if changes == 0:
        return 0.0
    left = (periods - 1) / 2 if gradual else periods - 1
    if answers == 1 or changes > left:
        raise ValueError(
            f"an entry makes at most {0 if answers == 1 else left:g} changes on average among {answers} answers "
            f"in {periods} periods, got {changes:g}"
        )
    return changes / left


def _drawn(
    chances: NDArray[np.float64], states: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draws a new state for each entry, never the one it is in.

    chances: of the states 1..z, adding up to 1. states: the present one of each entry, 0 for NULL; its own chance is
    left out.
    """
    padded = np.concatenate([[0.0], chances])
    upper = np.cumsum(padded)
    own = padded[states]
    drawn = generator.random(len(states)) * (1 - own)
    drawn += np.where(drawn >= upper[states] - own, own, 0)
    new: NDArray[np.int64] = np.searchsorted(upper, drawn, side="right").clip(1, len(chances))
    rounded = new == states  # at the edge of the own share
    new[rounded] = new[rounded] % len(chances) + 1
    return new


FOLDER = Path(__file__).parent / "data"


def bundled_names() -> list[str]:
    """The names that `changeling-sim run NAME` knows.

    >>> bundled_names()
    ['school-to-work']
    """
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.csv"))


def changelog_path(name: str) -> Path:
    """Where a changelog is: the file of that path if there is one, else the bundled changelog of that name.

    name: a path, or one of `bundled_names()`.
    Raises FileNotFoundError, which lists the bundled names, if there is neither.

    >>> changelog_path("school-to-work").name
    'school_to_work.csv'
    """
    path = Path(name)
    if path.exists():
        return path
    if name in bundled_names():
        return FOLDER / f"{name.replace('-', '_')}.csv"
    raise FileNotFoundError(
        f"no file {name!r}, and no bundled changelog of that name: there is {', '.join(bundled_names())}"
    )


FITTED_PERIODS = 24
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

    >>> from changeling_statistics import read_csv
    >>> calendar_for(read_csv(changelog_path("school-to-work")), period=52 * 604_800).periods
    7
    """
    first, last = ceil(changelog.time.min() / MICROSECONDS), ceil(changelog.time.max() / MICROSECONDS)
    if period is None:
        period = _rounded(max(1, ceil((last - (first if start is None else start)) / (periods or FITTED_PERIODS))))
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
    unit = next((unit for unit in DURATION_UNITS.values() if seconds >= 4 * unit), 1)
    return ceil(seconds / unit) * unit


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
    told = periods_told(changelog, calendar)
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

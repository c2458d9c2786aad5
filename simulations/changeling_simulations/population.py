"""Populations: changelogs, made up, bundled or a designer's own, and how many entries have which history; their survey.

Where a changelog says nothing nobody changes, so a survey of other dates would look more accurate than it is: dates are
checked, and a changelog can be moved.

Entries with the same history are one row with a weight, so a billion entries take no more room than their distinct
histories. Each history is kept twice: as it truly was, and frozen, as the devices report it under the constraint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import TypeAlias

import numpy as np
from changeling_protocol import DURATION_UNITS, Calendar, Constraint, Node, Survey, Track, format_instant
from changeling_statistics import MICROSECONDS, Changelog, Counts, admitted, hierarchical_plan, periods_told
from numpy.typing import NDArray

States: TypeAlias = NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """The distinct histories of a population over T periods, and how many entries have each.

    answers: the names of the states 1..z; state 0 is NULL.
    true: the states at the ends of periods 0..T, shape (rows, T+1); at period 0, before the calendar, all are NULL.
    frozen: the same of what the devices report on, where the constraint has frozen some entries.
    weights: how many entries have each history, shape (rows,).
    Raises ValueError if the shapes do not fit, or there is no entry.

    >>> states = np.array([[0, 1, 1], [0, 1, 2]], np.uint16)  # one answer all along; a change in the second period
    >>> Population(("tea", "coffee"), states, states, np.array([30, 10])).histogram().tolist()
    [[0, 0], [40, 0], [30, 10]]
    """

    answers: tuple[str, ...]
    true: States
    frozen: States
    weights: Counts

    def __post_init__(self) -> None:
        if not self.true.shape == self.frozen.shape == (len(self.weights), self.periods + 1):
            raise ValueError("a population's true and frozen states must have a row per weight")
        if self.true[:, 0].any() or self.frozen[:, 0].any():
            raise ValueError("before the calendar every entry is NULL")
        if self.entries < 1:
            raise ValueError("a population must have an entry")

    @classmethod
    def from_changelog(cls, changelog: Changelog, calendar: Calendar, constraint: Constraint) -> "Population":
        """The population of a changelog's entries, who all join as the calendar starts.

        An answer held by then is inserted then; mutations after the last period are left out.
        constraint: what freezes an entry in its `frozen` history.
        """
        inside = changelog.since(calendar.start)
        ends = [calendar.time(i) for i in range(1, calendar.periods + 1)]
        true = inside.states_at(ends)
        frozen = inside.take(admitted(inside, constraint)).states_at(ends)
        return cls.of_states(changelog.answers, true, frozen)

    @classmethod
    def of_states(
        cls, answers: tuple[str, ...], true: NDArray[np.integer], frozen: NDArray[np.integer] | None = None
    ) -> "Population":
        """The population of entries with these states at the ends of periods 1..T, (entries, T); all begin with NULL.

        frozen: the same of what they report, if that is something else.
        """
        histories, weights = _distinct(np.hstack([true, true if frozen is None else frozen]).astype(np.uint16))
        held, told = (np.pad(states, ((0, 0), (1, 0))) for states in np.hsplit(histories, 2))
        return cls(answers, held, told, weights)

    @classmethod
    def of_freezing(cls, changelog: Changelog, calendar: Calendar, constraint: Constraint) -> "Population":
        """What the entries of `from_changelog` answer to the freezing question: no, and yes once a mutation is refused.

        >>> from changeling_protocol import AtMost
        >>> from changeling_statistics import read_rows
        >>> rows = [(1, 5, "tea"), (1, 90_000, "coffee"), (2, 5, "tea")]
        >>> Population.of_freezing(read_rows(rows), Calendar(0, "1d", 2), AtMost(1)).histogram().tolist()
        [[0, 0], [2, 0], [1, 1]]
        """
        inside = changelog.since(calendar.start)
        ends = [calendar.time(i) for i in range(1, calendar.periods + 1)]
        answered = inside.states_at(ends) > 0
        refused = inside.take(~admitted(inside, constraint))
        frozen = replace(refused, state=np.ones_like(refused.state)).states_at(ends) > 0
        begun = np.maximum.accumulate(answered | frozen, axis=1)
        return cls.of_states(("no", "yes"), begun.astype(np.uint16) + frozen)

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return int(self.weights.sum())

    @property
    def periods(self) -> int:
        """T, how many periods the histories last."""
        return len(self.true[0]) - 1

    def resampled(self, entries: int, generator: np.random.Generator) -> "Population":
        """A population of entries that are drawn from this one with replacement (the bootstrap).

        entries: how many, at least 1; a billion takes no longer than one. generator: draws them.
        Raises ValueError for fewer than one.
        """
        if entries < 1:
            raise ValueError(f"a population must have an entry, got {entries}")
        weights = generator.multinomial(entries, self.weights / self.entries)
        drawn = weights > 0
        return replace(self, true=self.true[drawn], frozen=self.frozen[drawn], weights=weights[drawn])

    def histogram(self) -> Counts:
        """The true histograms at times 0..T, shape (T+1, z), in entries."""
        return self._count(self.true)

    def frozen_histogram(self) -> Counts:
        """The histograms of the frozen histories, for which estimates are unbiased; shape (T+1, z), in entries."""
        return self._count(self.frozen)

    def inputs(self, track: Track, node: Node) -> NDArray[np.intp]:
        """The input that each history gives a track's randomizer on a node, shape (rows,)."""
        return inputs_of(track, self.frozen[:, node.start], self.frozen[:, node.end])

    def mutation_counts(self, track: Track, node: Node, weights: Counts | None = None) -> Counts:
        """How many entries have each input of a track's randomizer on a node: s, shape (m,).

        weights: how many entries of each row report on the node, shape (rows,); if not given, all of them.
        """
        weights = self.weights if weights is None else weights
        return weighted_counts(self.inputs(track, node), weights, track.randomizer.space.size)

    def _count(self, states: States) -> Counts:
        d = len(self.answers) + 1
        return np.array([weighted_counts(column, self.weights, d)[1:] for column in states.T])


def inputs_of(track: Track, old: NDArray[np.integer], new: NDArray[np.integer]) -> NDArray[np.intp]:
    """The inputs that entries give a track's randomizer on a node: their states at its start and end, shape (n,).

    Raises ValueError for a state that is none of the track's.
    """
    space = track.randomizer.space
    d = space.answers + 1
    pairs = old.astype(np.intp) * d + new
    index = np.zeros(d * d, np.intp)
    for pair in np.flatnonzero(np.bincount(pairs, minlength=d * d)).tolist():
        index[pair] = space.index(*divmod(pair, d))
    inputs: NDArray[np.intp] = index[pairs]
    return inputs


def _distinct(rows: States) -> tuple[States, Counts]:
    """The distinct rows and how often each occurs; np.unique by rows does this twenty times slower."""
    rows = rows[np.lexsort(rows.T)]
    first = np.flatnonzero(np.concatenate([[True], np.any(rows[1:] != rows[:-1], axis=1)]))
    return rows[first], np.diff(first, append=len(rows))


def weighted_counts(values: NDArray[np.integer], weights: Counts, size: int) -> Counts:
    """The sum of the weights of each value from 0 on, shape (size,).

    Added as floats, which is exact below 2^53 entries.
    """
    return np.bincount(values, weights, size).astype(np.int64)


def paper_survey(
    answers: Sequence[str],
    calendar: Calendar,
    constraint: Constraint,
    *,
    epsilon: Decimal,
    branching: int = 2,
    layers: int = 1,
) -> Survey:
    """A survey whose entries all report on every layer of a hierarchy through k-RR, as in Pan 2023.

    answers: the names of the answers.
    calendar, constraint: the survey's.
    epsilon: the most that an entry may lose over the whole calendar.
    branching: c; layers have nodes of 1, c, c², … periods.
    layers: how many; one is the flat release.
    What only devices and a server need (skew, spread, grace, minimum) is filled with the least there is.
    Raises ValueError if there is no such plan.

    >>> from changeling_protocol import AtMost
    >>> daily = Calendar(0, "1d", 8)
    >>> [track.width for track in paper_survey(("tea",), daily, AtMost(2), epsilon=Decimal(8), layers=2).plan.tracks]
    [1, 2]
    """
    plan = hierarchical_plan(len(answers), calendar, constraint, epsilon=epsilon, branching=branching, layers=layers)
    return Survey.at_cost(
        question="a simulation",
        answers=answers,
        calendar=calendar,
        constraint=constraint,
        plan=plan,
        skew=0,
        spread=1,
        grace=2,
        minimum=1,
    )


def closed_cohort(
    entries: int, answers: int, periods: int, most_changes: int, generator: np.random.Generator
) -> Population:
    """Entries who all answer from the first period on and change their answer 0 to `most_changes` times, a row each.

    The first answer is uniform. Every number of changes is equally likely, at independent uniform periods from the
    second to the last, each to a uniformly random other answer. Two may fall into one period; a node sees their sum.

    >>> closed_cohort(1000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1)).entries
    1000
    """
    state = generator.integers(1, answers + 1, entries)
    changes = generator.integers(0, most_changes + 1, entries)
    times = np.sort(
        np.where(
            np.arange(most_changes) < changes[:, None],
            generator.integers(2, periods + 1, (entries, most_changes)),
            periods + 1,
        )
    )
    states = np.zeros((entries, periods + 1), np.uint16)
    states[:, 1:] = state[:, None]
    for change in range(most_changes):
        state = 1 + (state - 1 + generator.integers(1, answers, entries)) % answers
        after = np.arange(periods + 1) >= times[:, change, None]
        states = np.where(after, state[:, None], states).astype(np.uint16)
    names = tuple(f"answer {i}" for i in range(1, answers + 1))
    return Population(names, states, states, np.ones(entries, np.int64))


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

"""How far freezing will bias a survey, before anybody answers, and how many changes are best allowed.

An entry that has used up the changes its survey allows stands still: it goes on reporting the last answer that was
taken up, whatever it holds by then. So histograms are of what entries report, and are biased by those that stand still.
The more changes are allowed, the smaller that bias and the larger the noise; the error that counts has both.

What entries will do is told by a pilot's changelog, or guessed from how often they change. A guess does not know where
answers go, so what follows from it is a bound. docs/planning.md, "Freezing".
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import sqrt
from typing import TypeAlias

import numpy as np
from changeling_protocol import (
    MICRO,
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    ExpectedChanges,
    TimeBounded,
    UnixSeconds,
)
from numpy.typing import NDArray

from ..changelog import MICROSECONDS, Changelog
from ..estimate import Floats
from .plans import Planned, optimal_plan
from .prediction import POINT, Wish

COVERED = 0.9
"""A changelog tells of a calendar if so many of its periods lie between the first mutation and the last."""
FIRST_FREEZING = 0.02
"""The search for the changes to allow begins where freezing biases shares by no more than this."""
ABOUT_THE_NOISE = 1.01
"""The search goes no higher where freezing adds so little to the noise."""
BEYOND = 10
"""The most changes that are allowed, for each period: more than anybody makes."""
NO_SPREAD = 1e6
"""The shape of a gamma distribution so narrow that changes are as good as by chance alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Freezing:
    """The bias of freezing, as fractions of the entries, at the ends of periods 1..T.

    stopped: the share of entries that have made a change which was not taken up, shape (T,).
    bias: the error of shares that follows, root mean square over the answers, shape (T,).
    bounded: whether the bias is at most so large, and not known better.

    >>> calendar = Calendar(0, "1d", 8)
    >>> habits = SteadyChanges(2, calendar, changes=1.0)
    >>> [round(float(habits.freezing(AtMost(k)).stopped[-1]), 3) for k in (1, 2, 3)]
    [0.632, 0.264, 0.08]
    """

    stopped: Floats
    bias: Floats
    bounded: bool

    def objective(self, objective: str) -> float:
        """One bias for all periods: their root mean square for "mean", or the largest for "worst"."""
        return float(self.bias.max() if objective == "worst" else sqrt(np.mean(self.bias**2)))


@dataclass(frozen=True)
class Pilot:
    """The changes of some entries over a survey's calendar, which stand for those of all whom it will ask.

    changelog: begins with the calendar, as `pilot_of` makes it. calendar: the survey's.

    >>> from changeling_statistics import read_rows
    >>> pilot = pilot_of(read_rows([(1, 5, "tea"), (2, 5, "tea"), (2, 90_000, "coffee")]), Calendar(0, "1d", 2))
    >>> pilot.freezing(AtMost(1)).stopped.tolist()
    [0.0, 0.5]
    """

    changelog: Changelog
    calendar: Calendar

    @cached_property
    def shares(self) -> Floats:
        """The shares of the answers at the ends of periods 1..T, of all entries, shape (T, z)."""
        return self._shares(self.changelog)

    @property
    def typical_share(self) -> float:
        """The median over the answers of their share, mean over time."""
        return float(np.median(self.shares.mean(0)))

    def expected(self, constraint: Constraint) -> ExpectedChanges:
        """The share with an answer after the first period, and how often an entry changes in a later one.

        A node shows an entry's changes within one period as one change, or none if it is back where it was.
        """
        taken = self.changelog.take(admitted(self.changelog, constraint))
        states = taken.states_at([self.calendar.time(i) for i in range(1, self.calendar.periods + 1)])
        later = (states[:, 1:] != states[:, :-1]).sum() / len(states) / max(1, self.calendar.periods - 1)
        return ExpectedChanges(round(MICRO * float((states[:, 0] > 0).mean())), min(MICRO, round(MICRO * float(later))))

    def freezing(self, constraint: Constraint) -> Freezing:
        """The bias that the constraint would have had on the pilot's own entries."""
        changelog, calendar = self.changelog, self.calendar
        taken = admitted(changelog, constraint)
        bias = self._shares(changelog.take(taken)) - self.shares
        refused = np.flatnonzero(~taken)
        first = refused[np.diff(changelog.entry[refused], prepend=-1) != 0]
        at = [calendar.period_of(time / MICROSECONDS) for time in changelog.time[first].tolist()]
        stopping = np.bincount(np.array(at, np.intp), minlength=calendar.periods + 1)[1 : calendar.periods + 1]
        return Freezing(np.cumsum(stopping) / len(changelog.entries), np.sqrt((bias**2).mean(1)), bounded=False)

    def _shares(self, changelog: Changelog) -> Floats:
        bounds = [self.calendar.time(i) for i in range(self.calendar.periods + 1)]
        changes = changelog.mutations().histogram_changes(len(changelog.answers), bounds)
        shares: Floats = changes.cumsum(0)[:, 1:] / len(changelog.entries)
        return shares


@dataclass(frozen=True, slots=True)
class SteadyChanges:
    """Entries that all answer in the first period and change at steady rates after it, some more often than others.

    The number of changes of an entry is Poisson, about a rate of its own; rates are gamma distributed. All that is
    known of the answers is how many there are, so the bias is bounded by that of entries which stand still and have
    all gone from one answer to one other.

    answers: z. calendar: the survey's. changes: of an entry over the calendar, mean. spread: their standard deviation
    over the entries; None, or less, for what chance alone makes of one rate, the root of the mean.
    first: the share of entries that answer in the first period.
    Raises ValueError for fewer changes than 0, or more than one a period.

    >>> SteadyChanges(2, Calendar(0, "1d", 8), changes=2.0, spread=3.0).freezing(AtMost(3)).objective("worst") > 0.1
    True
    """

    answers: int
    calendar: Calendar
    changes: float
    spread: float | None = None
    first: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.changes <= max(1, self.calendar.periods - 1):
            raise ValueError(
                f"{self.changes:g} changes in {self.calendar.periods} periods: expect 0 or more, and at most one a "
                "period after the first"
            )
        if self.spread is not None and not self.spread >= 0:
            raise ValueError(f"the spread of changes is a standard deviation, 0 or more, got {self.spread:g}")

    def expected(self, constraint: Constraint) -> ExpectedChanges:
        """How often an entry changes in a later period, without the changes that are not taken up."""
        later, within = self._bounds(constraint)
        made = self.changes * within
        if later is not None and self.changes:
            counted = self._chances(np.array([within]), np.array([within]), later)[:, 0]
            made = later - float(((later - np.arange(later + 1)) * counted).sum())
        rate = made / max(1, self.calendar.periods - 1)
        return ExpectedChanges(round(MICRO * self.first), min(MICRO, round(MICRO * rate)))

    def freezing(self, constraint: Constraint) -> Freezing:
        """A bound on the bias: as if all that stand still had gone from one answer to one other."""
        later, within = self._bounds(constraint)
        periods = self.calendar.periods
        passed = np.arange(periods) / max(1, periods - 1)
        going = np.ones(periods)
        if self.changes:
            if later is None:  # no change after the time that the constraint leaves
                going = self._chances(passed, np.zeros(periods), 0, np.maximum(passed - within, 0.0))[0]
            else:
                going = self._chances(passed, np.minimum(passed, within), later).sum(0)
        stopped: Floats = np.clip(1.0 - going, 0.0, 1.0)
        return Freezing(stopped, stopped * sqrt(min(1.0, 2.0 / self.answers)), bounded=True)

    @property
    def typical_share(self) -> float:
        """An equal share, as nothing is known of the answers."""
        return 1.0 / self.answers

    def _bounds(self, constraint: Constraint) -> tuple[int | None, float]:
        """The number of changes after the first answer that are taken up, and within which part of the calendar."""
        k = constraint.k - 1 if isinstance(constraint, AtMost | AtMostWithin) else None
        within = 1.0
        if isinstance(constraint, TimeBounded | AtMostWithin):
            within = min(1.0, constraint.seconds / self.calendar.period / max(1, self.calendar.periods - 1))
        return k, within

    def _chances(self, until: Floats, within: Floats, most: int, none_in: Floats | None = None) -> Floats:
        """How likely there are 0, 1, … `most` changes by `within`, and none from then to `until`, shape (most + 1, …).

        until, within: parts of the calendar, rising together. none_in: how long there must be none, if that is not all
        of `until` less `within`.
        """
        variance = (self.spread or 0.0) ** 2
        shape = min(NO_SPREAD, self.changes**2 / max(variance - self.changes, self.changes**2 / NO_SPREAD))
        rate, length = shape / self.changes, until if none_in is None else none_in + within
        chances = np.empty((most + 1, *until.shape))
        chances[0] = (rate / (rate + length)) ** shape
        for count in range(most):
            chances[count + 1] = chances[count] * (shape + count) / (count + 1) * within / (rate + length)
        return chances


Habits: TypeAlias = Pilot | SteadyChanges
"""The changes of entries as far as they are known before anybody is asked."""


def pilot_of(changelog: Changelog, calendar: Calendar, *, closed: bool = False) -> Habits:
    """The habits that a pilot's changelog shows.

    A pilot of other dates is moved, so that it begins with the calendar. One that is shorter than the calendar tells
    the rate of changes, how far it differs between entries, and nothing of where answers go.
    closed: whether only entries count that have an answer from the first period on.
    Raises ValueError, if closed, for a pilot without an entry that answers at first.

    >>> from changeling_statistics import read_rows
    >>> pilot_of(read_rows([(1, 5, "tea"), (1, 90_000, "coffee")]), Calendar(0, "1d", 2)).shares.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    begin = int(changelog.time.min())
    starts_with_it = calendar.period_of(UnixSeconds(begin / MICROSECONDS)) == 1
    if not starts_with_it and periods_told(changelog, calendar) < COVERED * calendar.periods:
        changelog = replace(changelog, time=changelog.time + (calendar.start + 1) * MICROSECONDS - begin)
    inside = changelog.since(calendar.start)
    if closed:
        there = np.flatnonzero(inside.states_at([calendar.time(1)])[:, 0])
        if not len(there):
            raise ValueError("nobody in the pilot has an answer from the first period on")
        number = np.full(len(inside.entries), -1)
        number[there] = np.arange(len(there))
        kept = inside.take(number[inside.entry] >= 0)
        inside = replace(kept, entries=tuple(inside.entries[i] for i in there.tolist()), entry=number[kept.entry])
    told = periods_told(inside, calendar)
    if told >= COVERED * calendar.periods:
        return Pilot(inside, calendar)
    later = np.bincount(inside.entry, minlength=len(inside.entries)) - 1.0
    scale = (calendar.periods - 1) / max(1, told - 1)
    mean = min(scale * float(later.mean()), calendar.periods - 1.0)
    between = max(float(later.var()) - float(later.mean()), 0.0)  # beyond what chance makes of one rate
    first = float((inside.states_at([calendar.time(1)])[:, 0] > 0).mean())
    return SteadyChanges(len(inside.answers), calendar, max(mean, 0.0), sqrt(mean + between * scale**2), first)


def admitted(changelog: Changelog, constraint: Constraint) -> NDArray[np.bool_]:
    """A mask of the mutations that a device takes up, shape (mutations,). The first that is refused freezes its entry.

    >>> from changeling_statistics import read_rows
    >>> admitted(read_rows([(1, 5, "tea"), (1, 90_000, "coffee")]), AtMost(1)).tolist()
    [True, False]
    """
    kept = np.zeros(len(changelog), np.bool_)
    entry, first, mutations, frozen = -1, 0, 0, False
    for row, (mutating, time) in enumerate(zip(changelog.entry.tolist(), changelog.time.tolist(), strict=True)):
        if mutating != entry:
            entry, first, mutations, frozen = mutating, time, 0, False
        frozen = frozen or not constraint.admits(mutations, (time - first) / MICROSECONDS)
        mutations += 1
        kept[row] = not frozen
    return kept


def periods_told(changelog: Changelog, calendar: Calendar) -> int:
    """How many of a calendar's periods lie between the first mutation and the last; 0 or less where none does.

    >>> from changeling_statistics import read_rows
    >>> periods_told(read_rows([(1, 5, "tea"), (1, 90_000, "coffee")]), Calendar(0, "1d", 8))
    2
    """
    first, last = changelog.time.min() / MICROSECONDS, changelog.time.max() / MICROSECONDS
    return int(min(calendar.period_of(last), calendar.periods) - max(calendar.period_of(first), 1) + 1)


@dataclass(frozen=True, slots=True)
class Rung:
    """A number of changes to allow: the best plan for it, its noise, and the freezing that it leaves.

    wish: with the constraint. planned: the best plan for it.
    """

    wish: Wish
    planned: Planned
    freezing: Freezing

    @property
    def noise(self) -> float:
        """The standard error that the wish wants small, as a fraction of the entries."""
        return self.planned.option.error(self.wish)

    @property
    def total(self) -> float:
        """The error of noise and freezing together, likewise: the root of the mean squared error."""
        squares = self.planned.option.prediction.errors**2 + self.freezing.bias**2
        return float(sqrt(squares.max() if self.wish.objective == "worst" else squares.mean()))

    def devices_for(self, error: float = POINT) -> float:
        """How many devices it takes for such an error, freezing included; inf where freezing alone is larger."""
        noise, bias = self.planned.option.prediction.errors**2, self.freezing.bias**2
        if self.wish.objective == "mean":
            noise, bias = noise.mean(keepdims=True), bias.mean(keepdims=True)
        room = error**2 - bias
        return self.wish.devices * float((noise / room).max()) if (room > 0).all() else float("inf")


def rung(wish: Wish, habits: Habits) -> Rung:
    """The rung of a wish's own constraint, with the changes that are expected under it.

    Raises ValueError as `optimal_plan` does.

    >>> wish = Wish(2, Calendar(0, "1d", 4), AtMost(2), epsilon=4, devices=10_000)
    >>> habits = SteadyChanges(2, wish.calendar, changes=0.5)
    >>> rung(wish, habits).wish.expected
    ExpectedChanges(first=1000000, later=131156)
    """
    wish = replace(wish, expected=habits.expected(wish.constraint))
    return Rung(wish, optimal_plan(wish), habits.freezing(wish.constraint))


def ladder(wish: Wish, habits: Habits) -> Iterator[Rung]:
    """The rungs about the number of changes k that leaves the least total error; that number is among them.

    wish: its constraint and expected changes are left out of account. Each rung is a plan to find, which takes seconds
    to a minute; they come in the order in which they are found. The search begins where freezing is small, and leaves
    out what cannot be better: noise grows with k, so no total is below the noise of a smaller k and its own freezing.
    A period shows one change at most, so that no k above the number of periods costs more than that number does; the
    last rung is far above it. Numbers that no plan meets are left out.
    Raises ValueError as `optimal_plan` does, if none is left.

    >>> wish = Wish(2, Calendar(0, "1d", 4), AtMost(2), epsilon=4, devices=10_000)
    >>> habits = SteadyChanges(2, wish.calendar, changes=0.5)
    >>> min(ladder(wish, habits), key=lambda rung: rung.total).wish.constraint
    AtMost(k=40)
    """
    allowed = [*range(1, wish.periods), BEYOND * wish.periods]
    bias = cache(lambda k: habits.freezing(AtMost(k)).objective(wish.objective))
    start = next((at for at, k in enumerate(allowed) if bias(k) <= FIRST_FREEZING), len(allowed) - 1)
    least, noise, refused = np.inf, 0.0, None
    for k in (*allowed[start:], *reversed(allowed[:start])):
        above = k >= allowed[start]
        if above and least <= ABOUT_THE_NOISE * noise:
            continue
        if sqrt((noise if above else 0.0) ** 2 + bias(k) ** 2) < least:
            try:
                found = rung(replace(wish, constraint=AtMost(k)), habits)
            except ValueError as error:
                refused = error
                continue
            noise, least = max(noise, found.noise), min(least, found.total)
            yield found
    if least == np.inf and refused is not None:
        raise refused

"""A survey in the field: who comes late, leaves, comes back as another, is offline, or is not heard.

All rates are per period. Nothing here depends on answers, but for `reluctance`, and the invented entries that push one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol import Node, Survey, closings
from changeling_statistics import Counts
from numpy.typing import NDArray

from .population import Population, States, weighted_counts
from .sampler import Numbers


@dataclass(frozen=True, slots=True)
class Field:
    """How a population's devices fare; as it stands, all enrol before the first period ends and are always heard.

    arrivals: how many enrol in each period after the first, as a share of all who enrolled before; 0.03 is growth by
    3% a period. What an arrival held before it enrolled, nobody asks: it begins with the answer that it has then.
    uninstalls: the chance to leave for good in a period, after an entry's first.
    reinstalls: the chance, likewise, to leave and come back at once as a new entry, which draws everything afresh. In a
    closed cohort nobody can come back.
    offline: the chance that an entry's closing is never heard.
    spell: how many periods a spell offline lasts, mean; None if each period has an independent chance.
    late: the chance that what is heard of a closing arrives only after the next period has closed, but within grace.
    outage: the periods whose closings the server loses, all of them; one that starts late is an outage from 0 on.
    in_order: whether entries enrol in the order of the population's histories, so that newcomers may be unlike those
    before them; if not, at random.
    reluctance: of each state 0..z the chance that an entry which holds it as a period closes is not heard; none if
    empty.
    behind: the chance that an entry's clock is a period behind: each of its changes is reported a period late.
    liars: how many entries are invented, as a share of the true ones; they enrol first, are always heard, and answer
    at random, or with what raises the answer `pushed` most: its state 1..z, 0 for none.
    Raises ValueError, by name, for a rate that is not within 0 to 1, and for a spell that is too short.

    >>> Field(offline=0.1, spell=2).returning
    0.5
    """

    arrivals: float = 0
    uninstalls: float = 0
    reinstalls: float = 0
    offline: float = 0
    spell: float | None = None
    late: float = 0
    outage: Node | None = None
    in_order: bool = False
    reluctance: tuple[float, ...] = ()
    behind: float = 0
    liars: float = 0
    pushed: int = 0

    def __post_init__(self) -> None:
        for name in ("arrivals", "uninstalls", "reinstalls", "offline", "late", "behind", "liars"):
            _check_rate(name, getattr(self, name))
        for rate in self.reluctance:
            _check_rate("reluctance", rate)
        if self.offline == 1:
            raise ValueError("offline must be below 1: somebody has to be heard")
        if self.spell is not None and not self.spell >= max(1, self.offline / (1 - self.offline)):
            raise ValueError(
                f"spells must last one period or longer, and the longer the more are offline: {self.spell:g} periods "
                f"are too few for offline = {self.offline:g}"
            )

    @property
    def falling_silent(self) -> float:
        """The chance that an entry which is online goes offline with the next period."""
        return self.offline / (1 - self.offline) * self.returning

    @property
    def returning(self) -> float:
        """The chance that an entry which is offline is back with the next period."""
        return 1 - self.offline if self.spell is None else 1 / self.spell

    def is_out(self, period: int) -> bool:
        """True if the server loses this period's closing."""
        return self.outage is not None and self.outage.start < period <= self.outage.end


def _check_rate(name: str, rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ValueError(f"{name} must be a rate from 0 to 1, got {rate:g}")


MOST_ENTRIES = 2_000_000
"""A simulation of the field goes through every entry at every closing."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldEntries:
    """Entries one by one; who reinstalls is two. All of shape (entries,).

    history: which of the population's histories each has.
    enrolled: how many periods had closed when it enrolled: it answers from the next on, and knows nothing of before.
    left: the last period whose closing it answers; it may be the last before it enrolled.
    """

    history: Numbers
    enrolled: Counts
    left: Counts

    def __len__(self) -> int:
        return len(self.history)

    def __getitem__(self, some: Numbers) -> "FieldEntries":
        """Some of them."""
        return FieldEntries(self.history[some], self.enrolled[some], self.left[some])

    def states(self, population: Population, period: int) -> NDArray[np.intp]:
        """The state that each reports to hold as a period closes: NULL until it has enrolled."""
        held = population.frozen[:, period][self.history].astype(np.intp)
        states: NDArray[np.intp] = np.where(self.enrolled < period, held, 0)
        return states

    def answer(self, period: int) -> NDArray[np.bool_]:
        """Mask of the entries that answer the closing of a period."""
        answering: NDArray[np.bool_] = (self.enrolled < period) & (period <= self.left)
        return answering


def draw_entries(population: Population, survey: Survey, field: Field, generator: np.random.Generator) -> FieldEntries:
    """Draws when entries enrol, leave and come back as others.

    population: whose entries they are; of the same answers, and as many periods as the survey.
    generator: draws everything.
    Raises ValueError for more than MOST_ENTRIES entries, or arrivals in a closed cohort.
    """
    if population.entries > MOST_ENTRIES:
        raise ValueError(
            f"a simulation of the field has at most {MOST_ENTRIES:,} entries, got {population.entries:,}: choose fewer"
        )
    if survey.closed and field.arrivals:
        raise ValueError("a closed cohort takes no arrivals after its first period")
    periods = population.periods
    history = np.repeat(np.arange(len(population.weights)), population.weights)
    enrolled = draw_enrolments(len(history), periods, field.arrivals, generator)
    enrolled = np.sort(enrolled) if field.in_order else enrolled
    left = np.minimum(enrolled + _until(field.uninstalls, len(history), generator), periods)
    rounds = []
    while len(history):
        replaced = enrolled + _until(field.reinstalls, len(history), generator)
        rounds.append(FieldEntries(history, enrolled, np.minimum(left, replaced)))
        again = replaced < left
        history, enrolled, left = history[again], replaced[again], left[again]
        if survey.closed:
            break
    return FieldEntries(
        *(np.concatenate([getattr(each, name) for each in rounds]) for name in ("history", "enrolled", "left"))
    )


def draw_enrolments(entries: int, periods: int, arrivals: float, generator: np.random.Generator) -> Counts:
    """Draws how many periods have closed when each entry enrols, 0 to T - 1, shape (entries,).

    periods: T. arrivals: how many enrol in a period, as a share of those who enrolled before. The shares that have
    enrolled by the first, second, … period are as 1 : 1 + a : (1 + a)² …
    """
    by_then = (1 + arrivals) ** np.arange(1.0 - periods, 1)
    enrolled: Counts = np.searchsorted(by_then, generator.random(entries), side="right")
    return np.minimum(enrolled, periods - 1)


def enrolled_histogram(states: States, answers: int, entries: FieldEntries) -> Counts:
    """The histograms of all that have enrolled before a period closes, whether they are heard or not.

    states: of each history at the times 0..T, shape (rows, T + 1). answers: z.
    Returns for the times 0..T how many are in each state, NULL first, shape (T + 1, z + 1).
    """
    rows, times = states.shape
    held, come = np.zeros((times, answers + 1), np.int64), np.zeros(rows, np.int64)
    by_enrolment = np.bincount(entries.enrolled * rows + entries.history, minlength=times * rows).reshape(times, rows)
    for time in range(1, times):
        come += by_enrolment[time - 1]
        held[time] = weighted_counts(states[:, time], come, answers + 1)
    return held


def _until(rate: float, entries: int, generator: np.random.Generator) -> Counts:
    """In how many periods from its enrolment on something befalls an entry that has this chance in each but the first:
    the number of those before. So many that it never happens if the rate is 0."""
    if rate == 0:
        return np.full(entries, np.iinfo(np.int32).max, np.int64)
    return generator.geometric(rate, entries)


Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class AttendedClosing:
    """One closing of a survey's plan. Of shape (entries,), but for the period.

    period: that closes.
    answering: whether an entry has enrolled before, and not left yet.
    heard: whether the server hears of its closing. late: whether it is heard only after the next period has closed.
    new: whether it is the first closing since the entry enrolled.
    missed: whether there were closings before since then, and none of them was heard, nor will be.
    known: whether this closing of the entry or one before it is heard.
    """

    period: int
    answering: Flags
    heard: Flags
    late: Flags
    new: Flags
    missed: Flags
    known: Flags

    @property
    def on_time(self) -> Flags:
        """Mask of those heard before the next period has closed."""
        return self.heard & ~self.late


def attended_closings(
    population: Population, survey: Survey, field: Field, entries: FieldEntries, generator: np.random.Generator
) -> Iterator[AttendedClosing]:
    """Draws who is heard at each closing of a survey's plan, one closing after another.

    population, survey: of the same answers and periods. entries: of the population. generator: draws everything.
    """
    at_closings = set(closings(survey.plan, 0, survey.calendar.periods))
    offline = generator.random(len(entries)) < field.offline
    known, before = np.zeros(len(entries), np.bool_), 0
    for period in range(1, survey.calendar.periods + 1):
        if field.offline and period > 1:
            drawn = generator.random(len(entries))
            offline = np.where(offline, drawn >= field.returning, drawn < field.falling_silent)
        if period not in at_closings:
            continue
        answering = entries.answer(period)
        heard = answering & ~offline & (not field.is_out(period))
        if field.reluctance:
            chances = np.array(field.reluctance)[entries.states(population, period)]
            heard &= generator.random(len(entries)) >= chances
        late = heard & (generator.random(len(entries)) < field.late) if field.late else np.zeros_like(heard)
        new = entries.enrolled >= before
        missed = ~new & ~known
        known = known | heard
        yield AttendedClosing(period, answering, heard, late, new, missed, known)
        before = period

"""The entries of a population in the field: when each enrols, and until when it answers."""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey
from changeling_statistics import Counts
from numpy.typing import NDArray

from .counters import Numbers
from .field import Field
from .population import Population, States, weighted_counts

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
        """What each reports to hold as a period closes: NULL until it has enrolled."""
        held = population.frozen[:, period][self.history].astype(np.intp)
        states: NDArray[np.intp] = np.where(self.enrolled < period, held, 0)
        return states

    def answer(self, period: int) -> NDArray[np.bool_]:
        """Which of them answer the closing of a period."""
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

"""Which entries are heard at which closing, and in which standing, in a survey in the field."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol import Survey, closings
from numpy.typing import NDArray

from .field import Field
from .field_entries import FieldEntries
from .population import Population

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
        """Who is heard before the next period has closed."""
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

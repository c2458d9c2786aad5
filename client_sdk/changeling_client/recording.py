"""Recording an answer. The survey's constraint is enforced here and nowhere else.

Mutations are counted as they are recorded, so the count is on disk before any node that holds them is answered. Once
the constraint admits no more mutations, the entry stays in the state it is in.
"""

import sqlite3
from enum import Enum

from changeling_protocol import Survey
from changeling_protocol.quantities import UnixMilliseconds

from . import changelog, entries
from .changelog import NULL
from .clock import close_ms
from .ending import has_ended
from .entries import Entry


class Recorded(Enum):
    """What became of an answer.

    COUNTED: it stands, and counts as a mutation.
    UNCHANGED: it was the entry's answer already.
    FROZEN: it does not stand, and the entry keeps the answer it had: no mutation is left, or the survey is over.
    """

    COUNTED = "counted"
    UNCHANGED = "unchanged"
    FROZEN = "frozen"


def state_of(survey: Survey, answer: str) -> int:
    """The number of an answer's state, from 1. Raises ValueError, which does not repeat what was passed."""
    try:
        return survey.answers.index(answer) + 1
    except ValueError:
        raise ValueError(f"this is no answer of the survey; its answers are {list(survey.answers)}") from None


def record(db: sqlite3.Connection, survey: Survey, entry: Entry, state: int, seen_ms: UnixMilliseconds) -> Recorded:
    """Takes the entry into a state, if the survey's constraint admits it.

    state: 0 for NULL, or the number of an answer from 1.
    seen_ms: the latest time the store has seen, the present included, in Unix milliseconds (`clock.latest_seen`).
    The change is dated then, and always after everything that was answered; so a clock that went back writes nothing
    into a node that is closed. What was recorded before the clock went back is brought back with it. Once all is
    answered nothing is kept.
    """
    if has_ended(survey, entry):
        return Recorded.FROZEN
    if state == changelog.current_state(db, entry):
        return Recorded.UNCHANGED
    entry = changelog.bring_back(db, survey, entry, seen_ms)
    stamp = changelog.first_open(survey, entry, seen_ms)
    if _frozen(survey, entry, state, stamp):
        return Recorded.FROZEN
    entry = entry.mutated(stamp)
    entries.update(db, entry)
    changelog.append(db, entry, stamp, state)
    return Recorded.COUNTED


def _frozen(survey: Survey, entry: Entry, state: int, stamp: UnixMilliseconds) -> bool:
    if stamp > close_ms(survey.calendar, survey.calendar.periods):
        return True
    if survey.closed and state == NULL:
        return True
    elapsed = 0 if entry.first_ms is None else stamp - entry.first_ms
    return not survey.constraint.admits(entry.mutations, elapsed / 1000)

"""An entry's changelog: its states in order, for as long as an open node may ask for them.

A mutation of the last millisecond of a period belongs to that period.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

from changeling_protocol import ReleasePlan, Survey

from . import entries
from .clock import close_ms
from .entries import Entry

NULL = 0
_FOREVER_MS = 2**63 - 1


def append(db: sqlite3.Connection, entry: Entry, at_ms: int, state: int) -> None:
    """The entry, already counted, goes into a state. at_ms: never before the mutation it follows."""
    db.execute(
        "INSERT INTO changelog VALUES (?, ?, ?, ?, ?)",
        (entry.survey, entry.number, entry.mutations, at_ms, state),
    )


def bring_back(db: sqlite3.Connection, survey: Survey, entry: Entry, seen_ms: int) -> Entry:
    """Moves mutations that a clock which was ahead put into the future to the present, past all that was answered.

    Their order and number stay, and none moves away from another, so the constraint holds as before.
    seen_ms: the latest time the store has seen. Returns the entry as it now is.
    """
    latest = max(seen_ms, close_ms(survey.calendar, entry.answered) + 1)
    db.execute(
        "UPDATE changelog SET at_ms = ?1 WHERE survey = ?2 AND entry = ?3 AND at_ms > ?1",
        (latest, entry.survey, entry.number),
    )
    if entry.first_ms is None or entry.first_ms <= latest:
        return entry
    entry = replace(entry, first_ms=latest)
    entries.update(db, entry)
    return entry


def current_state(db: sqlite3.Connection, entry: Entry) -> int:
    return _state_at(db, entry, _FOREVER_MS)


def state_at_close(db: sqlite3.Connection, survey: Survey, entry: Entry, period: int) -> int:
    """The state at a period's end; NULL before the first mutation."""
    return _state_at(db, entry, close_ms(survey.calendar, period))


def prune(db: sqlite3.Connection, survey: Survey, entry: Entry) -> None:
    """Forgets what no node can ask for that the entry has yet to answer."""
    needed = min(_needed_from(survey.plan, entry), default=None)
    horizon = _FOREVER_MS if needed is None else close_ms(survey.calendar, needed)
    db.execute(
        "DELETE FROM changelog WHERE survey = ?1 AND entry = ?2 AND number <"
        " (SELECT max(number) FROM changelog WHERE survey = ?1 AND entry = ?2 AND at_ms <= ?3)",
        (entry.survey, entry.number, horizon),
    )


def _state_at(db: sqlite3.Connection, entry: Entry, at_ms: int) -> int:
    row = db.execute(
        "SELECT state FROM changelog WHERE survey = ? AND entry = ? AND at_ms <= ? ORDER BY number DESC LIMIT 1",
        (entry.survey, entry.number, at_ms),
    ).fetchone()
    return NULL if row is None else int(row[0])


def _needed_from(plan: ReleasePlan, entry: Entry) -> Iterator[int]:
    """For each track of the entry, the earliest period whose closing state its next node asks for."""
    for _, track in plan.numbered(entry.group):
        number = max((entry.answered - track.first) // track.width + 1, 1)
        if number <= track.count:
            node = track.node(number)
            yield node.start if track.reports_changes else node.end

"""An entry's changelog: its states in order, kept as long as a node that is not yet answered may need them.

A mutation in the last millisecond of a period belongs to that period.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

from changeling_protocol import ReleasePlan, Survey
from changeling_protocol.quantities import NodeNumber, UnixMilliseconds

from . import entries
from .clock import close_ms
from .entries import Entry

NULL = 0
_FOREVER_MS = UnixMilliseconds(2**63 - 1)


def append(db: sqlite3.Connection, entry: Entry, at_ms: UnixMilliseconds, state: int) -> None:
    """Writes down that the entry goes into a state.

    entry: with this mutation counted. at_ms: Unix milliseconds, not before the entry's last mutation.
    """
    db.execute(
        "INSERT INTO changelog VALUES (?, ?, ?, ?, ?)",
        (entry.survey, entry.number, entry.mutations, at_ms, state),
    )


def first_open(survey: Survey, entry: Entry, now_ms: UnixMilliseconds) -> UnixMilliseconds:
    """`now_ms`, or the first millisecond after everything that the entry has answered, if that is later."""
    return UnixMilliseconds(max(now_ms, close_ms(survey.calendar, entry.answered) + 1))


def bring_back(db: sqlite3.Connection, survey: Survey, entry: Entry, seen_ms: UnixMilliseconds) -> Entry:
    """Moves mutations that lie in the future, because the clock was ahead, to the present.

    They stay after everything that was answered. Their order and number stay, and no two move apart, so the entry
    keeps to its constraint as before.
    seen_ms: the latest time the store has seen, in Unix milliseconds. Returns the entry as it now is.
    """
    latest = first_open(survey, entry, seen_ms)
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
    """The state that the entry is in; NULL before its first mutation."""
    return _state_at(db, entry, _FOREVER_MS)


def state_at_close(db: sqlite3.Connection, survey: Survey, entry: Entry, period: int) -> int:
    """The state that the entry was in when a period closed; NULL before its first mutation."""
    return _state_at(db, entry, close_ms(survey.calendar, period))


def prune(db: sqlite3.Connection, survey: Survey, entry: Entry) -> None:
    """Deletes the states that no node needs any more that the entry has still to answer."""
    needed = min(_needed_from(survey.plan, entry), default=None)
    horizon = _FOREVER_MS if needed is None else close_ms(survey.calendar, needed)
    db.execute(
        "DELETE FROM changelog WHERE survey = ?1 AND entry = ?2 AND number <"
        " (SELECT max(number) FROM changelog WHERE survey = ?1 AND entry = ?2 AND at_ms <= ?3)",
        (entry.survey, entry.number, horizon),
    )


def _state_at(db: sqlite3.Connection, entry: Entry, at_ms: UnixMilliseconds) -> int:
    row = db.execute(
        "SELECT state FROM changelog WHERE survey = ? AND entry = ? AND at_ms <= ? ORDER BY number DESC LIMIT 1",
        (entry.survey, entry.number, at_ms),
    ).fetchone()
    return NULL if row is None else int(row[0])


def _needed_from(plan: ReleasePlan, entry: Entry) -> Iterator[int]:
    """For each track of the entry, the earliest period whose closing state its next node needs."""
    for _, track in plan.numbered(entry.group):
        number = NodeNumber(max((entry.answered - track.first) // track.width + 1, 1))
        if number <= track.count:
            node = track.node(number)
            yield node.start if track.reports_changes else node.end

"""The end of a survey: once nothing of its plan is left to answer, all goes that it knew of the entry.

What waits in the outbox stays until the server has it or its grace is over; it is randomized. The survey stays, as
what it cost counts for ever, and the stratum, which is public.
"""

import sqlite3
from dataclasses import replace

from changeling_protocol import ReleasePlan, Survey

from . import entries
from .entries import Entry


def has_ended(survey: Survey, entry: Entry) -> bool:
    """Whether the entry has answered or dropped all closings of the survey's plan. It stays so, whatever clocks say."""
    return entry.answered >= last_closing(survey.plan)


def last_closing(plan: ReleasePlan) -> int:
    """The last period at which a node of any track ends."""
    return max(track.first + track.count * track.width for track in plan.tracks)


def clear(db: sqlite3.Connection, entry: Entry) -> Entry:
    """Deletes the entry's last answer, its counts and the nodes that it drew. Returns the entry as it now is."""
    for table in ("changelog", "drawn_nodes"):
        db.execute(f"DELETE FROM {table} WHERE survey = ? AND entry = ?", (entry.survey, entry.number))  # noqa: S608
    entry = replace(entry, delay_ms=0, slots=None, mutations=0, first_ms=None)
    entries.update(db, entry)
    return entry

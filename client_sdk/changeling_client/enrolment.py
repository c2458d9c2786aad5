"""Joining a survey: the bound on epsilon is checked, then each entry draws its group and its nodes, once.

Each entry draws from a secret of its own. All of it is one transaction: entries are enrolled wholly or not at all, and
never draw again.
"""

import sqlite3
from collections.abc import Sequence
from decimal import Decimal

from changeling_protocol import EntrySecret, Survey
from changeling_protocol.plan import draw_nodes
from changeling_protocol.quantities import EntryNumber, UnixSeconds
from changeling_protocol.upwards import upwards

from . import entries, surveys
from .clock import DeviceClock, see
from .entries import Entry
from .errors import EnrolmentOver, TooCostly
from .recording import record, state_of


def enrol(
    db: sqlite3.Connection,
    survey: Survey,
    count: int,
    answers: Sequence[str] | None,
    max_epsilon: Decimal,
    clock: DeviceClock,
) -> None:
    """Enrols entries from the first period on that is still open; does nothing if they are enrolled already.

    count: how many entries, at least 1.
    answers: one for each of them, recorded at once; None if they have none yet.
    max_epsilon: what all surveys of the store may cost together.
    clock: the device's; it decides which periods are still open.
    Raises TooCostly, EnrolmentOver, or ValueError for another number of entries or answers than fits.
    """
    if enrolled := entries.count(db, survey.id):
        check_count(enrolled, count)
        return
    if count < 1:
        raise ValueError(f"a survey is joined with at least one entry, got {count}")
    states = _initial_states(survey, count, answers)
    with upwards():
        total = surveys.spent(db) + survey.epsilon
    if total > max_epsilon:
        raise TooCostly(f"with this survey of epsilon {survey.epsilon} the sum is {total}, above {max_epsilon}")
    closed = survey.calendar.closed(UnixSeconds(see(db, clock) / 1000))
    if closed == survey.calendar.periods:
        raise EnrolmentOver("the survey's calendar has ended")
    if survey.closed and closed:
        raise EnrolmentOver("the survey's cohort is closed since its first period ended")
    surveys.insert(db, survey)
    for number in range(count):
        entry = _draw(db, survey, EntryNumber(number), EntrySecret.fresh(closed + 1))
        if states:
            record(db, survey, entry, states[number], clock)


def check_count(enrolled: int, count: int) -> None:
    """Raises ValueError unless a survey that was joined with so many entries is joined with as many again."""
    if enrolled != count:
        raise ValueError(f"the survey was joined with {enrolled} entries, which is for good; got {count}")


def _initial_states(survey: Survey, count: int, answers: Sequence[str] | None) -> list[int]:
    if answers is None:
        if survey.closed:
            raise ValueError("a closed cohort is joined with an answer for each entry: pass `answers`")
        return []
    if isinstance(answers, str) or len(answers) != count:
        raise ValueError(f"`answers` holds one answer for each of the {count} entries")
    return [state_of(survey, answer) for answer in answers]


def _draw(db: sqlite3.Connection, survey: Survey, number: EntryNumber, secret: EntrySecret) -> Entry:
    """A new entry with the group that it draws, and the nodes that it draws on tracks where it reports only some."""
    subkeys = secret.subkeys(survey.id)
    group = survey.plan.draw_group(subkeys.group_coins())
    entry = Entry(survey.id, number, group, answered=secret.period - 1, key=secret.key)
    entries.insert(db, entry)
    for index, track in survey.plan.numbered(group):
        if track.reported is not None:
            db.executemany(
                "INSERT INTO drawn_nodes VALUES (?, ?, ?, ?)",
                [(survey.id, number, index, node) for node in draw_nodes(track, subkeys.node_coins(index))],
            )
    return entry

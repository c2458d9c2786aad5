"""Joining a survey: the bound on epsilon is checked, then each entry draws its group and its nodes, once, and gets the
stratum that the app tells.

All of it is one transaction: entries are enrolled wholly or not at all, and never draw these again.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from decimal import Decimal

from changeling_protocol import Coins, Survey
from changeling_protocol.plan import draw_nodes
from changeling_protocol.quantities import EntryNumber, StratumNumber, UnixSeconds
from changeling_protocol.strata import stratum_of
from changeling_protocol.upwards import upwards

from . import entries, surveys
from .answering import draw_delay
from .clock import DeviceClock, see
from .ending import last_closing
from .entries import Entry
from .errors import EnrolmentOver, TooCostly
from .recording import record, state_of
from .responding import Slots


def enrol(
    db: sqlite3.Connection,
    survey: Survey,
    count: int,
    answers: Sequence[str] | None,
    stratum: Mapping[str, str],
    max_epsilon: Decimal,
    clock: DeviceClock,
    coins: Coins,
) -> None:
    """Enrols entries from the first period on that is still open; does nothing if they are enrolled already.

    count: how many entries, at least 1.
    answers: one for each of them, recorded at once; None if they have none yet.
    stratum: that of all of them, a value for each of the survey's breakdowns.
    max_epsilon: what all surveys of the store may cost together.
    clock: the device's; it decides which periods are still open.
    coins: what each entry draws its group, its nodes and its first delay from.
    Raises TooCostly, EnrolmentOver, or ValueError for another number of entries or answers than fits, or
    a stratum that the survey does not declare.
    """
    if enrolled := entries.count(db, survey.id):
        check_count(enrolled, count)
        return
    if count < 1:
        raise ValueError(f"a survey is joined with at least one entry, got {count}")
    states = _initial_states(survey, count, answers)
    told = stratum_of(survey.breakdowns, stratum)
    with upwards():
        total = surveys.spent(db) + survey.epsilon
    if total > max_epsilon:
        raise TooCostly(f"with this survey of epsilon {survey.epsilon} the sum is {total}, above {max_epsilon}")
    seen_ms = see(db, clock)  # read once: a first answer must not fall behind the period that was still open
    closed = survey.calendar.closed(UnixSeconds(seen_ms / 1000))
    if closed >= last_closing(survey.plan):
        raise EnrolmentOver("the survey has ended: nothing of its plan is left to answer")
    if survey.closed and closed:
        raise EnrolmentOver("the survey's cohort is closed since its first period ended")
    surveys.insert(db, survey)
    for number in range(count):
        entry = _draw(db, survey, EntryNumber(number), closed, told, coins)
        if states:
            record(db, survey, entry, states[number], seen_ms)


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


def _draw(
    db: sqlite3.Connection, survey: Survey, number: EntryNumber, closed: int, stratum: StratumNumber, coins: Coins
) -> Entry:
    """A new entry with all that it draws: its group, its nodes on tracks where it reports only some, its first delay.

    closed: how many periods have closed. stratum: the entry's.
    """
    group = survey.plan.draw_group(coins)
    slots = Slots.unused(survey.plan.groups[group])
    entry = Entry(survey.id, number, group, closed, draw_delay(survey, coins), stratum, slots)
    entries.insert(db, entry)
    for index, track in survey.plan.numbered(group):
        if track.reported is not None:
            db.executemany(
                "INSERT INTO drawn_nodes VALUES (?, ?, ?, ?)",
                [(survey.id, number, index, node) for node in draw_nodes(track, coins)],
            )
    return entry

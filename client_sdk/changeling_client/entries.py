"""What a device keeps of an entry: its group, how far it has answered, what it remembers, and its public stratum."""

import sqlite3
from dataclasses import dataclass, replace

from changeling_protocol import Standing
from changeling_protocol.quantities import EntryNumber, StratumNumber, SurveyId, UnixMilliseconds

from .responding import Slots

_KEPT = "answered, delay_ms, stratum, used, score, mutations, first_ms, dropped, standing, stratum_changes"
"""The columns of what changes."""
_COLUMNS = f"survey, number, track_group, {_KEPT}"


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """One entry of a survey; printing it shows nothing.

    survey: the survey's id.
    number: the entry's number in the survey, from 0.
    group: the group that it drew, numbered as in the plan.
    answered: every node that ends by this period is answered or dropped.
    delay_ms: how long it waits before it answers the next closing, once the clock's skew has passed, in milliseconds.
    stratum: its stratum, which is public.
    slots: what it remembers of a joint group; None if no slot is left, or the group is not joint.
    mutations: how many it has made, as its constraint counts them.
    first_ms: when the first was, in Unix milliseconds; None if there was none.
    dropped: how many closings were past grace.
    standing: what the next closing that it answers says of those before it.
    stratum_changes: how often its stratum has changed.
    """

    survey: SurveyId
    number: EntryNumber
    group: int
    answered: int
    delay_ms: int
    stratum: StratumNumber
    slots: Slots | None = None
    mutations: int = 0
    first_ms: UnixMilliseconds | None = None
    dropped: int = 0
    standing: Standing = Standing.NEW
    stratum_changes: int = 0

    def after(self, period: int, delay_ms: int) -> "Entry":
        """The entry once `period` is answered or dropped, with the delay that it drew for the closing after it."""
        return replace(self, answered=period, delay_ms=delay_ms)

    def dropping(self, *standings: Standing) -> "Entry":
        """The entry with more closings dropped, of these standings.

        If one of them was to tell the server that the entry takes part, the next one says so.
        """
        known = all(standing is Standing.KNOWN for standing in standings)
        standing = self.standing if known else Standing.MISSED
        return replace(self, dropped=self.dropped + len(standings), standing=standing)

    def mutated(self, at_ms: UnixMilliseconds) -> "Entry":
        """The entry with one more mutation counted, at that time in Unix milliseconds."""
        first = at_ms if self.first_ms is None else self.first_ms
        return replace(self, mutations=self.mutations + 1, first_ms=first)


def insert(db: sqlite3.Connection, entry: Entry) -> None:
    """Keeps a new entry."""
    db.execute(
        f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (entry.survey, entry.number, entry.group, *_kept(entry)),
    )


def update(db: sqlite3.Connection, entry: Entry) -> None:
    """Keeps what has changed of an entry; its group never does."""
    db.execute(
        f"UPDATE entries SET ({_KEPT}) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE survey = ? AND number = ?",  # noqa: S608
        (*_kept(entry), entry.survey, entry.number),
    )


def load(db: sqlite3.Connection, survey: SurveyId, number: EntryNumber) -> Entry:
    """The entry of that number. Raises ValueError if the survey has none."""
    query = f"SELECT {_COLUMNS} FROM entries WHERE survey = ? AND number = ?"  # noqa: S608
    try:
        row = db.execute(query, (survey, number)).fetchone()
    except OverflowError:  # a number of more than 64 bits
        row = None
    if row is None:
        raise ValueError(f"entries are numbered 0 to {count(db, survey) - 1}, got {number}")
    return _entry(*row)


def load_all(db: sqlite3.Connection, survey: SurveyId) -> list[Entry]:
    """The survey's entries in order."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE survey = ? ORDER BY number",  # noqa: S608
        (survey,),
    )
    return [_entry(*row) for row in rows]


def count(db: sqlite3.Connection, survey: SurveyId) -> int:
    """How many entries the survey has; 0 if this store has not joined it."""
    (entries,) = db.execute("SELECT count(*) FROM entries WHERE survey = ?", (survey,)).fetchone()
    return int(entries)


def _kept(entry: Entry) -> tuple[int | bytes | None, ...]:
    """The values of the columns of what changes.

    A byte holds how many slots of a track are used: a group has at most 256, and when the last is used nothing is kept.
    """
    used, score = (None, None) if entry.slots is None else (bytes(entry.slots.used), entry.slots.score)
    counts = entry.mutations, entry.first_ms, entry.dropped, entry.standing, entry.stratum_changes
    return entry.answered, entry.delay_ms, entry.stratum, used, score, *counts


def _entry(
    survey: SurveyId,
    number: EntryNumber,
    group: int,
    answered: int,
    delay_ms: int,
    stratum: StratumNumber,
    used: bytes | None,
    score: int,
    mutations: int,
    first_ms: UnixMilliseconds | None,
    dropped: int,
    standing: int,
    stratum_changes: int,
) -> Entry:
    slots = None if used is None else Slots(tuple(used), score)
    counts = mutations, first_ms, dropped, Standing(standing), stratum_changes
    return Entry(survey, number, group, answered, delay_ms, stratum, slots, *counts)

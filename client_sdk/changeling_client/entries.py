"""What a device keeps of an entry: its group, its key, how far it has answered, how often it has mutated."""

import sqlite3
from dataclasses import dataclass, replace

from changeling_protocol import EntrySecret
from changeling_protocol.quantities import EntryNumber, SurveyId, UnixMilliseconds

_COLUMNS = "survey, number, track_group, answered, key, mutations, first_ms, dropped"


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """One entry of a survey; printing it shows nothing.

    survey: the survey's id.
    number: the entry's number in the survey, from 0.
    group: the group that it drew, numbered as in the plan.
    answered: every node that ends by this period is answered or dropped.
    key: that of the entry's secret at the period after `answered`.
    mutations: how many it has made, as its constraint counts them.
    first_ms: when the first was, in Unix milliseconds; None if there was none.
    dropped: how many closings were past grace.
    """

    survey: SurveyId
    number: EntryNumber
    group: int
    answered: int
    key: bytes
    mutations: int = 0
    first_ms: UnixMilliseconds | None = None
    dropped: int = 0

    @property
    def secret(self) -> EntrySecret:
        """The entry's secret at the period after `answered`."""
        return EntrySecret(self.answered + 1, self.key)

    def after(self, period: int) -> "Entry":
        """The entry once `period` is answered or dropped; its key is then the next period's."""
        return replace(self, answered=period, key=self.secret.advanced(period + 1).key)

    def dropping(self, closings: int) -> "Entry":
        """The entry with so many more closings dropped."""
        return replace(self, dropped=self.dropped + closings)

    def mutated(self, at_ms: UnixMilliseconds) -> "Entry":
        """The entry with one more mutation counted, at that time in Unix milliseconds."""
        first = at_ms if self.first_ms is None else self.first_ms
        return replace(self, mutations=self.mutations + 1, first_ms=first)


def insert(db: sqlite3.Connection, entry: Entry) -> None:
    """Keeps a new entry."""
    db.execute(
        f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            entry.survey,
            entry.number,
            entry.group,
            entry.answered,
            entry.key,
            entry.mutations,
            entry.first_ms,
            entry.dropped,
        ),
    )


def update(db: sqlite3.Connection, entry: Entry) -> None:
    """Keeps what has changed of an entry; its group never does."""
    db.execute(
        "UPDATE entries SET answered = ?, key = ?, mutations = ?, first_ms = ?, dropped = ?"
        " WHERE survey = ? AND number = ?",
        (
            entry.answered,
            entry.key,
            entry.mutations,
            entry.first_ms,
            entry.dropped,
            entry.survey,
            entry.number,
        ),
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
    return Entry(*row)


def load_all(db: sqlite3.Connection, survey: SurveyId) -> list[Entry]:
    """The survey's entries in order."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE survey = ? ORDER BY number",  # noqa: S608
        (survey,),
    )
    return [Entry(*row) for row in rows]


def count(db: sqlite3.Connection, survey: SurveyId) -> int:
    """How many entries the survey has; 0 if this store has not joined it."""
    (entries,) = db.execute("SELECT count(*) FROM entries WHERE survey = ?", (survey,)).fetchone()
    return int(entries)

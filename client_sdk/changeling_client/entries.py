"""What an entry is on the device: its group, its key, how far it has answered, how often it has mutated."""

import sqlite3
from dataclasses import dataclass, replace

from changeling_protocol import EntrySecret

_COLUMNS = "survey, number, track_group, answered, key, mutations, first_ms, dropped"


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """One entry of a survey; printing it shows nothing.

    answered: every node that ends by this period is answered or dropped. secret: at the period after it.
    mutations: how many count against the constraint. first_ms: when the first was, None before it.
    dropped: closings that were past grace.
    """

    survey: bytes
    number: int
    group: int
    answered: int
    key: bytes
    mutations: int = 0
    first_ms: int | None = None
    dropped: int = 0

    @property
    def secret(self) -> EntrySecret:
        return EntrySecret(self.answered + 1, self.key)

    def after(self, period: int) -> "Entry":
        """The entry once it is done with `period`, its key a step past it."""
        return replace(self, answered=period, key=self.secret.advanced(period + 1).key)

    def dropping(self, closings: int) -> "Entry":
        return replace(self, dropped=self.dropped + closings)

    def mutated(self, at_ms: int) -> "Entry":
        first = at_ms if self.first_ms is None else self.first_ms
        return replace(self, mutations=self.mutations + 1, first_ms=first)


def insert(db: sqlite3.Connection, entry: Entry) -> None:
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


def load(db: sqlite3.Connection, survey: bytes, number: int) -> Entry:
    """Raises ValueError where the survey has no such entry."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE survey = ? AND number = ?",  # noqa: S608
        (survey, number),
    ).fetchone()
    if row is None:
        raise ValueError(f"entries are numbered 0 to {count(db, survey) - 1}, got {number}")
    return Entry(*row)


def load_all(db: sqlite3.Connection, survey: bytes) -> list[Entry]:
    """The survey's entries in order."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE survey = ? ORDER BY number",  # noqa: S608
        (survey,),
    )
    return [Entry(*row) for row in rows]


def count(db: sqlite3.Connection, survey: bytes) -> int:
    """How many entries the survey has; 0 if this store has not joined it."""
    (entries,) = db.execute("SELECT count(*) FROM entries WHERE survey = ?", (survey,)).fetchone()
    return int(entries)

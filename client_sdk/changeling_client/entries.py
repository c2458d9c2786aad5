"""What a device keeps of an entry: its group, how far it has answered, what it remembers, and its public stratum.

What hangs on answers is one private piece, which the store may encrypt; the rest follows from the calendar, from chance
and from what the app tells in public.
"""

import sqlite3
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
from changeling_protocol import (
    EntryNumber,
    NodeNumber,
    ReleasePlan,
    Slots,
    Standing,
    StratumNumber,
    SurveyId,
    TrackNumber,
    UnixMilliseconds,
)

from . import states
from .states import Drawn, Needed, States
from .wrapping import Wrapping

MOST_PENDING = 256
"""The most answers of an entry that are kept until the survey or the time is known; then the newest takes the place of
the one before it."""
_LEAST_BYTES = 256
"""What is encrypted of an entry is filled up to so much, or the next power of two: its length tells no answer."""
_FIRST_STRATUM = StratumNumber(0)
_COLUMNS = "survey, number, answered, delay_ms, standing, stratum, stratum_changes, dropped, private"
_LOAD = f"SELECT {_COLUMNS} FROM entries WHERE survey = ? AND number = ?"  # noqa: S608


@dataclass(frozen=True, slots=True, repr=False)
class Pending:
    """An answer that was recorded before it could be judged; printing it shows nothing.

    at_ms: when, in Unix milliseconds. answer: one of the survey's, perhaps; None for no answer.
    """

    at_ms: UnixMilliseconds
    answer: str | None


class Entry(NamedTuple):
    """One entry of a survey; printing it shows nothing.

    survey: the survey's id.
    number: the entry's number in the survey, from 0.
    group: the group that it drew, numbered as in the plan; -1 until the survey is known.
    answered: every node that ends by this period is answered or dropped.
    delay_ms: how long it waits before it answers the next closing, once the clock's skew has passed, in milliseconds.
    stratum: its stratum, which is public.
    slots: what it remembers of a joint group; None if no slot is left, or the group is not joint.
    mutations: how many it has made, as its constraint counts them.
    first_s: when the first was, in whole Unix seconds, rounded down; None if there was none, or the constraint does
    not ask for it.
    states: those at the closes that are still needed.
    pending: answers that wait to be judged.
    dropped: how many closings were past grace.
    standing: what the next closing that it answers says of those before it.
    stratum_changes: how often its stratum has changed.
    """

    survey: SurveyId
    number: EntryNumber
    group: int = -1
    answered: int = 0
    delay_ms: int = 0
    stratum: StratumNumber = _FIRST_STRATUM
    slots: Slots | None = None
    mutations: int = 0
    first_s: int | None = None
    states: States = ()
    pending: tuple[Pending, ...] = ()
    dropped: int = 0
    standing: Standing = Standing.NEW
    stratum_changes: int = 0

    def __repr__(self) -> str:
        return "<an entry>"

    def needed(self, plan: ReleasePlan, drawn: Drawn) -> Needed:
        """Which closes its nodes still need. drawn: as `drawn_nodes` gives it."""
        return Needed(plan, self.group, self.answered, drawn)

    def waiting_for(self, pending: Pending) -> "Entry":
        """The entry with one more answer that waits to be judged."""
        return self._replace(pending=(*self.pending[: MOST_PENDING - 1], pending))

    def dropping(self, *standings: Standing) -> "Entry":
        """The entry with more closings dropped, of these standings.

        If one of them was to tell the server that the entry takes part, the next one says so.
        """
        known = all(standing is Standing.KNOWN for standing in standings)
        standing = self.standing if known else Standing.MISSED
        return self._replace(dropped=self.dropped + len(standings), standing=standing)

    def emptied(self) -> "Entry":
        """The entry without anything that it knew of answers, or drew."""
        return self._replace(delay_ms=0, slots=None, mutations=0, first_s=None, states=(), pending=())


def insert(db: sqlite3.Connection, wrapping: Wrapping, entry: Entry) -> None:
    """Keeps a new entry."""
    db.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(wrapping, entry))  # noqa: S608


def update(db: sqlite3.Connection, wrapping: Wrapping, entry: Entry) -> None:
    """Keeps what has changed of an entry."""
    survey, number, *kept = _row(wrapping, entry)
    db.execute(
        "UPDATE entries SET (answered, delay_ms, standing, stratum, stratum_changes, dropped, private)"
        " = (?, ?, ?, ?, ?, ?, ?) WHERE survey = ? AND number = ?",
        (*kept, survey, number),
    )


def load(db: sqlite3.Connection, wrapping: Wrapping, survey: SurveyId, number: EntryNumber) -> Entry:
    """The entry of that number. Raises ValueError if the survey has none."""
    try:
        row = db.execute(_LOAD, (survey, number)).fetchone()
    except OverflowError:  # a number of more than 64 bits
        row = None
    if row is None:
        raise ValueError(f"entries are numbered 0 to {len(numbers(db, survey)) - 1}, got {number}")
    return _entry(wrapping, row)


def load_all(db: sqlite3.Connection, wrapping: Wrapping, survey: SurveyId) -> list[Entry]:
    """The survey's entries in order."""
    query = f"SELECT {_COLUMNS} FROM entries WHERE survey = ? ORDER BY number"  # noqa: S608
    return [_entry(wrapping, row) for row in db.execute(query, (survey,))]


def numbers(db: sqlite3.Connection, survey: SurveyId) -> list[EntryNumber]:
    """The numbers of the survey's entries, rising."""
    query = "SELECT number FROM entries WHERE survey = ? ORDER BY number"
    return [EntryNumber(number) for (number,) in db.execute(query, (survey,))]


def have_answered(db: sqlite3.Connection, survey: SurveyId, period: int) -> bool:
    """Whether every entry of the survey has answered or dropped all nodes that end by a period."""
    query = "SELECT 1 FROM entries WHERE survey = ? AND answered < ? LIMIT 1"
    return db.execute(query, (survey, period)).fetchone() is None


def drawn_nodes(db: sqlite3.Connection, wrapping: Wrapping, entry: Entry) -> Drawn:
    """The nodes that an entry has still to report of tracks of which it reports only some."""
    row = db.execute("SELECT nodes FROM drawn WHERE survey = ? AND entry = ?", (entry.survey, entry.number)).fetchone()
    if row is None:
        return frozenset()
    numbers = array("L", wrapping.unwrap(row[0], _place(entry.survey, entry.number)))
    return frozenset(zip(map(TrackNumber, numbers[::2]), map(NodeNumber, numbers[1::2]), strict=True))


def keep_drawn(db: sqlite3.Connection, wrapping: Wrapping, entry: Entry, drawn: Drawn) -> None:
    """Keeps these nodes of an entry in place of those before."""
    if not drawn:
        db.execute("DELETE FROM drawn WHERE survey = ? AND entry = ?", (entry.survey, entry.number))
        return
    numbers = array("L", [number for pair in sorted(drawn) for number in pair]).tobytes()
    place = _place(entry.survey, entry.number)
    db.execute(
        "INSERT OR REPLACE INTO drawn VALUES (?, ?, ?)", (entry.survey, entry.number, wrapping.wrap(numbers, place))
    )


def _place(survey: SurveyId, number: int) -> bytes:
    return survey + number.to_bytes(8)


def _row(wrapping: Wrapping, entry: Entry) -> tuple[Any, ...]:
    used, score = (None, 0) if entry.slots is None else (bytes(entry.slots.used), entry.slots.score)
    pending = [(each.at_ms, each.answer) for each in entry.pending]
    known = [entry.group, used, score, entry.mutations, entry.first_s, states.as_row(entry.states), pending]
    public = entry.answered, entry.delay_ms, entry.standing, entry.stratum, entry.stratum_changes, entry.dropped
    piece: bytes = msgpack.packb(known)
    if wrapping.has_key:
        piece = piece.ljust(max(_LEAST_BYTES, 1 << (len(piece) - 1).bit_length()), b"\0")
    private = wrapping.wrap(piece, _place(entry.survey, entry.number))
    return entry.survey, entry.number, *public, private


def _first_in(filled_up: bytes) -> Any:
    unpacker = msgpack.Unpacker()
    unpacker.feed(filled_up)
    return unpacker.unpack()


def _entry(wrapping: Wrapping, row: Sequence[Any]) -> Entry:
    survey, number, answered, delay_ms, standing, stratum, stratum_changes, dropped, private = row
    piece = wrapping.unwrap(private, _place(survey, number))
    group, used, score, mutations, first_s, kept, pending = (
        _first_in(piece) if wrapping.has_key else msgpack.unpackb(piece)
    )
    return Entry(
        survey,
        number,
        group,
        answered,
        delay_ms,
        stratum,
        None if used is None else Slots(tuple(used), score),
        mutations,
        first_s,
        states.from_row(kept),
        tuple(Pending(at_ms, answer) for at_ms, answer in pending) if pending else (),
        dropped,
        Standing(standing),
        stratum_changes,
    )

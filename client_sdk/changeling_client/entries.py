"""The surveys that a store knows, their entries, and counts of what was dropped: the rows of these, and no more.

What hangs on answers is one private piece of each entry, which the store may encrypt; the rest follows from the
calendar, from chance and from what the app tells in public.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgpack
from changeling_protocol import (
    ID_BYTES,
    MOST_QUESTIONS,
    Coins,
    EntryNumber,
    HistoryState,
    Memory,
    NodeNumber,
    ProtocolError,
    SlotState,
    Standing,
    StratumNumber,
    Survey,
    SurveyId,
    TrackNumber,
    UnixMilliseconds,
    from_micro,
)

from .errors import StoreUnusable
from .store import StoreConnection, Wrapping, reading
from .transport import is_loopback

States = tuple[tuple[int, int], ...]
"""Pairs of a close's period and the state from that close on until the next pair's, rising by period."""
Drawn = Collection[tuple[TrackNumber, NodeNumber]]
"""Which nodes an entry reports of the tracks on which it reports only some; those not yet answered."""
Answer: TypeAlias = str | float
"""An answer as an app records it: the name of an answer, or a number."""
MOST_PENDING = 2 * MOST_QUESTIONS + 1
"""The most answers of an entry that are kept until the survey or the time is known. Of each question the first is kept,
by which a closed cohort is entered, and the newest: of so many answers three are about the same question."""
_LEAST_BYTES = 256
"""The encrypted part of an entry is padded to so much, or the next power of two: its length tells no answer."""
_BYTES_EACH = 128
"""Padding for every question beside the first."""
_SLOT_BYTES = 2
"""A track of a joint group has up to MOST_SCORE slots."""
_FIRST_STRATUM = StratumNumber(0)
_SURVEY = "id, status, entries, one_person, asked_ms, url, charge_micro, payload, stratum, reason, handed_over"
_ENTRY = "survey, number, answered, delay_ms, standing, stratum, stratum_changes, dropped, private"
_LOAD = f"SELECT {_ENTRY} FROM entries WHERE survey = ? AND number = ?"  # noqa: S608


class Status(IntEnum):
    """A survey's standing with a store. Only in the first two is anything kept of answers."""

    ASKED = 0
    """The app has asked to join; the survey itself is not known yet. Answers are kept, and judged once it is."""
    JOINED = 1
    """Its entries are enrolled, and answer."""
    ENDED = 2
    """Nothing of its plan is left to answer. It counts for ever; what it knew of answers is gone."""
    LEFT = 3
    """The app left it, or consent was withdrawn. It is never joined again."""
    REFUSED = 4
    """It may not be joined: the reason says why. The app may ask again."""
    SILENCED = 5
    """The witness saw more than the store knows. It is never joined again."""
    NOT_JOINED = 6
    """The store does not know it: there was no consent when it was asked for. With consent it can be joined."""
    MOVED = 7
    """Its entries were handed over to another store, where they go on. This one never joins it again by itself."""

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class Known(NamedTuple):
    """A survey as the store knows it; printing it shows nothing of what was signed, or of its entries.

    id, status. entries: how many the app has ever held, so that the next one has this number. one_person: whether they
    are all one person's, who pays for each.
    asked_ms: when the app asked to join, in Unix milliseconds. url: who its answers go to. charge_micro: what it counts
    against the budget. payload: the signed bytes; empty until they are known. stratum: what the app told of its
    entries' stratum, until the survey is known. reason: why it was refused. handed_over: whether a survey that was left
    was in a parcel, so that another store counts its charge too.
    """

    id: SurveyId
    status: Status = Status.ASKED
    entries: int = 0
    one_person: bool = False
    asked_ms: UnixMilliseconds = UnixMilliseconds(0)
    url: str = ""
    charge_micro: int = 0
    payload: bytes = b""
    stratum: Mapping[str, str] = MappingProxyType({})
    reason: str = ""
    handed_over: bool = False

    def __repr__(self) -> str:
        return f"<the survey {self.id.hex()}: {self.status}>"

    @property
    def survey(self) -> Survey:
        """The survey itself, of one that is joined. Raises StoreUnusable if this version cannot read it."""
        return _read(self.payload)

    @property
    def readable(self) -> Survey | None:
        """The survey; None if it is not at hand, or this version cannot read it. Then the others go on without it."""
        try:
            return self.survey if self.payload else None
        except StoreUnusable:
            return None


@lru_cache(maxsize=64)
def _read(payload: bytes) -> Survey:
    """Reads a stored survey. Its signature was verified when it was joined; its cost is computed again."""
    try:
        return Survey.from_payload(payload)
    except ProtocolError as error:
        raise StoreUnusable(f"the store holds a survey that cannot be read: {error}") from error


def survey_id(named: bytes | str) -> SurveyId:
    """A survey's 16-byte id, given as bytes or in hex. Raises ValueError."""
    try:
        id_ = bytes.fromhex(named) if isinstance(named, str) else named
    except ValueError:
        id_ = b""
    if len(id_) != ID_BYTES:
        raise ValueError(f"a survey's id is {ID_BYTES} bytes, or {2 * ID_BYTES} hex digits, got {named!r}")
    return SurveyId(id_)


def why_not(known: Known | None, id_: SurveyId) -> str:
    """A sentence that says why nothing can be told or kept of a survey whose content is not at hand."""
    if known is None:
        return f"nobody has joined the survey {id_.hex()} with this store"
    return f"the survey {id_.hex()} " + {
        Status.ASKED: "is not known yet: the next flush that reaches the server fetches it",
        Status.LEFT: "was left: all that was known of it is wiped, and it is never joined again",
        Status.REFUSED: f"was not joined: {known.reason}",
        Status.MOVED: "was handed over to another store, where it goes on",
        Status.SILENCED: "is silent for good on this device: its store was put back, copied or lost",
    }.get(known.status, "is at hand")


def _upsert(table: str, columns: str, keys: int) -> str:
    """The statement that keeps a row in place of the one with the same key, which is the first so many columns."""
    names = columns.split(", ")
    key, kept = ", ".join(names[:keys]), ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
    places = ", ".join("?" * len(names))
    return f"INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT ({key}) DO UPDATE SET {kept}"  # noqa: S608


_PUT_SURVEY, _PUT_ENTRY = _upsert("surveys", _SURVEY, 1), _upsert("entries", _ENTRY, 2)


def put_survey(db: StoreConnection, known: Known) -> None:
    """Keeps what is known of a survey in place of what was."""
    asked = known.id, known.status, known.entries, int(known.one_person), known.asked_ms, known.url
    stratum, reason, handed_over = msgpack.packb(dict(known.stratum)), known.reason, int(known.handed_over)
    db.execute(_PUT_SURVEY, (*asked, known.charge_micro, known.payload, stratum, reason, handed_over))


def find_survey(db: StoreConnection, id_: SurveyId) -> Known | None:
    """The survey with this id; None if the store has never heard of it."""
    row = db.execute(f"SELECT {_SURVEY} FROM surveys WHERE id = ?", (id_,)).fetchone()  # noqa: S608
    return None if row is None else _known(row)


def find_surveys(db: StoreConnection, *statuses: Status) -> list[Known]:
    """All surveys of these statuses, or of any if none is named, in the order of their ids."""
    rows = db.execute(f"SELECT {_SURVEY} FROM surveys ORDER BY id")  # noqa: S608
    return [known for row in rows if (known := _known(row)).status in (statuses or Status)]


def surveys_at(db: StoreConnection, url: str) -> list[Survey]:
    """The surveys whose answers go to the server of this URL. One that cannot be read is passed over."""
    known = (each for each in find_surveys(db, Status.JOINED) if each.url == url)
    return [survey for each in known if (survey := each.readable) is not None]


def follow_server(db: StoreConnection, url: str) -> None:
    """Sends everything to the app's server at this URL from now on, but for what a survey's own relay takes.

    What counted nothing when it was joined, as it was for development, goes to no other server than one on loopback.
    """
    for known in find_surveys(db, Status.ASKED, Status.JOINED, Status.ENDED):
        survey = known.readable
        if survey is None and known.status is not Status.ASKED:
            continue
        to = survey.relay.rstrip("/") if survey is not None and survey.relay else url
        counts = known.charge_micro > 0 or known.status is Status.ASKED
        if to != known.url and (counts or is_loopback(to)):
            put_survey(db, known._replace(url=to))


def spent(db: StoreConnection) -> Decimal:
    """The sum that the surveys of the store count; one that has ended, or was left, still counts."""
    (total,) = db.execute("SELECT coalesce(sum(charge_micro), 0) FROM surveys").fetchone()
    return from_micro(int(total))


@reading
def _known(row: Sequence[Any]) -> Known:
    id_, status, entries, one_person, asked_ms, url, charge, payload, stratum, reason, handed_over = row
    told, paid, moved = msgpack.unpackb(stratum), bool(one_person), bool(handed_over)
    return Known(id_, Status(status), entries, paid, asked_ms, url, charge, payload, told, reason, moved)


class Pending(NamedTuple):
    """An answer that was recorded before it could be judged; printing it shows nothing.

    at_ms: when, in Unix milliseconds. answer: one of the survey's, perhaps; None for no answer. question: the name of
    the one that it answers; empty for the only one.
    """

    at_ms: UnixMilliseconds
    answer: Answer | None
    question: str = ""

    def __repr__(self) -> str:
        return "<a pending answer>"


class Held(NamedTuple):
    """An entry's memory of its answer to one question.

    mutations: how many it has made, as the question's constraint counts them.
    first_s: when the first was, in whole Unix seconds, rounded down; None if there was none, or the constraint does
    not ask for it.
    states: those at the closes that are still needed.
    """

    mutations: int = 0
    first_s: int | None = None
    states: States = ()


class Entry(NamedTuple):
    """One entry of a survey; printing it shows nothing.

    survey: the survey's id.
    number: the entry's number in the survey, from 0.
    group: the group that it drew, numbered as in the plan; -1 until the survey is known.
    answered: every node that ends by this period is answered or dropped.
    delay_ms: how long it waits before it answers the next closing, once the clock's skew has passed, in milliseconds.
    stratum: its stratum, which is public.
    slots: what it remembers of a joint group; None if no report depends on it, or the group is not joint.
    held: what it remembers of its answer to each question, in order; of one until the survey is known.
    clipped: how many numbers that stand, or stood, lay beyond the levels.
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
    slots: Memory | None = None
    held: tuple[Held, ...] = (Held(),)
    pending: tuple[Pending, ...] = ()
    dropped: int = 0
    standing: Standing = Standing.NEW
    stratum_changes: int = 0
    clipped: int = 0

    def holding(self, question: int, held: Held) -> "Entry":
        """The entry with another memory of its answer to a question, by its place."""
        return self._replace(held=(*self.held[:question], held, *self.held[question + 1 :]))

    def __repr__(self) -> str:
        return "<an entry>"

    def waiting_about(self, question: str) -> list[Pending]:
        """What waits to be judged and may be about a question: the only one may be named, or not."""
        return [each for each in self.pending if each.question == question or "" in (question, each.question)]

    def waiting_for(self, pending: Pending) -> "Entry":
        """The entry with one more answer that waits to be judged."""
        kept = list(self.pending)
        if len(kept) == MOST_PENDING:
            by_question: dict[str, list[int]] = {}
            for place, each in enumerate(kept):
                by_question.setdefault(each.question, []).append(place)
            same, most = by_question.get(pending.question, []), max(by_question.values(), key=len)
            del kept[same[-1] if len(same) > 1 else most[-2:][0]]
        return self._replace(pending=(*kept, pending))

    def dropping(self, *standings: Standing) -> "Entry":
        """The entry with more closings dropped, of these standings.

        If one of them was to tell the server that the entry takes part, the next one says so.
        """
        known = all(standing is Standing.KNOWN for standing in standings)
        standing = self.standing if known else Standing.MISSED
        return self._replace(dropped=self.dropped + len(standings), standing=standing)

    def emptied(self) -> "Entry":
        """The entry without anything that it knew of answers, or drew."""
        nothing = (Held(),) * len(self.held)
        return self._replace(slots=None, held=nothing, clipped=0, pending=(), delay_ms=0)


def draw_delay(survey: Survey, coins: Coins) -> int:
    """A random delay before an entry answers a closing, beyond the skew: up to the survey's spread, in ms."""
    return coins.below(1000 * survey.spread)


def is_awaited(db: StoreConnection) -> bool:
    """True if an invitation is open: the store then joins and answers nothing."""
    row = db.execute("SELECT 1 FROM hand_over WHERE role = ? AND parcel = ?", (TAKER, b"")).fetchone()
    return row is not None


def update(db: StoreConnection, wrapping: Wrapping, *changed: Entry) -> None:
    """Keeps entries as they are now, those that are new as well."""
    db.executemany(_PUT_ENTRY, [_row(wrapping, entry) for entry in changed])


TAKER = "taker"
"""The role of a store in a hand-over that invites another."""
_NUMBERS = range(2**31)
"""The numbers that an entry may have: databases refuse larger ones by errors of their own."""
_ALL = 0, 2**31 - 1


def is_number(number: object) -> bool:
    """True for what may be an entry's number, which no truth value is."""
    return type(number) is int and number in _NUMBERS


def load(db: StoreConnection, wrapping: Wrapping, survey: SurveyId, number: int) -> Entry:
    """The entry of that number. Raises ValueError if the survey has none, or it has left."""
    found = find(db, wrapping, survey, number)
    if found is None:
        raise ValueError(f"entry {number} has left the survey")
    return found


def find(db: StoreConnection, wrapping: Wrapping, survey: SurveyId, number: int) -> Entry | None:
    """The entry of that number; None if it has left. Raises ValueError if the survey has never had one."""
    row = db.execute(_LOAD, (survey, number)).fetchone() if is_number(number) else None
    if row is None:
        if has_left(db, survey, number):
            return None
        known = find_survey(db, survey)
        if known is None or known.status not in (Status.ASKED, Status.JOINED, Status.ENDED):
            raise ValueError(why_not(known, survey))
        if is_number(number) and number < known.entries:
            raise StoreUnusable(f"entry {number} is lost")
        raise ValueError(f"entries are numbered 0 to {known.entries - 1}, got {number!r}")
    return _entry(wrapping, row)


def load_all(db: StoreConnection, wrapping: Wrapping, survey: SurveyId, among: tuple[int, int] = _ALL) -> list[Entry]:
    """The survey's entries in order. among: the least and the greatest number that they may have."""
    query = f"SELECT {_ENTRY} FROM entries WHERE survey = ? AND number BETWEEN ? AND ? ORDER BY number"  # noqa: S608
    return [_entry(wrapping, row) for row in db.execute(query, (survey, *among))]


def numbers(db: StoreConnection, survey: SurveyId, among: tuple[int, int] = _ALL) -> list[EntryNumber]:
    """The numbers of the survey's entries, rising. among: the least and the greatest that are looked for."""
    query = "SELECT number FROM entries WHERE survey = ? AND number BETWEEN ? AND ? ORDER BY number"
    return [EntryNumber(number) for (number,) in db.execute(query, (survey, *among)).fetchall()]


def least_answered(db: StoreConnection, survey: SurveyId) -> int | None:
    """The period by which every entry of the survey has answered or dropped all nodes; None if it has no entries."""
    (period,) = db.execute("SELECT min(answered) FROM entries WHERE survey = ?", (survey,)).fetchone()
    return None if period is None else int(period)


def next_delays(db: StoreConnection, survey: SurveyId) -> list[Entry]:
    """For each period up to which entries have answered, one that answers next, without what is private of it."""
    query = "SELECT answered, min(delay_ms) FROM entries WHERE survey = ? GROUP BY answered"
    rows = db.execute(query, (survey,))
    return [Entry(survey, EntryNumber(0), answered=answered, delay_ms=delay_ms) for answered, delay_ms in rows]


def leave(db: StoreConnection, survey: SurveyId, number: EntryNumber) -> None:
    """Deletes an entry with all that hangs on it, and keeps its number.

    Of a survey that is not known, or was left, nothing is kept anyway.
    """
    if not is_number(number):
        return
    for table, column in (("closings", "entry"), ("drawn", "entry"), ("entries", "number")):
        gone = db.execute(f"DELETE FROM {table} WHERE survey = ? AND {column} = ?", (survey, number))  # noqa: S608
    if gone.rowcount:
        db.execute("INSERT INTO departed VALUES (?, ?)", (survey, number))


def has_left(db: StoreConnection, survey: SurveyId, number: int) -> bool:
    """True if the survey had an entry of that number, which left."""
    if not is_number(number):
        return False
    return db.execute("SELECT 1 FROM departed WHERE survey = ? AND number = ?", (survey, number)).fetchone() is not None


def end_survey(db: StoreConnection, known: Known, status: Status) -> None:
    """Wipes what a survey knew of answers: at once and for good, what waits to be sent as well.

    status: what it is from now on: left, or silenced. Its cost stays counted, and nothing else but its id.
    """
    delete_entries(db, known.id)
    db.execute("DELETE FROM departed WHERE survey = ?", (known.id,))
    put_survey(db, known._replace(status=status, payload=b"", stratum={}, reason=""))


def delete_entries(db: StoreConnection, survey: SurveyId) -> None:
    """Deletes the entries of a survey with all that hangs on them."""
    for table in ("closings", "drawn", "entries"):
        db.execute(f"DELETE FROM {table} WHERE survey = ?", (survey,))  # noqa: S608


def drawn_nodes(db: StoreConnection, wrapping: Wrapping, entry: Entry) -> Drawn:
    """The nodes that an entry has still to report of tracks of which it reports only some."""
    return drawn_among(db, wrapping, entry.survey, (entry.number, entry.number)).get(entry.number, frozenset())


def drawn_among(
    db: StoreConnection, wrapping: Wrapping, survey: SurveyId, among: tuple[int, int]
) -> dict[EntryNumber, Drawn]:
    """The same of all entries from one number to another that have any."""
    rows = db.execute("SELECT entry, nodes FROM drawn WHERE survey = ? AND entry BETWEEN ? AND ?", (survey, *among))
    return {number: _drawn(wrapping.unwrap(nodes, survey, number)) for number, nodes in rows}


@reading
def _drawn(packed: bytes) -> Drawn:
    numbers = array("Q", packed)
    return frozenset(zip(map(TrackNumber, numbers[::2]), map(NodeNumber, numbers[1::2]), strict=True))


def keep_drawn(db: StoreConnection, wrapping: Wrapping, entry: Entry, drawn: Drawn) -> None:
    """Keeps these nodes of an entry in place of those before."""
    place = entry.survey, entry.number
    if not drawn:
        db.execute("DELETE FROM drawn WHERE survey = ? AND entry = ?", place)
        return
    numbers = array("Q", [number for pair in sorted(drawn) for number in pair]).tobytes()
    db.execute(
        "INSERT INTO drawn VALUES (?, ?, ?) ON CONFLICT (survey, entry) DO UPDATE SET nodes = excluded.nodes",
        (*place, wrapping.wrap(numbers, *place)),
    )


def _row(wrapping: Wrapping, entry: Entry) -> tuple[Any, ...]:
    used, score = _numbers(entry.slots)
    first, *others = [[each.mutations, each.first_s, [n for pair in each.states for n in pair]] for each in entry.held]
    public = entry.answered, entry.delay_ms, entry.standing, entry.stratum, entry.stratum_changes, entry.dropped
    known = entry.group, used, score, *first, entry.pending, others, entry.clipped, wrapping.fresh()
    piece: bytes = msgpack.packb(known)
    whole = filled_up(piece, len(others)) if wrapping.has_key else piece
    private = wrapping.wrap(whole, entry.survey, entry.number)
    return entry.survey, entry.number, *public, private


@reading
def _entry(wrapping: Wrapping, row: Sequence[Any]) -> Entry:
    survey, number, answered, delay_ms, standing, stratum, stratum_changes, dropped, private = row
    unpacker = msgpack.Unpacker()
    unpacker.feed(wrapping.unwrap(private, survey, number))  # which may be padded
    group, used, score, *first, pending, others, clipped, _ = unpacker.unpack()
    return Entry(
        survey,
        number,
        group,
        answered,
        delay_ms,
        stratum,
        _memory(used, score),
        tuple([Held(changed, since, _pairs(kept)) for changed, since, kept in (first, *others)]),
        tuple(Pending(*each) for each in pending) if pending else (),
        dropped,
        Standing(standing),
        stratum_changes,
        clipped,
    )


def _pairs(states: list[int]) -> States:
    return tuple(zip(states[::2], states[1::2], strict=True)) if states else ()


def _numbers(memory: Memory | None) -> tuple[bytes | list[int] | None, int]:
    """The memory of a joint group as two fields: slots as bytes and the score, or the numbers of a history."""
    match memory:
        case None:
            return None, 0
        case SlotState(used, score):
            return b"".join(slots.to_bytes(_SLOT_BYTES) for slots in used), score
        case HistoryState(drawn, last, first, changed, true):
            return [drawn, last, first, changed], int(true)


def _memory(used: bytes | list[int] | None, score: int) -> Memory | None:
    if isinstance(used, list):
        drawn, last, first, changed = used
        return HistoryState(drawn, last, first, changed, score == 1)
    if used is None:
        return None
    places = range(0, len(used), _SLOT_BYTES)
    return SlotState(tuple([int.from_bytes(used[at : at + _SLOT_BYTES]) for at in places]), score)


def filled_up(piece: bytes, others: int = 0) -> bytes:
    """The private part of an entry, padded to a length that says little. others: how many further questions."""
    return piece.ljust(max(_LEAST_BYTES + _BYTES_EACH * others, 1 << (len(piece) - 1).bit_length()), b"\0")


class Drop(StrEnum):
    """A reason why something was not kept or not sent. It is counted by the reason; nothing of what it was is kept."""

    LATE = "late"
    """A closing past its grace: nobody would count it."""
    CLOSED = "closed"
    """A closing that the server took no more, the survey's calendar being over."""
    NO_ROOM = "no-room"
    """A closing that was among the oldest when more waited than a store keeps."""
    WRONG_ANSWER = "wrong-answer"
    """A record of something that is no answer of the survey, or of an entry that it does not have."""
    NOT_TAKING_PART = "not-taking-part"
    """A record for a survey that was left, refused or silenced, or without consent."""


def count_drop(db: StoreConnection, reason: Drop, times: int = 1) -> None:
    """Counts it so many times more."""
    if times:
        db.execute(
            "INSERT INTO drops VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET count = drops.count + excluded.count",
            (reason, times),
        )


def counted_drops(db: StoreConnection) -> Mapping[str, int]:
    """The count of each reason in this store."""
    return dict(db.execute("SELECT reason, count FROM drops ORDER BY reason"))

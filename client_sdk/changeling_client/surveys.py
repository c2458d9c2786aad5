"""The surveys that a store knows: its app has asked for them, joined them, or is done with them."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import IntEnum
from functools import lru_cache

import msgpack
from changeling_protocol import ID_BYTES, ProtocolError, Survey, SurveyId, UnixMilliseconds, from_micro

from .errors import StoreUnusable
from .route import is_loopback

_COLUMNS = "id, status, entries, one_person, asked_ms, url, charge_micro, payload, stratum, reason"


class Status(IntEnum):
    """How a survey stands with a store. Only the first two keep anything of answers."""

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

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


@dataclass(frozen=True, slots=True)
class Known:
    """A survey as the store knows it.

    id, status. entries: how many the app holds. one_person: whether they are all one person's, who pays for each.
    asked_ms: when the app asked to join, in Unix milliseconds. url: who its answers go to. charge_micro: what it counts
    against the budget. payload: the signed bytes; empty until they are known. stratum: what the app told of its
    entries' stratum, until the survey is known. reason: why it was refused.
    """

    id: SurveyId
    status: Status
    entries: int
    one_person: bool
    asked_ms: UnixMilliseconds
    url: str
    charge_micro: int = 0
    payload: bytes = field(default=b"", repr=False)
    stratum: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def survey(self) -> Survey:
        """The survey itself, of one that is joined. Raises StoreUnusable if this version cannot read it."""
        return _read(self.payload)


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
    """Why nothing can be said or kept of a survey whose content is not at hand, as a sentence."""
    if known is None:
        return f"nobody has joined the survey {id_.hex()} with this store"
    return f"the survey {id_.hex()} " + {
        Status.ASKED: "is not known yet: the next flush that reaches the server fetches it",
        Status.LEFT: "was left: all that was known of it is wiped, and it is never joined again",
        Status.REFUSED: f"was not joined: {known.reason}",
        Status.SILENCED: "is silent for good on this device: its store was put back, copied or lost",
    }.get(known.status, "is at hand")


def unknown(id_: SurveyId) -> Known:
    """A survey of which nothing is known but its id, and that nobody has asked for."""
    return Known(id_, Status.ASKED, 0, one_person=False, asked_ms=UnixMilliseconds(0), url="")


def put(db: sqlite3.Connection, known: Known) -> None:
    """Keeps what is known of a survey in place of what was."""
    values = ", ".join("?" * 10)
    kept = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[1:])
    db.execute(
        f"INSERT INTO surveys ({_COLUMNS}) VALUES ({values}) ON CONFLICT DO UPDATE SET {kept}",  # noqa: S608
        (
            known.id,
            known.status,
            known.entries,
            known.one_person,
            known.asked_ms,
            known.url,
            known.charge_micro,
            known.payload,
            msgpack.packb(dict(known.stratum)),
            known.reason,
        ),
    )


def find(db: sqlite3.Connection, id_: SurveyId) -> Known | None:
    """The survey with this id; None if the store has never heard of it."""
    row = db.execute(f"SELECT {_COLUMNS} FROM surveys WHERE id = ?", (id_,)).fetchone()  # noqa: S608
    return None if row is None else _known(row)


def find_all(db: sqlite3.Connection, *statuses: Status) -> list[Known]:
    """All surveys of these statuses, or of any if none is named, in the order of their ids."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM surveys ORDER BY id")  # noqa: S608
    return [known for row in rows if (known := _known(row)).status in (statuses or Status)]


def joined(db: sqlite3.Connection) -> set[SurveyId]:
    """The ids of the surveys that are answered."""
    return {known.id for known in find_all(db, Status.JOINED)}


def follow(db: sqlite3.Connection, url: str) -> None:
    """From now on everything goes to the app's server at this URL, but for what a survey's own relay takes.

    What counted nothing when it was joined, as it was for development, goes to no other server than one on loopback.
    """
    for known in find_all(db, Status.ASKED, Status.JOINED, Status.ENDED):
        survey = readable(known) if known.payload else None
        if survey is None and known.status is not Status.ASKED:
            continue
        to = survey.relay.rstrip("/") if survey is not None and survey.relay else url
        counts = known.charge_micro > 0 or known.status is Status.ASKED
        if to != known.url and (counts or is_loopback(to)):
            put(db, replace(known, url=to))


def answered_at(db: sqlite3.Connection, url: str) -> list[Survey]:
    """The surveys whose answers go to the server of this URL. One that cannot be read is passed over."""
    known = (each for each in find_all(db, Status.JOINED) if each.url == url)
    return [survey for each in known if (survey := readable(each)) is not None]


def spent(db: sqlite3.Connection) -> Decimal:
    """What the surveys of the store count together; one that has ended, or was left, still counts."""
    (total,) = db.execute("SELECT coalesce(sum(charge_micro), 0) FROM surveys").fetchone()
    return from_micro(total)


def readable(known: Known) -> Survey | None:
    """The survey; None if this version cannot read it. It is passed over then, so that the others go on."""
    try:
        return known.survey
    except StoreUnusable:
        return None


def _known(row: tuple[bytes, int, int, int, int, str, int, bytes, bytes, str]) -> Known:
    id_, status, entries, one_person, asked_ms, url, charge, payload, stratum, reason = row
    return Known(
        SurveyId(id_),
        Status(status),
        entries,
        bool(one_person),
        UnixMilliseconds(asked_ms),
        url,
        charge,
        payload,
        msgpack.unpackb(stratum),
        reason,
    )


@lru_cache(maxsize=64)
def _read(payload: bytes) -> Survey:
    """Its signature was verified when it was joined; its cost is computed again."""
    try:
        return Survey.from_payload(payload)
    except ProtocolError as error:
        raise StoreUnusable(f"the store holds a survey that cannot be read: {error}") from error

"""The surveys that a store has joined, and what they can cost together."""

import sqlite3
from decimal import Decimal
from functools import lru_cache

from changeling_protocol import ProtocolError, Survey
from changeling_protocol.millionths import from_micro
from changeling_protocol.quantities import SurveyId
from changeling_protocol.survey import ID_BYTES

from .errors import StoreUnusable


def survey_id(named: bytes | str) -> SurveyId:
    """A survey's 16-byte id, given as bytes or in hex. Raises ValueError."""
    try:
        id_ = bytes.fromhex(named) if isinstance(named, str) else named
    except ValueError:
        id_ = b""
    if len(id_) != ID_BYTES:
        raise ValueError(f"a survey's id is {ID_BYTES} bytes, or {2 * ID_BYTES} hex digits, got {named!r}")
    return SurveyId(id_)


def insert(db: sqlite3.Connection, survey: Survey) -> None:
    """Keeps a survey whose signature was verified. Its epsilon counts from now on."""
    db.execute("INSERT INTO surveys VALUES (?, ?, ?)", (survey.id, survey.payload, survey.epsilon_micro))


def load(db: sqlite3.Connection, id_: SurveyId) -> Survey | None:
    """The survey with this id; None if the store has not joined it. Raises StoreUnusable."""
    row = db.execute("SELECT payload FROM surveys WHERE id = ?", (id_,)).fetchone()
    return None if row is None else _read(row[0])


def load_all(db: sqlite3.Connection) -> list[Survey]:
    """All surveys of the store, in the order of their ids. Raises StoreUnusable."""
    return [_read(payload) for (payload,) in db.execute("SELECT payload FROM surveys ORDER BY id")]


def spent(db: sqlite3.Connection) -> Decimal:
    """The sum of the epsilons that the store's surveys state; one that has ended still counts."""
    (total,) = db.execute("SELECT coalesce(sum(epsilon_micro), 0) FROM surveys").fetchone()
    return from_micro(total)


@lru_cache(maxsize=64)
def _read(payload: bytes) -> Survey:
    """Its signature was verified when it was joined; its cost is computed again."""
    try:
        return Survey.from_payload(payload)
    except ProtocolError as error:
        raise StoreUnusable(f"the store holds a survey that cannot be read: {error}") from error

"""What was not kept or not sent, counted by its reason. Nothing of what it was is kept."""

import sqlite3
from collections.abc import Mapping
from enum import StrEnum


class Drop(StrEnum):
    """Why something was dropped."""

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


def count(db: sqlite3.Connection, reason: Drop, times: int = 1) -> None:
    """Counts it so many times more."""
    if times:
        db.execute("INSERT INTO drops VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + ?2", (reason, times))


def counted(db: sqlite3.Connection) -> Mapping[str, int]:
    """How often each reason was counted in this store."""
    return dict(db.execute("SELECT reason, count FROM drops ORDER BY reason"))

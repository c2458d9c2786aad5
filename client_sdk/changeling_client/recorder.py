"""Recording on a store: whatever a survey's standing, from any thread, and from signal handlers.

It is on disk when it returns. Nothing here waits for a network, and nothing steers what is sent, or when.
"""

import logging
import sqlite3
from collections.abc import Callable

from changeling_protocol import EntryNumber, Survey, SurveyId, UnixMilliseconds

from . import drops, entries, recording, surveys
from .clock import known_time
from .drops import Drop
from .entries import Entry, Pending
from .errors import ClientError
from .recording import Recorded
from .states import Drawn
from .store import Store
from .surveys import Known, Status, why_not

MOST_ANSWER_CHARACTERS = 1_000
"""The longest answer that is kept for a survey that is not known yet."""
_log = logging.getLogger("changeling")


class Recorder:
    """Records into one store. strict: whether a wrong answer raises. tell: told what cannot be raised."""

    def __init__(self, store: Store, strict: bool, tell: Callable[[ClientError], None]) -> None:
        self._store, self._strict, self._tell = store, strict, tell
        self._joined: dict[SurveyId, tuple[Survey, str]] = {}

    def record(self, id_: SurveyId, answer: str | None, number: int, at_ms: UnixMilliseconds) -> Recorded:
        """Records an entry's answer, or with None that it has none.

        at_ms: the device's time, in Unix milliseconds.
        In a signal handler that interrupts a record or a flush of its own thread it is PENDING, and on disk as soon as
        that goes on. Raises ValueError for a wrong answer or entry if it is strict; a store's errors.
        """
        if self._store.interrupts():
            self._store.afterwards(lambda: self._quietly(lambda: self._record(id_, answer, number, at_ms)))
            return Recorded.PENDING
        return self._record(id_, answer, number, at_ms)

    def _record(self, id_: SurveyId, answer: str | None, number: int, at_ms: UnixMilliseconds) -> Recorded:
        try:
            with self._store.transaction() as db:
                recorded, refused = self._keep(db, id_, answer, number, at_ms)
        except ValueError:
            if self._strict:
                raise
            with self._store.transaction() as db:
                drops.count(db, Drop.WRONG_ANSWER)
            _log.warning("survey %s: a record was dropped, as the survey has no such answer or entry", id_.hex())
            return Recorded.DROPPED
        if refused is not None:
            _log.warning("a record was dropped: %s", why_not(refused, id_))
        return recorded

    def _keep(
        self, db: sqlite3.Connection, id_: SurveyId, answer: str | None, number: int, at_ms: UnixMilliseconds
    ) -> tuple[Recorded, Known | None]:
        """What became of it, and the survey where that was refused: it is told once the transaction is over."""
        known = self._joined.get(id_)
        if known is None:
            found = surveys.find(db, id_)
            if found is None or found.status in (Status.LEFT, Status.REFUSED, Status.SILENCED):
                drops.count(db, Drop.NOT_TAKING_PART)
                return Recorded.DROPPED, found if found is not None and found.status is Status.REFUSED else None
            if found.status in (Status.JOINED, Status.ENDED):
                known = self._joined[id_] = found.survey, found.url
        try:
            before = entries.load(db, self._store.wrapping, id_, EntryNumber(number))
        except ValueError:
            if known is not None and (now := surveys.find(db, id_)) is not None and now.status >= Status.LEFT:
                drops.count(db, Drop.NOT_TAKING_PART)
                return Recorded.DROPPED, None
            raise
        if known is None:
            entry, recorded = _kept_for_later(before, answer, at_ms)
        else:
            survey, url = known
            drawn = self._drawn(db, survey, before)
            stamp_ms = known_time(db, url).stamp(at_ms)
            entry = recording.bring_back(survey, before, drawn, stamp_ms)
            entry, recorded = recording.record(survey, entry, drawn, Pending(stamp_ms, answer), time_known=False)
        if entry is not before:
            entries.update(db, self._store.wrapping, entry)
        return recorded, None

    def _drawn(self, db: sqlite3.Connection, survey: Survey, entry: Entry) -> Drawn:
        if all(track.reported is None for track in survey.plan.groups[entry.group].tracks):
            return frozenset()
        return entries.drawn_nodes(db, self._store.wrapping, entry)

    def _quietly(self, act: Callable[[], object]) -> None:
        try:
            act()
        except ClientError as error:
            self._tell(error)
        except ValueError:
            _log.warning("a record in a signal handler was dropped: the survey has no such answer or entry")


def _kept_for_later(entry: Entry, answer: str | None, at_ms: UnixMilliseconds) -> tuple[Entry, Recorded]:
    """Keeps an answer for a survey that is not known yet."""
    if answer is not None and (not isinstance(answer, str) or len(answer) > MOST_ANSWER_CHARACTERS):
        raise ValueError("an answer is a text of the survey's")
    if (entry.pending[-1].answer if entry.pending else None) == answer:
        return entry, Recorded.UNCHANGED
    return entry.waiting_for(Pending(at_ms, None if answer is None else str(answer))), Recorded.PENDING

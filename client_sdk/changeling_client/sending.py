"""Sending what waits, and noting what the server said of it.

What is sent stays in the outbox until the server acknowledges it or its grace is over. Nothing of a survey that is left
meanwhile is sent any more.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager

from changeling_protocol import Refusal, SurveyId, UnixMilliseconds, seal

from . import drops, entries, outbox, packing, surveys
from .clock import close_ms
from .dropping import without
from .drops import Drop
from .errors import ServerTrouble
from .exchange import Deadline
from .obstacles import Obstacle
from .outbox import Upload
from .servers import Line
from .store import Store

MOST_AT_ONCE = 64
"""How many entries' uploads are packed in one transaction."""
_STALE_KEY = frozenset({Refusal.UNKNOWN_KEY, Refusal.EXPIRED_KEY})


class Sender:
    """Sends what waits in a store.

    sending: held while anything is sent, so that whoever leaves a survey can tell when nothing of it is under way any
    more.
    """

    def __init__(self, store: Store, sending: AbstractContextManager[object]) -> None:
        self._store, self._sending = store, sending
        self.sent = 0
        """How many closings were acknowledged."""
        self.dropped = 0
        """How many closings the server takes no more."""
        self.trouble: str | None = None
        """The first trouble that there was, in words."""

    def send(self, line: Line, deadline: Deadline) -> None:
        """Sends all that goes to one server. Trouble with it is noted, never raised; raises a store's errors.

        deadline: when the network has had its time.
        """
        try:
            for body in packing.bodies(self._uploads(line)):
                self._send_all(line, body, deadline)
        except ServerTrouble as error:
            self.trouble = self.trouble or str(error)

    def _uploads(self, line: Line) -> list[Upload]:
        """All that waits, packed for some entries in each transaction, as a record may have to wait for one."""
        wrapping, uploads = self._store.wrapping, []
        with self._store.transaction() as db:
            waiting = [
                (survey, entries.load_all(db, wrapping, survey.id)) for survey in surveys.answered_at(db, line.url)
            ]
        for survey, kept in waiting:
            for first in range(0, len(kept), MOST_AT_ONCE):
                with self._store.transaction() as db:
                    uploads += outbox.uploads(db, wrapping, survey, kept[first : first + MOST_AT_ONCE])
        return uploads

    def _send_all(self, line: Line, body: Sequence[Upload], deadline: Deadline) -> None:
        """Sends these uploads, in fewer at a time if the server, or a proxy before it, takes no body of that size."""
        try:
            self._send(line, body, deadline)
        except ServerTrouble as error:
            if error.obstacle is not Obstacle.TOO_LARGE or len(body) == 1:
                raise
            half = len(body) // 2
            self._send_all(line, body[:half], deadline)
            self._send_all(line, body[half:], deadline)

    def _send(self, line: Line, body: Sequence[Upload], deadline: Deadline) -> None:
        """Sends one request, and notes what the server said of each upload in it."""
        key = line.keys.newest(line.delayed_ms(), deadline)
        with self._sending:
            with self._store.transaction() as db:
                joined = surveys.joined(db)
            body = [upload for upload in body if upload.survey in joined]
            if not body:
                return
            refused = line.server.upload([seal(upload.plaintext, upload.survey, key) for upload in body], deadline)
        now_ms = line.delayed_ms()
        with self._store.transaction() as db:
            joined = surveys.joined(db)
            for index, upload in enumerate(body):
                if upload.survey not in joined:
                    continue
                if index not in refused:
                    self.sent += outbox.acknowledge(db, upload.survey, upload.entry, upload.periods)
                elif refused[index] == Refusal.CLOSED and _calendar_is_over(db, upload.survey, now_ms):
                    entry = entries.load(db, self._store.wrapping, upload.survey, upload.entry)
                    after = without(db, entry, upload.periods)
                    entries.update(db, self._store.wrapping, after)
                    drops.count(db, Drop.CLOSED, after.dropped - entry.dropped)
                    self.dropped += after.dropped - entry.dropped
        reasons = set(refused.values())
        if reasons & _STALE_KEY:
            line.keys.forget()
        self.trouble = self.trouble or _told(reasons)


def _calendar_is_over(db: sqlite3.Connection, survey: SurveyId, now_ms: UnixMilliseconds) -> bool:
    """Whether the survey's calendar has ended. A server says "closed" also of one that has not begun, to a clock that
    is ahead."""
    known = surveys.find(db, survey)
    if known is None or (joined := surveys.readable(known)) is None:
        return True
    return now_ms > close_ms(joined.calendar, joined.calendar.periods)


def _told(reasons: set[str]) -> str | None:
    """The trouble in these reasons; one that we do not know is not repeated. None if there are no reasons."""
    if not reasons:
        return None
    known = {reason if reason in set(Refusal) else "a reason this version does not know" for reason in reasons}
    return f"the server refused uploads: {', '.join(sorted(known))}"

"""One flush: what is due is answered, then what waits is sent.

Answers are on disk before anything is sent. What is sent stays in the outbox until the server acknowledges it or its
grace is over, whatever happens on the way. A single wrong reading of the clock does no lasting harm: before anything is
dropped as too late, or several closings are answered at once, the server is asked for the time. As long as it cannot be
asked, nothing is dropped.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from changeling_protocol import Coins, seal
from changeling_protocol.quantities import SurveyId, UnixMilliseconds
from changeling_protocol.refusal import Refusal

from . import changelog, entries, outbox, packing, surveys
from .answering import answer_due, hangs_on_time, past_grace
from .clock import DeviceClock, close_ms, keep_heard, last_seen, see
from .delivery import Server
from .entries import Entry
from .errors import ServerTrouble
from .exchange import Deadline
from .packing import Upload
from .sealing_keys import SealingKeys
from .store import Store

_STALE_KEY = frozenset({Refusal.UNKNOWN_KEY, Refusal.EXPIRED_KEY})


@dataclass(frozen=True, slots=True)
class Flushed:
    """What a flush did, counted in closings. A closing is one entry's answer to the close of one period.

    sent: how many the server acknowledged.
    waiting: how many are kept for the next flush.
    dropped: how many came too late, past their grace or after the survey's end.
    trouble: what went wrong with the server, in words; None if nothing did.
    """

    sent: int
    waiting: int
    dropped: int
    trouble: str | None


class Flusher:
    """Flushes one store to one server."""

    def __init__(self, store: Store, server: Server, keys: SealingKeys, clock: DeviceClock) -> None:
        self._store, self._server, self._keys, self._clock = store, server, keys, clock

    def flush(self, coins: Coins, deadline: Deadline) -> Flushed:
        """Answers and sends; trouble with the server is returned, never raised.

        coins: where the chances of what is answered come from.
        deadline: of all exchanges with the server together.
        Raises StoreBusy or StoreUnusable.
        """
        self._clock.forget_heard()
        doubtful = self._doubts_the_time()
        trouble = self._ask_the_time(deadline) if doubtful else None
        uploads, dropped, answered = self._answer(coins, may_drop=doubtful and self._server.told_time)
        self._store.erase_past(answered)  # the network may take its time
        lost, sent = dropped, 0
        try:
            for body in packing.bodies(uploads):
                acknowledged, refused, told = self._send(body, deadline)
                sent += acknowledged
                dropped += refused
                trouble = told or trouble
        except ServerTrouble as error:
            trouble = trouble or str(error)
        with self._store.transaction() as db:
            keep_heard(db, self._clock)
            waiting = outbox.size(db)
        self._store.erase_past(sent > 0 or dropped > lost)
        return Flushed(sent, waiting, dropped, trouble)

    def _doubts_the_time(self) -> bool:
        """Whether a wrong clock would do harm now: it was ahead of the server's, was set back, or has leapt forward."""
        now_ms = self._clock.delayed_ms()
        with self._store.transaction() as db:
            return (
                self._clock.lead_ms > 0
                or last_seen(db) > now_ms
                or any(
                    hangs_on_time(db, survey, entry, now_ms)
                    for survey in surveys.load_all(db)
                    for entry in entries.load_all(db, survey.id)
                )
            )

    def _ask_the_time(self, deadline: Deadline) -> str | None:
        """Asks the server for anything, as any answer may hold a date. Returns the trouble, None if there was none."""
        try:
            self._keys.fetch(deadline)
        except ServerTrouble as error:
            return str(error)
        finally:
            with self._store.transaction() as db:
                keep_heard(db, self._clock)
        return None

    def _answer(self, coins: Coins, may_drop: bool) -> tuple[list[Upload], int, bool]:
        """Answers what is due. Returns all that waits, how many closings were past grace, whether any was new."""
        now_ms = self._clock.delayed_ms()
        uploads: list[Upload] = []
        dropped, changed = 0, False
        with self._store.transaction() as db:
            seen_ms = see(db, self._clock)
            for survey in surveys.load_all(db):
                for before in entries.load_all(db, survey.id):
                    entry = changelog.bring_back(db, survey, before, seen_ms)
                    if may_drop:
                        waiting = outbox.waiting(db, survey.id, entry.number)
                        late = [period for period in waiting if past_grace(survey, period, now_ms)]
                        entry = _dropped(db, entry, late)
                    entry = answer_due(db, survey, entry, now_ms, may_drop, coins)
                    dropped += entry.dropped - before.dropped
                    changed |= entry is not before
                    uploads += packing.uploads(db, survey, entry)
        return uploads, dropped, changed

    def _send(self, body: Sequence[Upload], deadline: Deadline) -> tuple[int, int, str | None]:
        """Sends one request. Returns how many closings were acknowledged, how many dropped, and the trouble."""
        key = self._keys.newest(self._clock.delayed_ms(), deadline)
        refused = self._server.upload([seal(upload.plaintext, upload.survey, key) for upload in body], deadline)
        now_ms = self._clock.delayed_ms()
        sent = dropped = 0
        with self._store.transaction() as db:
            for index, upload in enumerate(body):
                if index not in refused:
                    sent += outbox.remove(db, upload.survey, upload.entry, upload.periods)
                elif refused[index] == Refusal.CLOSED and _calendar_is_over(db, upload.survey, now_ms):
                    entry = entries.load(db, upload.survey, upload.entry)
                    dropped += _dropped(db, entry, upload.periods).dropped - entry.dropped
        reasons = set(refused.values())
        if reasons & _STALE_KEY:
            self._keys.forget()
        return sent, dropped, _told(reasons)


def _dropped(db: sqlite3.Connection, entry: Entry, periods: Sequence[int]) -> Entry:
    """Drops closings that wait, as far as they still do. Returns the entry as it now is."""
    if not periods:
        return entry
    standings = [each.standing for each in outbox.closings(db, entry.survey, entry.number, periods)]
    outbox.remove(db, entry.survey, entry.number, periods)
    entry = entry.dropping(*standings)
    entries.update(db, entry)
    return entry


def _calendar_is_over(db: sqlite3.Connection, survey: SurveyId, now_ms: UnixMilliseconds) -> bool:
    """Whether the survey's calendar has ended. A server says "closed" also of one that has not begun, to a clock that
    is ahead."""
    joined = surveys.load(db, survey)
    return joined is None or now_ms > close_ms(joined.calendar, joined.calendar.periods)


def _told(reasons: set[str]) -> str | None:
    """The trouble in these reasons; one that we do not know is not repeated. None if there are no reasons."""
    if not reasons:
        return None
    known = {reason if reason in set(Refusal) else "a reason this version does not know" for reason in reasons}
    return f"the server refused uploads: {', '.join(sorted(known))}"

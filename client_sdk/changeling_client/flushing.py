"""One flush: surveys that were asked for are joined, what is due is answered, then what waits is sent.

Answers are on disk, and the witness is told, before anything is sent. What is sent stays in the outbox until the server
acknowledges it or its grace is over, whatever happens on the way. A single wrong reading of the clock does no lasting
harm: before anything is dropped as too late, or several closings are answered at once, the server is asked for the
time. As long as it cannot be asked, nothing is dropped. The store is never held while the network is waited for, and
never for longer than it takes to answer what one upload spans.
"""

import sqlite3
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from threading import Lock

from changeling_protocol import Coins, Survey, seal
from changeling_protocol.quantities import EntryNumber, SurveyId, UnixMilliseconds
from changeling_protocol.refusal import Refusal

from . import drops, enrolment, entries, outbox, packing, surveys, witnessing
from .answering import answer_due, hangs_on_time, last_closing, past_grace
from .clock import close_ms, keep_time, known_time
from .drops import Drop
from .entries import Entry
from .errors import CannotJoin, ClientError, ServerTrouble, WitnessTrouble
from .exchange import Deadline
from .obstacles import Obstacle
from .outbox import Upload
from .recording import bring_back, judged
from .servers import Line, Lines
from .settings import Settings
from .store import Store
from .surveys import Known, Status
from .wrapping import Wrapping

MOST_AT_ONCE = 512
"""How many closings are answered, about, in one transaction: a record may have to wait for so long."""
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
    """Flushes one store.

    lines: to the servers that its surveys go to. sending: held while anything is sent, so that whoever leaves a survey
    can tell when nothing of it is under way any more. deadline: when the network has had its time.
    """

    def __init__(self, store: Store, lines: Lines, settings: Settings, sending: Lock, deadline: Deadline) -> None:
        self._store, self._lines, self._settings, self._sending = store, lines, settings, sending
        self._deadline = deadline
        self._sent = self._dropped = 0
        self._trouble: str | None = None

    def flush(self, coins: Coins) -> tuple[Flushed, list[ClientError]]:
        """Joins, answers and sends.

        coins: where the chances of what is drawn come from.
        Returns what it did, and what there is to tell the app: surveys that may not be joined, or are silent now.
        Trouble with a server is told in what is returned, never raised. Raises a store's errors, and ClientClosed.
        """
        with self._store.reporting.tried() as alone:
            if not alone:
                with self._store.transaction() as db:
                    return Flushed(0, outbox.size(db), 0, "another process of this app is reporting"), []
            self._sent = self._dropped = 0
            self._trouble = None
            told = self._join_asked(coins)
            try:
                for url in self._urls():
                    told += self._flush_line(self._lines.to(url), coins)
            except WitnessTrouble as error:
                self._has_trouble(str(error))
            with self._store.transaction() as db:
                waiting = outbox.size(db)
            self._store.erase_past(self._sent > 0 or self._dropped > 0)
            return Flushed(self._sent, waiting, self._dropped, self._trouble), told

    def _has_trouble(self, trouble: str | None) -> None:
        self._trouble = self._trouble or trouble

    def _join_asked(self, coins: Coins) -> list[ClientError]:
        """Joins what was asked for and could not be joined yet. Returns why surveys may not be joined."""
        with self._store.transaction() as db:
            asked = surveys.find_all(db, Status.ASKED)
        told: list[ClientError] = []
        for each in asked:
            line = self._lines.to(each.url)
            with self._store.transaction() as db:
                line.begin(db)
            try:
                signed = line.server.survey(each.id, self._deadline)
                survey = enrolment.verified(each.id, signed, self._settings.authority)
                told += self._enrol(each.id, survey, line, coins)
            except CannotJoin as error:
                with self._store.transaction() as db:
                    told += _refuse(db, each.id, error)
            except ServerTrouble as error:
                self._has_trouble(str(error))
                with self._store.transaction() as db:
                    line.keep(db)
        return told

    def _enrol(self, id_: SurveyId, survey: Survey, line: Line, coins: Coins) -> list[ClientError]:
        with self._store.transaction() as db:
            line.keep(db)
            now_ms = known_time(db, line.url).stamp(line.now_ms())
            asked = surveys.find(db, id_)
            if asked is None or asked.status is not Status.ASKED:  # it was left meanwhile
                return []
            return enrol_or_refuse(db, self._store, self._settings, asked, survey, now_ms, coins)

    def _urls(self) -> list[str]:
        with self._store.transaction() as db:
            return sorted({known.url for known in surveys.find_all(db, Status.JOINED)})

    def _flush_line(self, line: Line, coins: Coins) -> list[ClientError]:
        """Answers and sends what goes to one server."""
        with self._store.transaction() as db:
            line.begin(db)
        doubtful = self._doubts_the_time(line)
        trouble = self._ask_the_time(line) if doubtful else None
        self._has_trouble(trouble)
        heard = line.has_heard
        told, changed = self._answer(line, may_drop=doubtful and heard, time_known=heard, coins=coins)
        self._store.erase_past(changed)  # the network may take its time
        try:
            for body in packing.bodies(self._uploads(line)):
                self._send_all(line, body)
        except ServerTrouble as error:
            self._has_trouble(str(error))
        with self._store.transaction() as db:
            line.keep(db)
            if line.has_heard:
                self._judge(db, line)
            self._end_finished(db, line)
        return told

    def _doubts_the_time(self, line: Line) -> bool:
        """Whether a wrong clock would do harm now: it was ahead of the server's, was set back, or has leapt forward."""
        with self._store.transaction() as db:
            time = known_time(db, line.url)
            now_ms = time.delayed(line.now_ms())
            return (
                time.lead_ms > 0
                or time.seen_ms > now_ms
                or any(
                    hangs_on_time(survey, entry, outbox.waiting(db, survey.id, entry.number), now_ms)
                    for survey in self._surveys(db, line)
                    for entry in entries.load_all(db, self._store.wrapping, survey.id)
                )
            )

    def _ask_the_time(self, line: Line) -> str | None:
        """Asks the server for anything, as an answer holds a date. Returns the trouble, None if there was none."""
        try:
            line.keys.fetch(self._deadline)
        except ServerTrouble as error:
            return str(error)
        finally:
            with self._store.transaction() as db:
                line.keep(db)
        return None if line.has_heard else "the server told no time"

    def _answer(self, line: Line, may_drop: bool, time_known: bool, coins: Coins) -> tuple[list[ClientError], bool]:
        """Answers what is due, an upload's worth in each transaction.

        Returns what there is to tell the app, and whether anything was answered or dropped.
        """
        with self._store.transaction() as db:
            silenced = witnessing.check(db, self._settings.witness)
            keep_time(db, line.url, known_time(db, line.url).seeing(line.now_ms()))
            if time_known:
                self._judge(db, line)
            due = deque(
                (survey, entry.number)
                for survey in self._surveys(db, line)
                for entry in entries.load_all(db, self._store.wrapping, survey.id)
            )
        changed = False
        while due:
            with self._store.transaction() as db:
                drew = self._answer_some(db, line, due, may_drop, coins)
            changed |= drew > 0
            if drew:
                with self._store.transaction() as db:
                    witnessing.tell(db, self._settings.witness)
        return [] if silenced is None else [silenced], changed or self._dropped > 0

    def _answer_some(
        self, db: sqlite3.Connection, line: Line, due: deque[tuple[Survey, EntryNumber]], may_drop: bool, coins: Coins
    ) -> int:
        """Answers for the first of these entries, and takes them off, as many as one transaction may keep waiting.

        Returns how many closings were answered.
        """
        drew = 0
        joined = _joined(db)
        while due and drew < MOST_AT_ONCE:
            survey, number = due[0]
            more = False
            if survey.id in joined:
                before = entries.load(db, self._store.wrapping, survey.id, number)
                more, answered = self._answer_entry(db, line, survey, before, may_drop, coins)
                drew += answered
            if not more:
                due.popleft()
        if drew:
            witnessing.advance(db)
            self._dropped += _make_room(db, self._store.wrapping)
        return drew

    def _answer_entry(
        self, db: sqlite3.Connection, line: Line, survey: Survey, before: Entry, may_drop: bool, coins: Coins
    ) -> tuple[bool, int]:
        """Answers as much of one entry as one upload spans. Returns whether more is due, and how many it answered."""
        wrapping, time = self._store.wrapping, known_time(db, line.url)
        now_ms = time.delayed(line.now_ms())
        drawn = entries.drawn_nodes(db, wrapping, before)
        entry = bring_back(survey, before, drawn, time.stamp(line.now_ms()))
        if may_drop:
            waiting = outbox.waiting(db, survey.id, entry.number)
            entry = _without(db, entry, [*takewhile(lambda period: past_grace(survey, period, now_ms), waiting)])
        done = answer_due(survey, entry, drawn, now_ms, may_drop, coins)
        entry = done.entry
        if entry is before:
            return False, 0
        if entry.answered >= last_closing(survey):
            entry = entry.emptied()
        late = entry.dropped - before.dropped
        drops.count(db, Drop.LATE, late)
        self._dropped += late
        entries.update(db, wrapping, entry)
        if done.drawn != drawn:
            entries.keep_drawn(db, wrapping, entry, done.drawn)
        if done.answers:
            outbox.put(db, wrapping, survey, entry, done.answers)
        return done.more, len(done.answers)

    def _judge(self, db: sqlite3.Connection, line: Line) -> None:
        """Judges the answers that waited for the time, which the server has now told."""
        now_ms = known_time(db, line.url).stamp(line.now_ms())
        for survey in self._surveys(db, line):
            for entry in entries.load_all(db, self._store.wrapping, survey.id):
                if entry.pending:
                    drawn = entries.drawn_nodes(db, self._store.wrapping, entry)
                    entry = bring_back(survey, entry, drawn, now_ms)
                    after, wrong = judged(survey, entry, drawn, now_ms)
                    drops.count(db, Drop.WRONG_ANSWER, wrong)
                    entries.update(db, self._store.wrapping, after)

    def _uploads(self, line: Line) -> list[Upload]:
        with self._store.transaction() as db:
            wrapping = self._store.wrapping
            return [
                upload
                for survey in self._surveys(db, line)
                for upload in outbox.uploads(db, wrapping, survey, entries.load_all(db, wrapping, survey.id))
            ]

    def _send_all(self, line: Line, body: Sequence[Upload]) -> None:
        """Sends these uploads, in fewer at a time if the server, or a proxy before it, takes no body of that size."""
        try:
            self._send(line, body)
        except ServerTrouble as error:
            if error.obstacle is not Obstacle.TOO_LARGE or len(body) == 1:
                raise
            half = len(body) // 2
            self._send_all(line, body[:half])
            self._send_all(line, body[half:])

    def _send(self, line: Line, body: Sequence[Upload]) -> None:
        """Sends one request, and notes what the server said of each upload in it."""
        key = line.keys.newest(line.delayed_ms(), self._deadline)
        with self._sending:
            with self._store.transaction() as db:
                joined = _joined(db)
            body = [upload for upload in body if upload.survey in joined]
            if not body:
                return
            refused = line.server.upload(
                [seal(upload.plaintext, upload.survey, key) for upload in body], self._deadline
            )
        now_ms = line.delayed_ms()
        with self._store.transaction() as db:
            joined = _joined(db)
            for index, upload in enumerate(body):
                if upload.survey not in joined:
                    continue
                if index not in refused:
                    self._sent += outbox.acknowledge(db, upload.survey, upload.entry, upload.periods)
                elif refused[index] == Refusal.CLOSED and _calendar_is_over(db, upload.survey, now_ms):
                    entry = entries.load(db, self._store.wrapping, upload.survey, upload.entry)
                    after = _without(db, entry, upload.periods)
                    entries.update(db, self._store.wrapping, after)
                    drops.count(db, Drop.CLOSED, after.dropped - entry.dropped)
                    self._dropped += after.dropped - entry.dropped
        reasons = set(refused.values())
        if reasons & _STALE_KEY:
            line.keys.forget()
        self._has_trouble(_told(reasons))

    def _end_finished(self, db: sqlite3.Connection, line: Line) -> None:
        """Ends the surveys of which nothing is left to answer or to send, and forgets what was sent."""
        for known in surveys.find_all(db, Status.JOINED):
            if known.url != line.url or (survey := surveys.readable(known)) is None:
                continue
            kept, last = entries.load_all(db, self._store.wrapping, survey.id), last_closing(survey)
            if all(entry.answered >= last for entry in kept) and not outbox.waits(db, survey.id):
                outbox.forget_sent(db, survey.id)
                surveys.put(db, replace(known, status=Status.ENDED))

    def _surveys(self, db: sqlite3.Connection, line: Line) -> list[Survey]:
        """The surveys that are answered on this line. One that cannot be read is passed over: the others go on."""
        known = [each for each in surveys.find_all(db, Status.JOINED) if each.url == line.url]
        return [survey for each in known if (survey := surveys.readable(each)) is not None]


def enrol_or_refuse(
    db: sqlite3.Connection,
    store: Store,
    settings: Settings,
    asked: Known,
    survey: Survey,
    now_ms: UnixMilliseconds,
    coins: Coins,
) -> list[ClientError]:
    """Enrols the entries of a survey that was asked for, or notes why not. Returns what there is to tell."""
    db.execute("SAVEPOINT enrolling")
    try:
        most = None if settings.development else settings.max_epsilon
        enrolment.enrol(db, store.wrapping, asked, survey, most, now_ms, coins)
    except CannotJoin as error:
        db.execute("ROLLBACK TO enrolling")
        return _refuse(db, asked.id, error)
    finally:
        db.execute("RELEASE enrolling")
    return []


def _refuse(db: sqlite3.Connection, id_: SurveyId, error: CannotJoin) -> list[ClientError]:
    asked = surveys.find(db, id_)
    if asked is None or asked.status is not Status.ASKED:
        return []
    enrolment.refuse(db, asked, error)
    return [error]


def _joined(db: sqlite3.Connection) -> set[SurveyId]:
    """The surveys that are not left meanwhile."""
    return {known.id for known in surveys.find_all(db, Status.JOINED)}


def _without(db: sqlite3.Connection, entry: Entry, periods: Sequence[int]) -> Entry:
    """Takes closings of these periods out, as far as they still wait. Returns the entry as it then is."""
    standings = outbox.standings(db, entry, periods)
    if not standings:
        return entry
    outbox.remove(db, entry.survey, entry.number, periods)
    return entry.dropping(*standings)


def _make_room(db: sqlite3.Connection, wrapping: Wrapping) -> int:
    """Drops the oldest of what waits if it is too much. Returns how many closings."""
    excess = outbox.size(db) - outbox.MOST_WAITING
    if excess <= 0:
        return 0
    for survey, number, period in outbox.oldest(db, excess):
        entries.update(db, wrapping, _without(db, entries.load(db, wrapping, survey, number), [period]))
    drops.count(db, Drop.NO_ROOM, excess)
    return excess


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

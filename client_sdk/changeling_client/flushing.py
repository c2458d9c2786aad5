"""One flush: surveys that were asked for are joined, what is due is answered, then what waits is sent.

Answers are on disk, and the witness is told, before anything is sent. What is sent stays in the outbox until the server
acknowledges it or its grace is over, whatever happens on the way. A single wrong reading of the clock does no lasting
harm: before anything is dropped as too late, or several closings are answered at once, the server is asked for the
time. As long as it cannot be asked, nothing is dropped. The store is never held while the network is waited for, and
never for longer than it takes to answer what one upload spans.
"""

import sqlite3
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import takewhile

from changeling_protocol import Coins, EntryNumber, Survey

from . import drops, entries, outbox, surveys, witnessing
from .answering import answer_due, hangs_on_time, last_closing, past_grace
from .clock import keep_time, known_time
from .dropping import make_room, without
from .drops import Drop
from .entries import Entry
from .errors import ClientError, ServerTrouble, WitnessTrouble
from .exchange import Deadline
from .joining import join_asked
from .recording import bring_back, judged
from .sending import Sender
from .servers import Line, Lines
from .settings import Settings
from .store import Store
from .surveys import Status

MOST_AT_ONCE = 512
"""How many closings are answered, about, in one transaction: a record may have to wait for so long."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """What a flush did, counted in closings. A closing is one entry's answer to the close of one period.

    sent: how many the server acknowledged.
    waiting: how many are kept for the next flush.
    dropped: how many came too late, past their grace or after the survey's end.
    trouble: what went wrong with the server, or what the app was told, such as that a survey may not be joined, in
    words; None if nothing did.
    """

    sent: int
    waiting: int
    dropped: int
    trouble: str | None


class Flusher:
    """Flushes one store.

    lines: to the servers that its surveys go to. sending: as `Sender` takes it. deadline: when the network has had its
    time, of which no server takes more than its share.
    """

    def __init__(
        self,
        store: Store,
        lines: Lines,
        settings: Settings,
        sending: AbstractContextManager[object],
        deadline: Deadline,
    ) -> None:
        self._store, self._lines, self._settings = store, lines, settings
        self._deadline = deadline
        self._sender = Sender(store, sending)
        self._dropped = 0
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
            told, trouble = join_asked(self._store, self._lines, self._settings, self._deadline, coins)
            self._has_trouble(trouble)
            try:
                urls = self._urls()
                for done, url in enumerate(urls):
                    told += self._flush_line(self._lines.to(url), self._deadline.share(len(urls) - done), coins)
            except WitnessTrouble as error:
                self._has_trouble(str(error))
            with self._store.transaction() as db:
                waiting = outbox.size(db)
            sent, dropped = self._sender.sent, self._dropped + self._sender.dropped
            self._has_trouble(self._sender.trouble)
            self._store.erase_past()  # also if nothing was due: what is recorded overwrites as well
            return Flushed(sent, waiting, dropped, self._trouble), told

    def _has_trouble(self, trouble: str | None) -> None:
        self._trouble = self._trouble or trouble

    def _urls(self) -> list[str]:
        with self._store.transaction() as db:
            return sorted({known.url for known in surveys.find_all(db, Status.JOINED)})

    def _flush_line(self, line: Line, deadline: Deadline, coins: Coins) -> list[ClientError]:
        """Answers and sends what goes to one server."""
        with self._store.transaction() as db:
            line.begin(db)
        doubtful = self._doubts_the_time(line)
        trouble = self._ask_the_time(line, deadline) if doubtful else None
        self._has_trouble(trouble)
        heard = line.has_heard
        told, changed = self._answer(line, may_drop=doubtful and heard, time_known=heard, coins=coins)
        self._store.erase_past(changed)  # the network may take its time
        self._sender.send(line, deadline)
        with self._store.transaction() as db:
            line.keep(db)
            if line.has_heard and not heard:
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
                    for survey in surveys.answered_at(db, line.url)
                    for entry in entries.load_all(db, self._store.wrapping, survey.id)
                )
            )

    def _ask_the_time(self, line: Line, deadline: Deadline) -> str | None:
        """Asks the server for anything, as an answer holds a date. Returns the trouble, None if there was none."""
        try:
            line.keys.fetch(deadline)
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
            told = [witnessing.check(db, self._settings.witness)]
            keep_time(db, line.url, known_time(db, line.url).seeing(line.now_ms()))
            if time_known:
                self._judge(db, line)
            due = deque(
                (survey, number)
                for survey in surveys.answered_at(db, line.url)
                for number in entries.numbers(db, survey.id)
            )
        changed = False
        while due:
            with self._store.transaction() as db:
                drew = self._answer_some(db, line, due, may_drop, coins)
            changed |= drew > 0
            if drew:
                with self._store.transaction() as db:
                    told.append(witnessing.check(db, self._settings.witness))  # a clone may have drawn meanwhile
        return [each for each in told if each is not None], changed or self._dropped > 0

    def _answer_some(
        self, db: sqlite3.Connection, line: Line, due: deque[tuple[Survey, EntryNumber]], may_drop: bool, coins: Coins
    ) -> int:
        """Answers for the first of these entries, and takes them off, as many as one transaction may keep waiting.

        Returns how many closings were answered.
        """
        drew = 0
        joined = surveys.joined(db)
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
            self._dropped += make_room(db, self._store.wrapping)
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
            entry = without(db, entry, [*takewhile(lambda period: past_grace(survey, period, now_ms), waiting)])
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
        for survey in surveys.answered_at(db, line.url):
            for entry in entries.load_all(db, self._store.wrapping, survey.id):
                if entry.pending:
                    drawn = entries.drawn_nodes(db, self._store.wrapping, entry)
                    entry = bring_back(survey, entry, drawn, now_ms)
                    after, wrong = judged(survey, entry, drawn, now_ms, time_known=True)
                    drops.count(db, Drop.WRONG_ANSWER, wrong)
                    entries.update(db, self._store.wrapping, after)

    def _end_finished(self, db: sqlite3.Connection, line: Line) -> None:
        """Ends the surveys of which nothing is left to answer or to send, and forgets what was sent."""
        for known in surveys.find_all(db, Status.JOINED):
            if known.url != line.url or (survey := surveys.readable(known)) is None:
                continue
            if entries.have_answered(db, survey.id, last_closing(survey)) and not outbox.waits(db, survey.id):
                outbox.forget_sent(db, survey.id)
                surveys.put(db, replace(known, status=Status.ENDED))

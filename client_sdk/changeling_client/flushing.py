"""A flush: joins the surveys that were asked for, answers what is due, then sends what waits.

A node is answered once, whatever happened in it: when its last period has closed, and the clock's skew and a random
delay have passed. What is answered in one go is uploaded together, whatever the server says meanwhile. Answers are on
disk, and the witness is told, before anything is sent; what is sent stays in the outbox until the server acknowledges
it or its grace is over. The store is never held while the network is waited for, and never for longer than it takes to
answer what one upload spans.

A single wrong reading of the clock does no lasting harm: as long as no server has told the time, nothing is dropped as
too late, and no several closings are answered at once; the server is asked for the time first. They are put into the
same uploads later as they would have been then, so that a server which tells no time makes none longer.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from changeling_protocol import (
    MOST_SPANNED_PERIODS,
    Closing,
    Coins,
    EntryNumber,
    Memory,
    Report,
    Standing,
    Survey,
    SurveyId,
    UnixMilliseconds,
    UnixSeconds,
    closings,
    draw_closing_id,
    respond,
    unsent,
)

from . import entries, outbox, witness
from .enrolment import Enroller
from .entries import Drawn, Drop, Entry, Status, draw_delay
from .errors import ClientError, ServerTrouble, WitnessTrouble
from .outbox import ClosingAnswer, Sender
from .recording import at_close, bring_back, judged, passed_over, pruned
from .server import Server, Servers, close_ms, keep_time, known_time
from .settings import ClientSettings
from .store import ClientStore, StoreConnection, reading
from .transport import NetworkTime
from .witness import Witness

MOST_AT_ONCE = 512
"""How many closings are answered, about, in one transaction: a record may have to wait for so long."""
MOST_LOOKS = 4_096
"""The most looks kept of a device that hears no time; the closings of later ones are one upload."""
_LOOKS = "SELECT at_ms FROM looks WHERE url = ? ORDER BY at_ms"


class Answered(NamedTuple):
    """The result of answering an entry's due closings; printing it shows nothing.

    entry: as it now is. drawn: the nodes that it has still to report, where it does not report all.
    answers: those that fit into one upload. more: whether more closings are due now.
    """

    entry: Entry
    drawn: Drawn
    answers: tuple[ClosingAnswer, ...]
    more: bool

    def __repr__(self) -> str:
        return "<what an entry answered>"


def answer_due(
    survey: Survey,
    entry: Entry,
    drawn: Drawn,
    now_ms: UnixMilliseconds,
    by_ms: UnixMilliseconds,
    may_drop: bool,
    coins: Coins,
) -> Answered:
    """Answers the closings of an entry that are due, in order, as many as one upload spans.

    Those past grace are dropped without an answer.
    now_ms: the device's time without its lead, in Unix milliseconds.
    by_ms: this or an earlier time, and only what was due then is answered.
    may_drop: whether closings past grace may be dropped now; if not, the first of them and all after it wait.
    """
    before = entry
    answers: list[ClosingAnswer] = []
    for period in unanswered(survey, entry.answered, now_ms):
        if past_grace(survey, period, now_ms):
            if not may_drop:
                break
            slots = _drawn_unsent(survey, entry, period, coins)
            entry = entry.dropping(entry.standing)
            entry = entry._replace(slots=slots, answered=period, delay_ms=draw_delay(survey, coins))
        elif by_ms > due_ms(survey, entry, period):
            if answers and period >= answers[0].closing.period + MOST_SPANNED_PERIODS:
                return Answered(entry, drawn, tuple(answers), more=True)
            entry = passed_over(survey, entry, drawn, period, now_ms)
            answer, slots = _answer(survey, entry, drawn, period, coins)
            answers.append(answer)
            entry = entry._replace(
                slots=slots, standing=Standing.KNOWN, answered=period, delay_ms=draw_delay(survey, coins)
            )
        else:
            break
    if entry is not before:
        drawn = frozenset(
            (track, node) for track, node in drawn if survey.plan.tracks[track].node(node).end > entry.answered
        )
        for place, held in enumerate(entry.held):
            entry = entry.holding(place, held._replace(states=pruned(survey, entry, drawn, place)))
    return Answered(entry, drawn, tuple(answers), more=False)


def past_grace(survey: Survey, period: int, now_ms: UnixMilliseconds) -> bool:
    """True if it is too late to report on nodes that end with the period: the server takes no more of them."""
    return now_ms > close_ms(survey.calendar, period) + 1000 * survey.grace


def due_ms(survey: Survey, entry: Entry, period: int) -> UnixMilliseconds:
    """When the entry answers its next closing, at that period: later than this, in Unix milliseconds."""
    return UnixMilliseconds(close_ms(survey.calendar, period) + 1000 * survey.skew + entry.delay_ms)


def next_due_ms(survey: Survey, entry: Entry) -> UnixMilliseconds | None:
    """When the entry answers next, in Unix milliseconds; None if nothing of the plan is left to answer."""
    left = closings(survey.plan, entry.answered, survey.plan.last_closing)
    return due_ms(survey, entry, left[0]) if left else None


def unanswered(survey: Survey, answered: int, now_ms: UnixMilliseconds) -> list[int]:
    """The periods whose closings are still to be answered, of those that are closed by now.

    answered: the period up to which they are.
    """
    return closings(survey.plan, answered, survey.calendar.closed(UnixSeconds(now_ms / 1000)))


def hangs_on_time(survey: Survey, answered: int, waiting: int | None, now_ms: UnixMilliseconds) -> bool:
    """True if, at this time, a closing would be dropped as past grace, or several closings be answered at once.

    After a long silence that is right. If the clock has leapt, it would be a mistake that cannot be undone.
    answered: the period by which every entry has answered. waiting: the first with an answer that is not acknowledged;
    None if there is none.
    """
    due = unanswered(survey, answered, now_ms)
    first = [period for period in (waiting, *due[:1]) if period is not None]
    return len(due) > 1 or any(past_grace(survey, period, now_ms) for period in first)


def _answer(
    survey: Survey, entry: Entry, drawn: Drawn, period: int, coins: Coins
) -> tuple[ClosingAnswer, Memory | None]:
    """The entry's answer to a closing, with its reports on the nodes that end there, and what it remembers then."""
    group, slots, reports = survey.plan.groups[entry.group], _drawn_unsent(survey, entry, period - 1, coins), []
    for place, (index, track) in enumerate(survey.plan.numbered(entry.group)):
        number = track.ending_at(period)
        if number is None or (track.reported is not None and (index, number) not in drawn):
            continue
        states = entry.held[track.question].states
        old, new = at_close(states, period - track.width), at_close(states, period)
        symbol, slots = respond(group, place, track.randomizer.space.index(old, new), slots, coins)
        reports.append(Report(index, number, symbol))
    closing = Closing(period, draw_closing_id(coins), entry.standing, entry.stratum)
    return ClosingAnswer(closing, tuple(reports)), slots


def _drawn_unsent(survey: Survey, entry: Entry, until: int, coins: Coins) -> Memory | None:
    """The entry's memory once the reports are drawn that its history group owes up to a period, which nobody is sent.

    They are of closings that are dropped as too late, or that lie before the entry's enrolment.
    """
    group, memory = survey.plan.groups[entry.group], entry.slots
    for place, period in unsent(group, entry.slots, until):
        track = group.tracks[place]
        true = track.randomizer.space.index(0, at_close(entry.held[track.question].states, period))
        _, memory = respond(group, place, true, memory, coins)
    return memory


class Answerer:
    """Answers what is due of a store's entries.

    witness: sees how far the store is; None if nothing does. coins: where the chances of what is drawn come from.
    """

    def __init__(self, store: ClientStore, witness: Witness | None, coins: Coins) -> None:
        self._store, self._witness, self._coins = store, witness, coins
        self.dropped = 0
        """How many closings were dropped."""
        self._held = False
        """True if closings of any entry wait for the server's time."""
        self._looks: list[int] = []
        """When, by the device's clock, closings waited so before, rising."""
        self._pending: dict[tuple[SurveyId, EntryNumber], Survey] = {}
        """Entries with answers that wait for the server's time, each with its survey."""

    def doubts_the_time(self, server: Server) -> bool:
        """True if a wrong clock would do harm now: it was ahead of the server's, was set back, or has leapt forward."""
        with self._store.transaction() as db:
            time = known_time(db, server.url)
            now_ms = time.delayed(server.now_ms())
            return (
                time.lead_ms > 0
                or time.seen_ms > now_ms
                or any(
                    hangs_on_time(survey, answered, outbox.earliest(db, survey.id), now_ms)
                    for survey in entries.surveys_at(db, server.url)
                    if (answered := entries.least_answered(db, survey.id)) is not None
                )
            )

    def answer(self, server: Server, may_drop: bool) -> tuple[list[ClientError], bool]:
        """Answers what is due and goes to one server, an upload's worth in each transaction.

        may_drop: whether what is too late may be dropped, now that the time was asked.
        Returns what there is to tell the app, and whether anything was answered or dropped.
        """
        with self._store.transaction() as db:
            keep_time(db, server.url, known_time(db, server.url).seeing(server.now_ms()))
            due = [(each, deque(entries.numbers(db, each.id))) for each in entries.surveys_at(db, server.url)]
            self._looks = [look_ms for (look_ms,) in db.execute(_LOOKS, (server.url,))]
        told: list[ClientError | None] = []
        changed = False
        for survey, numbers in due:
            while numbers:
                with self._store.transaction() as db:
                    if entries.is_awaited(db):  # it was invited meanwhile
                        break
                    drew = self._answer_some(db, server, survey, numbers, may_drop)
                if drew:
                    changed = True
                    told.append(witness.check(self._store, self._witness))  # a clone may have drawn meanwhile
        with self._store.transaction() as db:
            self.dropped += outbox.make_room(db, self._store.wrapping)
            self._keep_look(db, server)
        return [each for each in told if each is not None], changed or self.dropped > 0

    def _keep_look(self, db: StoreConnection, server: Server) -> None:
        """Keeps when this was, if closings wait for a server's time; once it is told, no look matters any more."""
        if server.has_told_time:
            db.execute("DELETE FROM looks WHERE url = ?", (server.url,))
        elif self._held and len(self._looks) < MOST_LOOKS:
            db.execute("INSERT INTO looks VALUES (?, ?) ON CONFLICT DO NOTHING", (server.url, server.now_ms()))

    def judge(self, db: StoreConnection, server: Server) -> None:
        """Judges the answers that were seen to wait for the time, which the server has told since."""
        for (_, number), survey in self._pending.items():
            for entry in entries.load_all(db, self._store.wrapping, survey.id, (number, number)):
                drawn = entries.drawn_nodes(db, self._store.wrapping, entry)
                entries.update(db, self._store.wrapping, self._judged(db, server, survey, entry, drawn))
        self._pending = {}

    def _judged(self, db: StoreConnection, server: Server, survey: Survey, entry: Entry, drawn: Drawn) -> Entry:
        """The entry once its answers that waited for the time are judged."""
        self._store.overwrote()
        now_ms = known_time(db, server.url).stamp(server.now_ms())
        after, wrong = judged(survey, bring_back(survey, entry, drawn, now_ms), drawn, now_ms, time_known=True)
        entries.count_drop(db, Drop.WRONG_ANSWER, wrong)
        return after

    def end_finished(self, db: StoreConnection, server: Server) -> None:
        """Ends the surveys of which nothing is left to answer or to send, and forgets what was sent."""
        for known in entries.find_surveys(db, Status.JOINED):
            if known.url != server.url or (survey := known.readable) is None:
                continue
            answered = entries.least_answered(db, survey.id)
            waits = outbox.earliest(db, survey.id) is not None
            if answered is not None and answered >= survey.plan.last_closing and not waits:
                self._store.overwrote()
                outbox.forget_sent(db, survey.id)
                entries.put_survey(db, known._replace(status=Status.ENDED))

    def _answer_some(
        self, db: StoreConnection, server: Server, survey: Survey, due: deque[EntryNumber], may_drop: bool
    ) -> int:
        """Answers for the first of these entries, and takes them off, as many as one transaction may keep waiting.

        They are read and written together. Returns how many closings were answered.
        """
        wrapping, among = self._store.wrapping, (due[0], due[min(len(due), MOST_AT_ONCE) - 1])
        there = {entry.number: entry for entry in entries.load_all(db, wrapping, survey.id, among)}
        drawn = entries.drawn_among(db, wrapping, survey.id, among)
        time, now_ms = known_time(db, server.url), server.now_ms()
        stamp_ms, now_ms = time.stamp(now_ms), time.delayed(now_ms)
        looks = [min(time.delayed(UnixMilliseconds(each)), now_ms) for each in self._looks]  # the clock may have leapt
        first = outbox.earliest(db, survey.id)
        drops = may_drop and first is not None and past_grace(survey, first, now_ms)
        moment = _Moment(now_ms, stamp_ms, (*looks, now_ms) if server.has_told_time else (), may_drop, drops)
        changed: dict[EntryNumber, Entry] = {}
        answered: list[tuple[Entry, Sequence[ClosingAnswer]]] = []
        drew = late = 0
        while due and due[0] <= among[1] and drew < MOST_AT_ONCE:
            number, more = due[0], False
            if before := there.get(number):  # else it, or the survey, was left meanwhile
                if before.pending and server.has_told_time:
                    before = changed[number] = self._judged(db, server, survey, before, drawn.get(number, frozenset()))
                elif before.pending:
                    self._pending[survey.id, number] = survey
                done = self._answer_entry(db, survey, before, drawn.get(number, frozenset()), moment)
                more, drew, late = done.more, drew + len(done.answers), late + done.entry.dropped - before.dropped
                if done.entry is not before:
                    there[number] = changed[number] = done.entry
                if done.drawn != drawn.get(number, frozenset()):
                    drawn[number] = done.drawn
                    entries.keep_drawn(db, wrapping, done.entry, done.drawn)
                if done.answers:
                    answered.append((done.entry, done.answers))
            if not more:
                due.popleft()
        entries.update(db, wrapping, *changed.values())
        entries.count_drop(db, Drop.LATE, late)
        self.dropped += late
        if drew:
            outbox.put(db, wrapping, survey, answered)
            witness.advance(db)
        return drew

    def _answer_entry(
        self, db: StoreConnection, survey: Survey, before: Entry, drawn: Drawn, moment: "_Moment"
    ) -> Answered:
        """Answers as much of one entry as one upload spans. What it gives is not kept yet."""
        now_ms, entry = moment.now_ms, bring_back(survey, before, drawn, moment.stamp_ms)
        if moment.drops_waiting:
            waiting = outbox.waiting(db, survey.id, entry.number)
            late = takewhile(lambda period: past_grace(survey, period, now_ms), waiting)
            entry = outbox.drop(db, entry, late)
        done = Answered(entry, drawn, (), more=False)
        if not moment.looks and len(unanswered(survey, entry.answered, now_ms)) > 1:
            self._held = True  # the clock may have leapt, and then most of them are of the future
            return done
        for by_ms in moment.looks or (now_ms,):
            done = answer_due(survey, done.entry, done.drawn, now_ms, by_ms, moment.may_drop, self._coins)
            if done.answers:  # an upload of its own
                done = done._replace(more=done.more or by_ms < now_ms)
                break
        if done.entry is not before and done.entry.answered >= survey.plan.last_closing:
            return done._replace(entry=done.entry.emptied())
        return done


class _Moment(NamedTuple):
    """When entries are answered, in Unix milliseconds: now without the clock's lead; as a record would be stamped; and
    when closings waited for a server's time, now at last, none as long as no server has told it. may_drop: whether what
    is too late may be dropped. drops_waiting: whether any of what waits is, so that else no entry's is looked at."""

    now_ms: UnixMilliseconds
    stamp_ms: UnixMilliseconds
    looks: Sequence[UnixMilliseconds]
    may_drop: bool
    drops_waiting: bool


ANOTHER_REPORTS = "another process of this app is reporting"


@dataclass(frozen=True, slots=True)
class Flushed:
    """The result of a flush, counted in closings. A closing is one entry's answer to the close of one period.

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


class Flush:
    """One flush of a store.

    sending: as `Sender` takes it. network: the time that it may take, of which no server has more than its share.
    coins: where the chances of what is drawn come from.
    """

    def __init__(
        self,
        store: ClientStore,
        servers: Servers,
        settings: ClientSettings,
        sending: AbstractContextManager[object],
        network: NetworkTime,
        coins: Coins,
    ) -> None:
        self._store, self._servers, self._settings = store, servers, settings
        self._network, self._coins = network, coins
        self._answerer = Answerer(store, settings.witness, coins)
        self._sender = Sender(store, sending)
        self._trouble: str | None = None

    @reading
    def run(self, unbidden: bool) -> tuple[Flushed, list[ClientError]]:
        """Joins, answers and sends. unbidden: whether nobody asked for it: servers that failed are then left in peace.

        Returns what it did, and what there is to tell the app: surveys that may not be joined, or are silent now.
        Trouble with a server is told in what is returned, never raised. Raises a store's errors, and ClientClosed.
        """
        with self._store.reporting.tried() as alone:
            if not alone:
                return Flushed(0, self._waiting(), 0, ANOTHER_REPORTS), []
            self._servers.begin(unbidden)
            return self._run()

    def _run(self) -> tuple[Flushed, list[ClientError]]:
        told: list[ClientError] = []
        with self._store.transaction() as db:
            asked, awaited = entries.find_surveys(db, Status.ASKED), entries.is_awaited(db)
        if awaited:
            return Flushed(0, self._waiting(), 0, "an invitation is open: nothing is joined or answered"), []
        if asked:
            enroller = Enroller(self._store, self._settings, self._coins)
            told, trouble = enroller.join_asked(asked, self._servers, self._network)
            self._note(trouble)
        try:
            with self._store.transaction() as db:
                urls = sorted({known.url for known in entries.find_surveys(db, Status.JOINED)})
            for done, url in enumerate(urls):
                told += self._flush_server(self._servers.at(url), self._network.share(len(urls) - done))
        except WitnessTrouble as error:
            self._note(str(error))
        self._note(self._sender.trouble)
        waiting, dropped = self._waiting(), self._answerer.dropped + self._sender.dropped
        self._store.erase_past(changed=self._sender.sent + dropped > 0)
        return Flushed(self._sender.sent, waiting, dropped, self._trouble), told

    def _flush_server(self, server: Server, network: NetworkTime) -> list[ClientError]:
        """Answers and sends what goes to one server."""
        silenced = witness.check(self._store, self._settings.witness)  # while it cannot be asked, no server is
        with self._store.transaction() as db:
            server.begin(db)
        doubtful = self._answerer.doubts_the_time(server)
        if doubtful:
            self._note(self._ask_the_time(server, network))
        heard_before = server.has_told_time
        told, changed = self._answerer.answer(server, may_drop=doubtful and heard_before)
        if changed:  # else what was recorded would show in the time between two requests
            self._store.erase_past()  # the network may take its time
        self._sender.send(server, network)
        with self._store.transaction() as db:
            server.keep(db)
            if server.has_told_time and not heard_before:
                self._answerer.judge(db, server)
            self._answerer.end_finished(db, server)
        return told if silenced is None else [silenced, *told]

    def _ask_the_time(self, server: Server, network: NetworkTime) -> str | None:
        """Asks the server for the time. Returns the trouble, None if there was none."""
        try:
            server.ask_the_time(network)
        except ServerTrouble as error:
            return str(error)
        finally:
            with self._store.transaction() as db:
                server.keep(db)
        return None

    def _note(self, trouble: str | None) -> None:
        self._trouble = self._trouble or trouble

    def _waiting(self) -> int:
        with self._store.transaction() as db:
            return outbox.size(db)

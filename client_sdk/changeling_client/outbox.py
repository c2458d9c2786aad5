"""The outbox: what is answered, kept and sent until the server has acknowledged it or its grace is over.

What was answered in one go is one batch, an upload of its own, also when it is sent again: whatever a server says, it
cannot make later uploads differ. Their sizes depend on the calendar and on when the app ran, never on what is reported.
Of what was acknowledged the reports are kept for the person to see, until the survey ends; the ids are not.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgpack
from changeling_protocol import (
    HEAD_BYTES,
    SEAL_BYTES,
    Closing,
    EntryNumber,
    Node,
    Refusal,
    Report,
    Standing,
    Survey,
    SurveyId,
    UnixMilliseconds,
    encode_upload,
    seal,
    symbol_bytes,
)
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES_TAKEN

from . import entries
from .entries import Drop, Entry, Status
from .errors import ServerTrouble
from .server import Server, close_ms
from .store import ClientStore, StoreConnection, Wrapping, reading
from .transport import NetworkTime

MOST_WAITING = 65_536
"""The most closings that wait in a store; the oldest go first, being the first whose grace is over."""
MOST_SENT = 1_024
"""The most acknowledged closings of an entry whose reports a person can still see."""
MOST_AT_ONCE = 256
"""How many entries' uploads are packed in one transaction."""
_BODY_HEAD_BYTES = 32
"""Covers the map, its key and the array's head."""
_ENVELOPE_BYTES = HEAD_BYTES + SEAL_BYTES + 5
"""Bytes that sealing and the bytes' own head add to a plaintext."""
_TOO_LARGE = 413
_STALE_KEY = frozenset({Refusal.UNKNOWN_KEY, Refusal.EXPIRED_KEY})


class ClosingAnswer(NamedTuple):
    """An entry's answer at a closing: its reports on the nodes that end there. Printed, it shows nothing."""

    closing: Closing
    reports: tuple[Report, ...]

    def __repr__(self) -> str:
        return "<an answer at a closing>"


class Upload(NamedTuple):
    """One batch of an entry's closings, ready to be sealed.

    survey: the survey's id.
    entry: the entry's number.
    periods: those of the closings, rising.
    refused: how often the server has refused it.
    plaintext: what is sealed; printed, it is left out.
    """

    survey: SurveyId
    entry: EntryNumber
    periods: tuple[int, ...]
    refused: int
    plaintext: bytes

    def __repr__(self) -> str:
        return "<an upload>"


def put(
    db: StoreConnection, wrapping: Wrapping, survey: Survey, answered: Sequence[tuple[Entry, Sequence[ClosingAnswer]]]
) -> None:
    """Adds batches of answers, each with its entry; each rising, and at least one."""
    widths, rows = [symbol_bytes(track.randomizer) for track in survey.plan.tracks], []
    for entry, answers in answered:
        for answer in answers:
            closing = answer.closing
            reports = [(track, node, symbol.to_bytes(widths[track])) for track, node, symbol in answer.reports]
            where = entry.survey, entry.number, closing.period
            kept = wrapping.wrap(msgpack.packb((entry.group, reports)), *where)
            rows.append((*where, answers[0].closing.period, closing.id, closing.standing, closing.stratum, 0, kept))
    db.executemany("INSERT INTO closings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def waiting(db: StoreConnection, survey: SurveyId, entry: EntryNumber) -> list[int]:
    """The periods of an entry whose closings wait in the outbox, rising."""
    query = "SELECT period FROM closings WHERE batch > 0 AND survey = ? AND entry = ? ORDER BY period"
    return [period for (period,) in db.execute(query, (survey, entry))]


def earliest(db: StoreConnection, survey: SurveyId) -> int | None:
    """The first period of which an answer of any entry of a survey waits; None if nothing does."""
    (period,) = db.execute("SELECT min(period) FROM closings WHERE batch > 0 AND survey = ?", (survey,)).fetchone()
    return None if period is None else int(period)


def uploads(
    db: StoreConnection, wrapping: Wrapping, survey: Survey, among: tuple[EntryNumber, EntryNumber]
) -> list[Upload]:
    """Everything that waits of a survey's entries from one number to another, in their order, a batch at a time."""
    batches: dict[tuple[EntryNumber, int, int, int], list[ClosingAnswer]] = {}
    query = (
        "SELECT entry, period, batch, id, standing, stratum, refused, reports FROM closings"
        " WHERE batch > 0 AND survey = ? AND entry BETWEEN ? AND ? ORDER BY entry, period"
    )
    for number, period, batch, id_, standing, stratum, refused, kept in db.execute(query, (survey.id, *among)):
        group, reports = _kept(wrapping, kept, survey.id, number, period)
        answer = ClosingAnswer(Closing(period, id_, Standing(standing), stratum), reports)
        batches.setdefault((number, batch, refused, group), []).append(answer)
    return [
        _upload(survey, number, group, refused, answers) for (number, _, refused, group), answers in batches.items()
    ]


def sent(db: StoreConnection, wrapping: Wrapping, entry: Entry) -> list[tuple[int, bool, tuple[Report, ...]]]:
    """The periods that an entry has answered, rising: whether the server has each answer, and its reports."""
    query = "SELECT period, batch, reports FROM closings WHERE survey = ? AND entry = ? ORDER BY period"
    rows = db.execute(query, (entry.survey, entry.number))
    where = entry.survey, entry.number
    return [(period, batch == 0, _kept(wrapping, kept, *where, period)[1]) for period, batch, kept in rows]


def acknowledge(db: StoreConnection, taken: Sequence[Upload]) -> int:
    """Notes that the server has these uploads. Returns how many of their closings still waited."""
    done = db.executemany(
        "UPDATE closings SET batch = 0, id = substr(id, 1, 0)"
        " WHERE batch > 0 AND (survey, entry, period) IN (VALUES (?, ?, ?))",
        [(upload.survey, upload.entry, period) for upload in taken for period in upload.periods],
    )
    db.executemany(
        "DELETE FROM closings WHERE batch = 0 AND survey = ? AND entry = ? AND period <="
        " (SELECT period FROM closings WHERE batch = 0 AND survey = ? AND entry = ?"
        " ORDER BY period DESC LIMIT 1 OFFSET ?)",
        [(*(each.survey, each.entry) * 2, MOST_SENT) for each in taken if each.periods[-1] > MOST_SENT],
    )
    return int(done.rowcount)


def count_refusal(db: StoreConnection, upload: Upload) -> None:
    """Counts that the server refused an upload."""
    db.executemany(
        "UPDATE closings SET refused = refused + 1 WHERE survey = ? AND entry = ? AND period = ?",
        [(upload.survey, upload.entry, period) for period in upload.periods],
    )


def drop(db: StoreConnection, entry: Entry, periods: Iterable[int]) -> Entry:
    """Takes closings of these periods out that nobody would count, as far as they still wait.

    Returns the entry as it then is.
    """
    query = "DELETE FROM closings WHERE batch > 0 AND survey = ? AND entry = ? AND period = ? RETURNING standing"
    rows = [row for period in periods for row in db.execute(query, (entry.survey, entry.number, period)).fetchall()]
    return entry.dropping(*(Standing(standing) for (standing,) in rows)) if rows else entry


def make_room(db: StoreConnection, wrapping: Wrapping) -> int:
    """Drops the oldest of what waits if it is too much. Returns how many closings."""
    excess = size(db) - MOST_WAITING
    if excess <= 0:
        return 0
    query = "SELECT survey, entry, period FROM closings WHERE batch > 0 ORDER BY period LIMIT ?"
    for survey, number, period in db.execute(query, (excess,)).fetchall():
        entries.update(db, wrapping, drop(db, entries.load(db, wrapping, survey, number), [period]))
    entries.count_drop(db, Drop.NO_ROOM, excess)
    return excess


def forget_sent(db: StoreConnection, survey: SurveyId) -> None:
    """Forgets the reports of a survey that were acknowledged."""
    db.execute("DELETE FROM closings WHERE batch = 0 AND survey = ?", (survey,))


def size(db: StoreConnection) -> int:
    """The number of closings that wait, of all surveys and entries."""
    (count,) = db.execute("SELECT count(*) FROM closings WHERE batch > 0").fetchone()
    return int(count)


def _upload(survey: Survey, number: EntryNumber, group: int, refused: int, answers: Sequence[ClosingAnswer]) -> Upload:
    periods = tuple(answer.closing.period for answer in answers)
    span = Node(periods[0] - 1, periods[-1])
    reports = [report for answer in answers for report in answer.reports]
    plaintext = encode_upload(survey.plan, group, span, [answer.closing for answer in answers], reports)
    return Upload(survey.id, number, periods, refused, plaintext)


@reading
def _kept(wrapping: Wrapping, kept: bytes, survey: SurveyId, *numbers: int) -> tuple[int, tuple[Report, ...]]:
    """The group of the entry that answered, and its reports."""
    group, rows = msgpack.unpackb(wrapping.unwrap(kept, survey, *numbers))
    return group, tuple([Report(track, node, int.from_bytes(symbol)) for track, node, symbol in rows])


def bodies(waiting: Iterable[Upload], most_bytes: int = MOST_BODY_BYTES) -> Iterator[list[Upload]]:
    """Puts uploads together in order, as many in a body as one request may carry; at least one."""
    body: list[Upload] = []
    size = _BODY_HEAD_BYTES
    for upload in waiting:
        more = len(upload.plaintext) + _ENVELOPE_BYTES
        if body and (len(body) == MOST_ENVELOPES_TAKEN or size + more > most_bytes):
            yield body
            body, size = [], _BODY_HEAD_BYTES
        body.append(upload)
        size += more
    if body:
        yield body


class Sender:
    """Sends what waits in a store, and notes what the server said of it.

    Nothing of a survey that is left meanwhile is sent any more.
    sending: held while anything is sent, so that whoever leaves a survey can tell when nothing of it is under way.
    """

    def __init__(self, store: ClientStore, sending: AbstractContextManager[object]) -> None:
        self._store, self._sending = store, sending
        self.sent = 0
        """How many closings were acknowledged."""
        self.dropped = 0
        """How many closings the server takes no more."""
        self.trouble: str | None = None
        """The first trouble that there was, in words."""

    def send(self, server: Server, network: NetworkTime) -> None:
        """Sends all that goes to one server. Trouble with it is noted, never raised; raises a store's errors.

        What was refused least goes first, and of what was refused before no more is tried once a body of it is refused
        again: so nothing that is refused for ever holds up anything else.
        network: the time that it may take.
        """
        before, refused = self.sent, False
        closed: set[SurveyId] = set()
        waiting = sorted(self._uploads(server), key=lambda upload: upload.refused)
        try:
            while body := next(bodies(waiting, server.most_body_bytes), None):
                try:
                    taken, ended = self._send(server, body, network)
                except ServerTrouble as error:
                    if error.status != _TOO_LARGE or len(body) == 1:
                        raise
                    server.most_body_bytes = self._smaller(body)
                    continue
                waiting = waiting[len(body) :]
                closed |= ended
                refused |= not taken
                if not taken and body[0].refused:
                    break
            for survey in sorted(closed):
                self._learn_of_end(server, survey, network)
        except ServerTrouble as error:
            self.trouble = self.trouble or str(error)
        if refused and self.sent == before:
            server.fail()

    @staticmethod
    def _smaller(body: Sequence[Upload]) -> int:
        """The most bytes of a body, now that this one was too large for the server, or for a proxy before it."""
        return sum(len(upload.plaintext) + _ENVELOPE_BYTES for upload in body[: len(body) // 2]) + _BODY_HEAD_BYTES

    def _uploads(self, server: Server) -> list[Upload]:
        """All that waits, packed for some entries in each transaction, as a record may have to wait for one."""
        packed: list[Upload] = []
        with self._store.transaction() as db:
            waiting = [(survey, entries.numbers(db, survey.id)) for survey in entries.surveys_at(db, server.url)]
        for survey, numbers in waiting:
            for first in range(0, len(numbers), MOST_AT_ONCE):
                some = numbers[first : first + MOST_AT_ONCE]
                with self._store.transaction() as db:
                    packed += uploads(db, self._store.wrapping, survey, (some[0], some[-1]))
        return packed

    def _send(self, server: Server, body: Sequence[Upload], network: NetworkTime) -> tuple[bool, set[SurveyId]]:
        """Sends one request, and notes what the server said of each upload in it.

        Returns whether it took any, or none of them is to be sent any more, and the surveys that it says are over while
        their calendars run.
        """
        key = server.sealing_key(network)
        with self._sending:
            with self._store.transaction() as db:
                body = _still_there(db, body)
            if not body:
                return True, set()
            refused = server.upload([seal(upload.plaintext, upload.survey, key) for upload in body], network)
        now_ms = server.delayed_ms()
        closed = set()
        with self._store.transaction() as db:
            there = set(_still_there(db, body)) if refused else set()
            self.sent += acknowledge(db, [upload for index, upload in enumerate(body) if index not in refused])
            for index, upload in enumerate(body):
                if index not in refused or upload not in there:
                    continue
                if refused[index] == Refusal.CLOSED and _calendar_is_over(db, upload.survey, now_ms):
                    entry = entries.load(db, self._store.wrapping, upload.survey, upload.entry)
                    entries.update(db, self._store.wrapping, self._drop(db, entry, upload.periods))
                else:
                    count_refusal(db, upload)
                    closed |= {upload.survey} if refused[index] == Refusal.CLOSED else set()
            if len(refused) < len(body):
                server.succeed(db)
            else:
                server.waste()
        reasons = set(refused.values())
        if reasons & _STALE_KEY:
            server.forget_keys()
        self.trouble = self.trouble or _words(reasons)
        return len(refused) < len(body), closed

    def _learn_of_end(self, server: Server, id_: SurveyId, network: NetworkTime) -> None:
        """Ends a survey that the server says is over, if the authority ended it and nothing of it counts any more."""
        end = server.early_end(id_, network)
        with self._store.transaction() as db:
            known = entries.find_survey(db, id_)
            survey = None if known is None or known.status is not Status.JOINED else known.readable
            if known is None or survey is None or end is None:
                return
            if server.delayed_ms() <= close_ms(survey.calendar, end.last) + 1000 * survey.grace:
                return
            for entry in entries.load_all(db, self._store.wrapping, id_):
                after = self._drop(db, entry, waiting(db, id_, entry.number))
                entries.update(db, self._store.wrapping, after.emptied()._replace(answered=survey.calendar.periods))
                entries.keep_drawn(db, self._store.wrapping, entry, frozenset())
            forget_sent(db, id_)
            self._store.overwrote()
            entries.put_survey(db, known._replace(status=Status.ENDED))
            server.succeed(db)

    def _drop(self, db: StoreConnection, entry: Entry, periods: Iterable[int]) -> Entry:
        """Drops closings that the server takes no more. Returns the entry as it then is."""
        after = drop(db, entry, periods)
        entries.count_drop(db, Drop.CLOSED, after.dropped - entry.dropped)
        self.dropped += after.dropped - entry.dropped
        return after


def _still_there(db: StoreConnection, body: Sequence[Upload]) -> list[Upload]:
    """The uploads whose survey is not left, nor their entry."""
    there: dict[SurveyId, set[EntryNumber]] = {}
    for survey in {upload.survey for upload in body}:
        asked = [upload.entry for upload in body if upload.survey == survey]
        there[survey] = set(entries.numbers(db, survey, (min(asked), max(asked))))
    return [upload for upload in body if upload.entry in there[upload.survey]]


def _calendar_is_over(db: StoreConnection, survey: SurveyId, now_ms: UnixMilliseconds) -> bool:
    """True if the survey's calendar has ended by the device's own time.

    It is the one thing for which a report is dropped at a server's word: it says "closed" also of a survey that has not
    begun, to a clock that is ahead.
    """
    known = entries.find_survey(db, survey)
    if known is None or (joined := known.readable) is None:
        return True
    return now_ms > close_ms(joined.calendar, joined.calendar.periods)


def _words(reasons: set[str]) -> str | None:
    """The trouble in these reasons; one that we do not know is not repeated. None if there are no reasons."""
    if not reasons:
        return None
    known = {reason if reason in set(Refusal) else "a reason this version does not know" for reason in reasons}
    return f"the server refused uploads: {', '.join(sorted(known))}"

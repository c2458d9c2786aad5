"""The outbox: what is answered, kept until the server has acknowledged it or its grace is over; and what was sent.

What was answered in one go is one batch, an upload of its own, also when it is sent again: whatever a server says, it
cannot make later uploads differ. Of what was acknowledged the reports are kept for the person to see, until the survey
ends; the ids are not.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgpack
from changeling_protocol import (
    Closing,
    EntryNumber,
    Node,
    Report,
    Standing,
    Survey,
    SurveyId,
    encode_upload,
    symbol_bytes,
)

from .answering import Answer
from .entries import Entry
from .wrapping import Wrapping

MOST_WAITING = 65_536
"""The most closings that wait in a store; the oldest go first, being the first whose grace is over."""
MOST_SENT = 1_024
"""The most acknowledged closings of an entry whose reports a person can still see."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One batch of an entry's closings, ready to be sealed.

    survey: the survey's id.
    entry: the entry's number.
    periods: those of the closings, rising.
    plaintext: what is sealed.
    """

    survey: SurveyId
    entry: EntryNumber
    periods: tuple[int, ...]
    plaintext: bytes = field(repr=False)


def put(db: sqlite3.Connection, wrapping: Wrapping, survey: Survey, entry: Entry, answers: Sequence[Answer]) -> None:
    """Adds a batch of an entry's answers, rising; at least one."""
    batch, tracks = answers[0].closing.period, survey.plan.tracks
    rows = []
    for answer in answers:
        closing = answer.closing
        reports = [
            (each.track, each.node, each.symbol.to_bytes(symbol_bytes(tracks[each.track].randomizer)))
            for each in answer.reports
        ]
        kept = wrapping.wrap(msgpack.packb(reports), _place(entry, closing.period))
        stated = closing.id, closing.standing, closing.stratum
        rows.append((entry.survey, entry.number, closing.period, batch, *stated, kept))
    db.executemany("INSERT INTO closings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def waiting(db: sqlite3.Connection, survey: SurveyId, entry: EntryNumber) -> list[int]:
    """The periods of an entry whose closings wait in the outbox, rising."""
    query = "SELECT period FROM closings WHERE batch > 0 AND survey = ? AND entry = ? ORDER BY period"
    return [period for (period,) in db.execute(query, (survey, entry))]


def waits(db: sqlite3.Connection, survey: SurveyId) -> bool:
    """Whether any closing of a survey's entries waits."""
    (found,) = db.execute("SELECT EXISTS (SELECT 1 FROM closings WHERE batch > 0 AND survey = ?)", (survey,)).fetchone()
    return bool(found)


def uploads(db: sqlite3.Connection, wrapping: Wrapping, survey: Survey, kept: Sequence[Entry]) -> list[Upload]:
    """Everything that waits of a survey's entries, in their order, a batch at a time. kept: entries, rising."""
    by_number = {entry.number: entry for entry in kept}
    waiting = batches(db, wrapping, survey, kept)
    return [_upload(survey, by_number[number], answers) for (number, _), answers in waiting.items()]


def batches(
    db: sqlite3.Connection, wrapping: Wrapping, survey: Survey, kept: Sequence[Entry]
) -> dict[tuple[EntryNumber, int], list[Answer]]:
    """The same as answers, by entry and the first period of a batch."""
    batches: dict[tuple[EntryNumber, int], list[Answer]] = {}
    by_number: dict[int, Entry] = {entry.number: entry for entry in kept}
    query = (
        "SELECT entry, period, batch, id, standing, stratum, reports FROM closings"
        " WHERE batch > 0 AND survey = ? AND entry BETWEEN ? AND ? ORDER BY entry, period"
    )
    among = survey.id, min(by_number, default=0), max(by_number, default=-1)
    for number, period, batch, id_, standing, stratum, reports in db.execute(query, among):
        if number not in by_number:
            continue
        closing = Closing(period, id_, Standing(standing), stratum)
        answer = Answer(closing, _reports(wrapping, reports, _place(by_number[number], period)))
        batches.setdefault((number, batch), []).append(answer)
    return batches


def sent(db: sqlite3.Connection, wrapping: Wrapping, entry: Entry) -> list[tuple[int, bool, tuple[Report, ...]]]:
    """The periods that an entry has answered, rising: whether the server has each answer, and its reports."""
    query = "SELECT period, batch, reports FROM closings WHERE survey = ? AND entry = ? ORDER BY period"
    rows = db.execute(query, (entry.survey, entry.number))
    return [(period, batch == 0, _reports(wrapping, kept, _place(entry, period))) for period, batch, kept in rows]


def acknowledge(db: sqlite3.Connection, survey: SurveyId, entry: EntryNumber, periods: Sequence[int]) -> int:
    """Notes that the server has these closings. Returns how many still waited."""
    done = db.executemany(
        "UPDATE closings SET batch = 0, id = x'' WHERE batch > 0 AND survey = ? AND entry = ? AND period = ?",
        [(survey, entry, period) for period in periods],
    )
    db.execute(
        "DELETE FROM closings WHERE batch = 0 AND survey = ?1 AND entry = ?2 AND period <="
        " (SELECT period FROM closings WHERE batch = 0 AND survey = ?1 AND entry = ?2"
        " ORDER BY period DESC LIMIT 1 OFFSET ?3)",
        (survey, entry, MOST_SENT),
    )
    return done.rowcount


def standings(db: sqlite3.Connection, entry: Entry, periods: Iterable[int]) -> list[Standing]:
    """What the closings of these periods say, as far as they wait."""
    query = "SELECT standing FROM closings WHERE batch > 0 AND survey = ? AND entry = ? AND period = ?"
    rows = (db.execute(query, (entry.survey, entry.number, period)).fetchone() for period in periods)
    return [Standing(row[0]) for row in rows if row is not None]


def remove(db: sqlite3.Connection, survey: SurveyId, entry: EntryNumber, periods: Iterable[int]) -> None:
    """Takes closings out that were not acknowledged."""
    db.executemany(
        "DELETE FROM closings WHERE batch > 0 AND survey = ? AND entry = ? AND period = ?",
        [(survey, entry, period) for period in periods],
    )


def forget_sent(db: sqlite3.Connection, survey: SurveyId) -> None:
    """Forgets the reports of a survey that were acknowledged."""
    db.execute("DELETE FROM closings WHERE batch = 0 AND survey = ?", (survey,))


def size(db: sqlite3.Connection) -> int:
    """How many closings wait, of all surveys and entries."""
    (count,) = db.execute("SELECT count(*) FROM closings WHERE batch > 0").fetchone()
    return int(count)


def oldest(db: sqlite3.Connection, count: int) -> list[tuple[SurveyId, EntryNumber, int]]:
    """The survey, entry and period of as many of the closings that wait, those answered first before the others."""
    query = "SELECT survey, entry, period FROM closings WHERE batch > 0 ORDER BY period LIMIT ?"
    return list(db.execute(query, (count,)))


def _upload(survey: Survey, entry: Entry, answers: Sequence[Answer]) -> Upload:
    periods = tuple(answer.closing.period for answer in answers)
    span = Node(periods[0] - 1, periods[-1])
    reports = [report for answer in answers for report in answer.reports]
    plaintext = encode_upload(survey.plan, entry.group, span, [answer.closing for answer in answers], reports)
    return Upload(survey.id, entry.number, periods, plaintext)


def _reports(wrapping: Wrapping, kept: bytes, place: bytes) -> tuple[Report, ...]:
    rows = msgpack.unpackb(wrapping.unwrap(kept, place))
    return tuple(Report(track, node, int.from_bytes(symbol)) for track, node, symbol in rows)


def _place(entry: Entry, period: int) -> bytes:
    return entry.survey + entry.number.to_bytes(8) + period.to_bytes(8)

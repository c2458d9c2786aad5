"""Stores of version 3: from its tables to those of version 4, and back. Both within a transaction of the caller's.

Version 3 kept the time of each mutation, one clock for all servers, and no person's leave. It knew of no witness, no
key, and no survey that was not fetched yet. What comes of each is said where it is brought over.
"""

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from changeling_protocol import (
    MOST_SPANNED_PERIODS,
    AtMost,
    Calendar,
    Closing,
    EntryNumber,
    NodeNumber,
    Report,
    Slots,
    Standing,
    Survey,
    TrackNumber,
    UnixMilliseconds,
    symbol_bytes,
)

from . import entries, outbox, recording, schema, states, surveys
from .answering import Answer, last_closing
from .clock import close_ms
from .entries import Entry
from .errors import StoreUnusable
from .states import Drawn, States
from .surveys import Known, Status
from .wrapping import Wrapping

TABLES = """
CREATE TABLE clock (seen_ms INTEGER NOT NULL, lead_ms INTEGER NOT NULL);
CREATE TABLE surveys (id BLOB PRIMARY KEY, payload BLOB NOT NULL, epsilon_micro INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
    survey BLOB NOT NULL REFERENCES surveys, number INTEGER NOT NULL, track_group INTEGER NOT NULL,
    answered INTEGER NOT NULL, delay_ms INTEGER NOT NULL, used BLOB, score INTEGER, mutations INTEGER NOT NULL,
    first_ms INTEGER, dropped INTEGER NOT NULL, standing INTEGER NOT NULL, stratum INTEGER NOT NULL,
    stratum_changes INTEGER NOT NULL, PRIMARY KEY (survey, number)
) WITHOUT ROWID;
CREATE TABLE drawn_nodes (
    survey BLOB NOT NULL, entry INTEGER NOT NULL, track INTEGER NOT NULL, node INTEGER NOT NULL,
    PRIMARY KEY (survey, entry, track, node), FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;
CREATE TABLE changelog (
    survey BLOB NOT NULL, entry INTEGER NOT NULL, number INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL, PRIMARY KEY (survey, entry, number), FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;
CREATE TABLE closings (
    survey BLOB NOT NULL, entry INTEGER NOT NULL, period INTEGER NOT NULL, id BLOB NOT NULL,
    standing INTEGER NOT NULL, stratum INTEGER NOT NULL, PRIMARY KEY (survey, entry, period),
    FOREIGN KEY (survey, entry) REFERENCES entries
) WITHOUT ROWID;
CREATE TABLE reports (
    survey BLOB NOT NULL, entry INTEGER NOT NULL, period INTEGER NOT NULL, track INTEGER NOT NULL,
    node INTEGER NOT NULL, symbol BLOB NOT NULL, PRIMARY KEY (survey, entry, period, track),
    FOREIGN KEY (survey, entry, period) REFERENCES closings ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE sealing_keys (signed BLOB PRIMARY KEY) WITHOUT ROWID;
"""
_OLD = ("reports", "closings", "changelog", "drawn_nodes", "entries", "surveys", "sealing_keys", "clock")
_NEW = ("closings", "drawn", "entries", "surveys", "sealing_keys", "servers", "device", "drops")
"""The tables of both, those first that hang on others."""
Rows = Sequence[tuple[Any, ...]]


def forward(db: sqlite3.Connection, wrapping: Wrapping) -> None:
    """From version 3 to 4. A mutation's time becomes the close at which it is needed; nothing has been witnessed yet.

    Which server it was is told later (`migrations.address`). A survey that cannot be read is silenced.
    """
    old = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in _OLD}  # noqa: S608
    _replace(db, _OLD, schema.TABLES)
    db.execute("INSERT INTO device VALUES (?, 0, 0, ?)", (os.urandom(16), wrapping.check()))
    ((seen_ms, lead_ms),) = old["clock"]
    db.execute("INSERT INTO servers VALUES ('', ?, ?, 0, 0, 0, 0)", (seen_ms, lead_ms))
    db.executemany("INSERT INTO sealing_keys VALUES ('', ?)", old["sealing_keys"])
    for id_, payload, epsilon_micro in old["surveys"]:
        mine = {table: [row for row in old[table] if row[0] == id_] for table in _OLD[:5]}
        known = Known(id_, Status.JOINED, len(mine["entries"]), False, seen_ms, "", epsilon_micro, payload)
        try:
            survey = known.survey
        except StoreUnusable:
            surveys.put(db, replace(known, status=Status.SILENCED, payload=b""))
            continue
        surveys.put(db, known)
        for row in mine["entries"]:
            own = {table: [each[2:] for each in mine[table] if each[1] == row[1]] for table in _OLD[:4]}
            entry, drawn = _entry(survey, row, own)
            entries.insert(db, wrapping, entry)
            entries.keep_drawn(db, wrapping, entry, drawn)
            for batch in _batches(_answers(own)):
                outbox.put(db, wrapping, survey, entry, batch)


def back(db: sqlite3.Connection, wrapping: Wrapping) -> None:
    """From version 4 to 3. What is kept for a close is dated to the last millisecond of its period.

    Surveys that were asked for and never fetched go, with the answers that wait for them; so do what was sent, and
    counts of drops. Answers that wait for the time are judged by their own. Nothing is encrypted any more.
    Raises ValueError if a survey was left or silenced, as version 3 would join it again; StoreUnusable.
    """
    known = surveys.find_all(db)
    gone = [each.id.hex() for each in known if each.status in (Status.LEFT, Status.SILENCED)]
    if gone:
        raise ValueError(f"version 3 would join surveys again that are over for good: {', '.join(gone)}")
    joined = [each for each in known if each.status in (Status.JOINED, Status.ENDED)]
    clock = db.execute("SELECT seen_ms, lead_ms FROM servers ORDER BY seen_ms DESC LIMIT 1").fetchone() or (0, 0)
    keys = db.execute("SELECT DISTINCT signed FROM sealing_keys").fetchall()
    kept = [
        (entry, entries.drawn_nodes(db, wrapping, entry), each.survey)
        for each in joined
        for entry in entries.load_all(db, wrapping, each.id)
    ]
    waiting = [
        (survey, numbered, answer)
        for survey, entries_ in groupby(kept, key=lambda each: each[2])
        for (numbered, _), batch in outbox.batches(db, wrapping, survey, [entry for entry, *_ in entries_]).items()
        for answer in batch
    ]
    _replace(db, _NEW, TABLES)
    db.execute("INSERT INTO clock VALUES (?, ?)", clock)
    db.executemany("INSERT INTO sealing_keys VALUES (?)", keys)
    db.executemany("INSERT INTO surveys VALUES (?, ?, ?)", [(e.id, e.payload, e.charge_micro) for e in joined])
    for entry, drawn, survey in kept:
        _put_entry(db, survey, _without_pending(survey, entry, drawn), drawn)
    for survey, number, answer in waiting:
        _put_answer(db, survey, number, answer)


def _replace(db: sqlite3.Connection, tables: Iterable[str], script: str) -> None:
    for table in tables:
        db.execute(f"DROP TABLE {table}")
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):  # executescript would commit
            db.execute(statement)
            statement = ""


def _entry(survey: Survey, row: tuple[Any, ...], own: Mapping[str, Rows]) -> tuple[Entry, Drawn]:
    (_, number, group, answered, delay_ms, used, score, mutations, first_ms, dropped, standing, stratum, changes) = row
    drawn = frozenset((TrackNumber(track), NodeNumber(node)) for track, node in own["drawn_nodes"])
    entry = Entry(
        survey.id,
        EntryNumber(number),
        group,
        answered,
        delay_ms,
        stratum,
        None if used is None else Slots(tuple(used), score),
        mutations,
        None if first_ms is None or isinstance(survey.constraint, AtMost) else first_ms // 1000,
        dropped=dropped,
        standing=Standing(standing),
        stratum_changes=changes,
    )
    if answered >= last_closing(survey):
        return entry.emptied(), frozenset()
    kept: States = ()
    for _, at_ms, state in own["changelog"]:
        period = -((1000 * survey.calendar.start - at_ms) // (1000 * survey.calendar.period))
        kept = states.entered(kept, entry.needed(survey.plan, drawn).first(period), state)
    return entry._replace(states=kept), drawn


def _answers(own: Mapping[str, Rows]) -> list[Answer]:
    return [
        Answer(
            Closing(period, id_, Standing(standing), stratum),
            tuple(
                Report(track, node, int.from_bytes(symbol))
                for at, track, node, symbol in own["reports"]
                if at == period
            ),
        )
        for period, id_, standing, stratum in own["closings"]
    ]


def _batches(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Answers as uploads may span them: version 3 put them together anew each time."""
    batches: list[list[Answer]] = []
    for answer in answers:
        if not batches or answer.closing.period >= batches[-1][0].closing.period + MOST_SPANNED_PERIODS:
            batches.append([])
        batches[-1].append(answer)
    return batches


def _without_pending(survey: Survey, entry: Entry, drawn: Drawn) -> Entry:
    if not entry.pending:
        return entry
    return recording.judged(survey, entry, drawn, max(each.at_ms for each in entry.pending), time_known=True)[0]


def _put_entry(db: sqlite3.Connection, survey: Survey, entry: Entry, drawn: Drawn) -> None:
    used, score = (None, None) if entry.slots is None else (bytes(entry.slots.used), entry.slots.score)
    first_ms = None if entry.first_s is None else 1000 * entry.first_s
    place = survey.id, entry.number
    db.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *place,
            entry.group,
            entry.answered,
            entry.delay_ms,
            used,
            score,
            entry.mutations,
            first_ms,
            entry.dropped,
            entry.standing,
            entry.stratum,
            entry.stratum_changes,
        ),
    )
    db.executemany("INSERT INTO drawn_nodes VALUES (?, ?, ?, ?)", [(*place, *pair) for pair in drawn])
    before = entry.mutations - len(entry.states)
    rows = [
        (*place, before + i, _last_ms(survey.calendar, close), state)
        for i, (close, state) in enumerate(entry.states, 1)
    ]
    db.executemany("INSERT INTO changelog VALUES (?, ?, ?, ?, ?)", rows)


def _last_ms(calendar: Calendar, period: int) -> UnixMilliseconds:
    """The last millisecond of a period; of one before the calendar, which holds no mutation, the first of the first."""
    return UnixMilliseconds(max(close_ms(calendar, period), close_ms(calendar, 0) + 1))


def _put_answer(db: sqlite3.Connection, survey: Survey, number: int, answer: Answer) -> None:
    closing, place = answer.closing, (survey.id, number, answer.closing.period)
    stated = closing.id, closing.standing, closing.stratum
    db.execute("INSERT INTO closings VALUES (?, ?, ?, ?, ?, ?)", (*place, *stated))
    for each in answer.reports:
        symbol = each.symbol.to_bytes(symbol_bytes(survey.plan.tracks[each.track].randomizer))
        db.execute("INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)", (*place, each.track, each.node, symbol))

"""The outbox: what is answered, kept until the server has acknowledged it or its grace is over.

It is kept by closings. A closing is one entry's answer to a period's close: an id, and its reports, maybe none, on the
nodes that end there.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from changeling_protocol import Closing, Report, Standing, Survey
from changeling_protocol.quantities import EntryNumber, SurveyId
from changeling_protocol.randomizers import symbol_bytes

from .entries import Entry


def put(db: sqlite3.Connection, survey: Survey, entry: Entry, closing: Closing, reports: Iterable[Report]) -> None:
    """Adds an entry's closing, with its reports."""
    db.execute(
        "INSERT INTO closings VALUES (?, ?, ?, ?, ?, ?)",
        (entry.survey, entry.number, closing.period, closing.id, closing.standing, closing.stratum),
    )
    tracks = survey.plan.tracks
    db.executemany(
        "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                entry.survey,
                entry.number,
                closing.period,
                report.track,
                report.node,
                report.symbol.to_bytes(symbol_bytes(tracks[report.track].randomizer)),
            )
            for report in reports
        ],
    )


def waiting(db: sqlite3.Connection, survey: SurveyId, entry: EntryNumber) -> list[int]:
    """The periods of an entry whose closings wait in the outbox, rising."""
    rows = db.execute("SELECT period FROM closings WHERE survey = ? AND entry = ? ORDER BY period", (survey, entry))
    return [period for (period,) in rows]


def closings(db: sqlite3.Connection, survey: SurveyId, entry: EntryNumber, periods: Sequence[int]) -> list[Closing]:
    """Some of an entry's closings.

    periods: theirs, rising; among those that wait none is left out in between.
    """
    rows = db.execute(
        "SELECT period, id, standing, stratum FROM closings WHERE survey = ? AND entry = ? AND period BETWEEN ? AND ?",
        (survey, entry, periods[0], periods[-1]),
    )
    return [Closing(period, id_, Standing(standing), stratum) for period, id_, standing, stratum in rows]


def reports(db: sqlite3.Connection, survey: SurveyId, entry: EntryNumber, periods: Sequence[int]) -> list[Report]:
    """The reports of some of an entry's closings.

    periods: those of the closings, rising; among those that wait none is left out in between.
    """
    rows = db.execute(
        "SELECT track, node, symbol FROM reports WHERE survey = ? AND entry = ? AND period BETWEEN ? AND ?",
        (survey, entry, periods[0], periods[-1]),
    )
    return [Report(track, node, int.from_bytes(symbol)) for track, node, symbol in rows]


def remove(db: sqlite3.Connection, survey: SurveyId, entry: EntryNumber, periods: Sequence[int]) -> int:
    """Takes closings out, with their reports. Returns how many were still there."""
    removed = 0
    for period in periods:
        removed += db.execute(
            "DELETE FROM closings WHERE survey = ? AND entry = ? AND period = ?", (survey, entry, period)
        ).rowcount
    return removed


def size(db: sqlite3.Connection) -> int:
    """How many closings wait, of all surveys and entries."""
    (count,) = db.execute("SELECT count(*) FROM closings").fetchone()
    return int(count)

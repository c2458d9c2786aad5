"""What the fold has counted: tallies, attendance and refusals; and what is sealed.

Tallies and attendance are written in the transaction that moves the cursors, and after it has moved them
(`log.advance_cursors`): so each closing counts exactly once, and no two folders add to a tally at once. Refusals are
counted by whoever refuses.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from changeling_protocol import NodeNumber, Refusal, StratumNumber, SurveyId, TrackNumber
from changeling_statistics import Attendance, NodeTally, Tallies
from sqlalchemy import Connection, Row, Table, bindparam, delete, insert, select, true, update

from .inserting import inserted
from .schema import attendance, refusals, runs, sealed, tallies

TallyKey: TypeAlias = tuple[SurveyId, TrackNumber, NodeNumber, StratumNumber]
"""Survey id, number of the track, number of the node, stratum."""
AttendanceKey: TypeAlias = tuple[SurveyId, int, int, StratumNumber]
"""Survey id, number of the group, period of the closing, stratum."""
ClosingKey: TypeAlias = tuple[SurveyId, int]
"""Survey id, period of the closing."""

_AT_ONCE = 500
_TALLY_KEY = ("survey", "track", "node", "stratum")
_ATTENDANCE_KEY = ("survey", "group", "period", "stratum")


def add_tallies(connection: Connection, added: Mapping[TallyKey, NodeTally]) -> None:
    """Add to the tallies of these nodes. Only a fold does, once it has moved the cursors."""
    held = _rows_beside(connection, tallies, _TALLY_KEY, added)
    totals = {key: tally + _tally(held[key]) if key in held else tally for key, tally in added.items()}
    _put(
        connection,
        tallies,
        _TALLY_KEY,
        {key: {"reports": o.reports, "slots": o.slots.astype("<i8").tobytes()} for key, o in totals.items()},
        held,
    )


def add_attendance(connection: Connection, added: Mapping[AttendanceKey, Attendance]) -> None:
    """Add to the attendance at these closings. Only a fold does, once it has moved the cursors."""
    held = _rows_beside(connection, attendance, _ATTENDANCE_KEY, added)
    totals = {key: each + _attendance(held[key]) if key in held else each for key, each in added.items()}
    _put(
        connection,
        attendance,
        _ATTENDANCE_KEY,
        {key: {"heard": o.heard, "new": o.new, "missed": o.missed} for key, o in totals.items()},
        held,
    )


def tallies_of(connection: Connection, survey: SurveyId, strata: Collection[StratumNumber] | None = None) -> Tallies:
    """All tallies of a survey, of what is open too: the caller decides what may be shown.

    strata: those whose entries are counted; None for all of them.
    """
    nodes = _rows_of(connection, tallies, survey, strata)
    closings = _rows_of(connection, attendance, survey, strata)
    return Tallies(
        {key: _sum_of_tallies([*rows]) for key, rows in groupby(nodes, lambda row: (row.track, row.node))},
        {
            key: sum(map(_attendance, rows), Attendance())
            for key, rows in groupby(closings, lambda row: (row.group, row.period))
        },
    )


def add_refusals(connection: Connection, added: Mapping[tuple[SurveyId, Refusal], int]) -> None:
    """Add to the counters of refused envelopes, closings and reports, by survey and reason."""
    for (survey, reason), count in sorted(added.items()):
        more = (
            update(refusals)
            .where(refusals.c.survey == survey, refusals.c.reason == reason.value)
            .values(count=refusals.c.count + count)
        )
        counted = connection.execute(more).rowcount > 0
        if not counted and not inserted(connection, refusals, survey=survey, reason=reason.value, count=count):
            connection.execute(more)  # another process has put the row there in between


def refusals_of(connection: Connection, survey: SurveyId) -> dict[Refusal, int]:
    """How often each reason was met in a survey."""
    query = select(refusals.c.reason, refusals.c.count).where(refusals.c.survey == survey)
    return {Refusal(reason): count for reason, count in connection.execute(query)}


def seal_closings(connection: Connection, survey: SurveyId, period: int) -> None:
    """Seal all closings up to a period: their ids go, the tallies of nodes that end there are final.

    What is sealed stays so.
    """
    connection.execute(delete(runs).where(runs.c.survey == survey, runs.c.period <= period))
    of_survey = sealed.c.survey == survey
    moved = connection.execute(update(sealed).where(of_survey, sealed.c.period < period).values(period=period))
    if moved.rowcount == 0:
        inserted(connection, sealed, survey=survey, period=period)


def sealed_period(connection: Connection, survey: SurveyId) -> int:
    """The period up to which all closings are sealed; 0 if none is."""
    period = connection.execute(select(sealed.c.period).where(sealed.c.survey == survey)).scalar_one_or_none()
    return period or 0


def _rows_beside(
    connection: Connection, table: Table, names: Sequence[str], keys: Iterable[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Row[Any]]:
    """The rows of these keys that there are, and of other strata, by key.

    names: of the key's four columns, the last of which is the stratum.
    """
    held: dict[tuple[Any, ...], Row[Any]] = {}
    first, second, third, _ = (table.c[name] for name in names)
    for (survey, number), alike in groupby(sorted({key[:3] for key in keys}), lambda key: key[:2]):
        places = [place for *_, place in alike]
        for at in range(0, len(places), _AT_ONCE):
            some = third.in_(places[at : at + _AT_ONCE])
            for row in connection.execute(select(table).where(first == survey, second == number, some)):
                held[tuple(row._mapping[name] for name in names)] = row
    return held


def _put(
    connection: Connection,
    table: Table,
    names: Sequence[str],
    rows: Mapping[tuple[Any, ...], Mapping[str, object]],
    held: Collection[tuple[Any, ...]],
) -> None:
    """Write these rows, those that are held already over the old."""
    fresh = [{**dict(zip(names, key, strict=True)), **row} for key, row in rows.items() if key not in held]
    if fresh:
        connection.execute(insert(table), fresh)
    changed = [
        {**{f"of_{name}": part for name, part in zip(names, key, strict=True)}, **row}
        for key, row in rows.items()
        if key in held
    ]
    if changed:
        connection.execute(update(table).where(*(table.c[name] == bindparam(f"of_{name}") for name in names)), changed)


def _rows_of(
    connection: Connection, table: Table, survey: SurveyId, strata: Collection[StratumNumber] | None
) -> Sequence[Row[Any]]:
    """The rows of a survey's strata, in the order of their keys."""
    wanted = true() if strata is None else table.c.stratum.in_(strata)
    return connection.execute(select(table).where(table.c.survey == survey, wanted).order_by(*table.primary_key)).all()


def _sum_of_tallies(rows: Sequence[Row[Any]]) -> NodeTally:
    slots = np.frombuffer(b"".join(row.slots for row in rows), "<i8").reshape(len(rows), -1)
    return NodeTally(sum(row.reports for row in rows), slots.sum(axis=0, dtype=np.int64))


def _tally(row: Row[Any]) -> NodeTally:
    return _sum_of_tallies([row])


def _attendance(row: Row[Any]) -> Attendance:
    return Attendance(row.heard, row.new, row.missed)

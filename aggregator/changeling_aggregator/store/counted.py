"""The counts of the fold: tallies, attendance and refusals; what is sealed of it, and what is shown.

Tallies and attendance are written in the transaction that moves the cursors, and after it has moved them: so each
closing counts exactly once, and no two folders add to a tally at once. Refusals are counted by whoever refuses. What is
shown are snapshots, kept so that whoever serves this store shows the same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from changeling_protocol import (
    NodeNumber,
    Refusal,
    ReleasePlan,
    StratumNumber,
    SurveyId,
    TrackNumber,
    decode,
    encode,
)
from changeling_statistics import Attendance, Cell, NodeTally, PlanNode, Tallies
from sqlalchemy import Row, Table, and_, bindparam, delete, func, insert, or_, select, true, update

from .database import Bound
from .schema import attendance, refusals, runs, snapshots, surveys, tallies

TallyKey: TypeAlias = tuple[SurveyId, TrackNumber, NodeNumber, StratumNumber]
"""Survey id, number of the track, number of the node, stratum."""
AttendanceKey: TypeAlias = tuple[SurveyId, int, int, StratumNumber]
"""Survey id, number of the group, period of the closing, stratum."""
ClosingKey: TypeAlias = tuple[SurveyId, int]
"""Survey id, period of the closing."""
LotKey: TypeAlias = tuple[int, int, StratumNumber]
"""The period of the closing, the number of the group, the stratum."""

_AT_ONCE = 500
_TALLY_KEY = ("survey", "track", "node", "stratum")
_ATTENDANCE_KEY = ("survey", "group", "period", "stratum")
_LOOKED = select(surveys.c.revision, surveys.c.final, surveys.c.due, surveys.c.folded).where(
    surveys.c.id == bindparam("of")
)
"""It is asked for with each answer to a reader, and so made once."""


@dataclass(slots=True)
class Lot:
    """The answers that the entries of one group and stratum gave at one closing.

    nodes: the tally of each node that ends there and has reports.
    """

    attendance: Attendance = field(default_factory=Attendance)
    nodes: dict[PlanNode, NodeTally] = field(default_factory=dict)

    @property
    def counts(self) -> dict[Cell, int]:
        """How many were heard, and the reports on each node."""
        return {None: self.attendance.heard, **{node: tally.reports for node, tally in self.nodes.items()}}


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far a survey has been looked at for snapshots.

    revision: how often what is shown has changed. final: the period up to which all closings are shown for good.
    due, folded: up to which period, and after how many folded requests, it was looked at last.
    """

    revision: int = 0
    final: int = 0
    due: int = 0
    folded: int = 0


class ReadCounts(Bound):
    """Reads counts and snapshots."""

    def tallies(self, survey: SurveyId, strata: Collection[StratumNumber] | None = None) -> Tallies:
        """All tallies of a survey, of open nodes too: the caller decides what may be shown.

        strata: those whose entries are counted; None for all of them.
        """
        nodes = self._rows_of(tallies, survey, strata)
        closings = self._rows_of(attendance, survey, strata)
        return Tallies(
            {key: _sum_of_tallies([*rows]) for key, rows in groupby(nodes, lambda row: (row.track, row.node))},
            {
                key: sum(map(_attendance, rows), Attendance())
                for key, rows in groupby(closings, lambda row: (row.group, row.period))
            },
        )

    def refusals(self, survey: SurveyId) -> dict[Refusal, int]:
        """How often each reason was met in a survey."""
        query = select(refusals.c.reason, refusals.c.count).where(refusals.c.survey == survey)
        return {Refusal(reason): count for reason, count in self._connection.execute(query)}

    def total_refusals(self) -> dict[Refusal, int]:
        """How often each reason was met, in all surveys."""
        query = select(refusals.c.reason, func.sum(refusals.c.count)).group_by(refusals.c.reason)
        return {Refusal(reason): int(count) for reason, count in self._connection.execute(query)}

    def sealed_period(self, survey: SurveyId) -> int:
        """The period up to which all closings of a survey are sealed; 0 if none is."""
        query = select(surveys.c.sealed).where(surveys.c.id == survey)
        return self._connection.execute(query).scalar_one_or_none() or 0

    def looked_at(self) -> dict[SurveyId, SnapshotProgress]:
        """How far each survey has been looked at for snapshots."""
        query = select(surveys.c.id, surveys.c.revision, surveys.c.final, surveys.c.due, surveys.c.folded)
        return {id_: SnapshotProgress(*looked) for id_, *looked in self._connection.execute(query)}

    def looked_at_survey(self, survey: SurveyId) -> SnapshotProgress:
        """How far a survey has been looked at for snapshots."""
        row = self._connection.execute(_LOOKED, {"of": survey}).first()
        return SnapshotProgress(*row) if row else SnapshotProgress()

    def counted_lots(self, survey: SurveyId, plan: ReleasePlan, after: int, until: int) -> dict[LotKey, Lot]:
        """All that is counted of the closings of the periods in (after, until]. Nothing of it may be shown as it is."""
        lots: dict[LotKey, Lot] = {}
        closings = and_(attendance.c.survey == survey, attendance.c.period > after, attendance.c.period <= until)
        for row in self._connection.execute(select(attendance).where(closings)):
            lots.setdefault((row.period, row.group, row.stratum), Lot()).attendance = _attendance(row)
        of_tracks = []
        for number, track in enumerate(plan.tracks):
            first, last = ((time - track.first) // track.width for time in (after, until))
            of_tracks.append(and_(tallies.c.track == number, tallies.c.node > first, tallies.c.node <= last))
        for row in self._connection.execute(select(tallies).where(tallies.c.survey == survey, or_(*of_tracks))):
            key = plan.tracks[row.track].node(row.node).end, plan.group_of(row.track), row.stratum
            lots.setdefault(key, Lot()).nodes[row.track, row.node] = _sum_of_tallies([row])
        return lots

    def shown_lots(
        self, survey: SurveyId, *, since: int = 0, after: int = 0, until: int | None = None
    ) -> dict[LotKey, Lot]:
        """The figures that are shown of a survey's closings.

        since: only lots that were taken after this revision. after, until: only those of the periods in (after, until].
        """
        query = select(snapshots).where(
            snapshots.c.survey == survey, snapshots.c.revision > since, snapshots.c.period > after
        )
        if until is not None:
            query = query.where(snapshots.c.period <= until)
        lots: dict[LotKey, Lot] = {}
        for row in self._connection.execute(query):
            nodes: dict[PlanNode, NodeTally] = {
                (TrackNumber(track), NodeNumber(node)): NodeTally(reports, np.frombuffer(slots, "<i8").astype(np.int64))
                for track, node, reports, slots in decode(row.cells)
            }
            lots[row.period, row.group, row.stratum] = Lot(_attendance(row), nodes)
        return lots

    def _rows_of(self, table: Table, survey: SurveyId, strata: Collection[StratumNumber] | None) -> Sequence[Row[Any]]:
        """The rows of a survey's strata, in the order of their keys."""
        wanted = true() if strata is None else table.c.stratum.in_(strata)
        query = select(table).where(table.c.survey == survey, wanted).order_by(*table.primary_key)
        return self._connection.execute(query).all()


class WriteCounts(ReadCounts):
    """Writes counts and snapshots."""

    def add_refusals(self, added: Mapping[tuple[SurveyId, Refusal], int]) -> None:
        """Add to the counters of refused envelopes, closings and reports, by survey and reason."""
        for (survey, reason), count in sorted(added.items()):
            more = (
                update(refusals)
                .where(refusals.c.survey == survey, refusals.c.reason == reason.value)
                .values(count=refusals.c.count + count)
            )
            counted = self._connection.execute(more).rowcount > 0
            if not counted and not self._inserted(refusals, survey=survey, reason=reason.value, count=count):
                self._connection.execute(more)  # another process has put the row there in between

    def seal(self, survey: SurveyId, period: int) -> None:
        """Seal all closings up to a period: their ids go, nothing more is added to nodes that end there."""
        self._connection.execute(delete(runs).where(runs.c.survey == survey, runs.c.period <= period))
        rising = update(surveys).where(surveys.c.id == survey, surveys.c.sealed < period)
        self._connection.execute(rising.values(sealed=period))

    def put_looked(self, survey: SurveyId, looked: SnapshotProgress) -> None:
        """Remember how far a survey has been looked at for snapshots."""
        row = {"revision": looked.revision, "final": looked.final, "due": looked.due, "folded": looked.folded}
        self._connection.execute(update(surveys).where(surveys.c.id == survey).values(row))

    def put_snapshots(
        self, survey: SurveyId, revision: int, lots: Mapping[LotKey, Lot], shown: Collection[LotKey]
    ) -> None:
        """Show these lots from now on, in the place of what was shown of them.

        revision: one that nothing was shown with before. shown: the lots that are shown already.
        """
        for key in lots.keys() & shown:
            named = (snapshots.c[name] == part for name, part in zip(("period", "group", "stratum"), key, strict=True))
            self._connection.execute(delete(snapshots).where(snapshots.c.survey == survey, *named))
        rows = [
            {
                **{"survey": survey, "period": period, "group": group, "stratum": stratum, "revision": revision},
                **_of_attendance(lot.attendance),
                "cells": encode(
                    [
                        [track, node, tally.reports, tally.slots.astype("<i8").tobytes()]
                        for (track, node), tally in sorted(lot.nodes.items())
                    ]
                ),
            }
            for (period, group, stratum), lot in lots.items()
        ]
        if rows:
            self._connection.execute(insert(snapshots), rows)

    def _add_tallies(self, added: Mapping[TallyKey, NodeTally]) -> None:
        stored = self._rows_beside(tallies, _TALLY_KEY, added)
        totals = {key: each + _sum_of_tallies([stored[key]]) if key in stored else each for key, each in added.items()}
        rows = {key: {"reports": o.reports, "slots": o.slots.astype("<i8").tobytes()} for key, o in totals.items()}
        self._put(tallies, _TALLY_KEY, rows, stored)

    def _add_attendance(self, added: Mapping[AttendanceKey, Attendance]) -> None:
        stored = self._rows_beside(attendance, _ATTENDANCE_KEY, added)
        totals = {key: each + _attendance(stored[key]) if key in stored else each for key, each in added.items()}
        rows = {key: _of_attendance(each) for key, each in totals.items()}
        self._put(attendance, _ATTENDANCE_KEY, rows, stored)

    def _rows_beside(
        self, table: Table, names: Sequence[str], keys: Iterable[tuple[Any, ...]]
    ) -> dict[tuple[Any, ...], Row[Any]]:
        """The rows of these keys that there are, and of other strata, by key.

        names: of the key's four columns, the last of which is the stratum.
        """
        stored: dict[tuple[Any, ...], Row[Any]] = {}
        first, second, third, _ = (table.c[name] for name in names)
        for (survey, number), alike in groupby(sorted({key[:3] for key in keys}), lambda key: key[:2]):
            places = [place for *_, place in alike]
            for at in range(0, len(places), _AT_ONCE):
                some = third.in_(places[at : at + _AT_ONCE])
                for row in self._connection.execute(select(table).where(first == survey, second == number, some)):
                    stored[tuple(row._mapping[name] for name in names)] = row
        return stored

    def _put(
        self,
        table: Table,
        names: Sequence[str],
        rows: Mapping[tuple[Any, ...], Mapping[str, object]],
        stored: Collection[tuple[Any, ...]],
    ) -> None:
        """Write these rows, those that are stored already over the old."""
        fresh = [{**dict(zip(names, key, strict=True)), **row} for key, row in rows.items() if key not in stored]
        if fresh:
            self._connection.execute(insert(table), fresh)
        changed = [
            {**{f"of_{name}": part for name, part in zip(names, key, strict=True)}, **row}
            for key, row in rows.items()
            if key in stored
        ]
        if changed:
            named = (table.c[name] == bindparam(f"of_{name}") for name in names)
            self._connection.execute(update(table).where(*named), changed)


def _sum_of_tallies(rows: Sequence[Row[Any]]) -> NodeTally:
    slots = np.frombuffer(b"".join(row.slots for row in rows), "<i8").reshape(len(rows), -1)
    return NodeTally(sum(row.reports for row in rows), slots.sum(axis=0, dtype=np.int64))


def _attendance(row: Row[Any]) -> Attendance:
    return Attendance(row.heard, row.new, row.missed)


def _of_attendance(here: Attendance) -> dict[str, int]:
    return {"heard": here.heard, "new": here.new, "missed": here.missed}

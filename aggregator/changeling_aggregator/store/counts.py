"""The counts of the fold: tallies, attendance, refusals and the ids behind them; what is sealed, and what is shown.

Tallies, attendance and ids are written in the transaction that moves the cursors, and after it has moved them: so each
closing counts exactly once, and no two folders add to a tally at once. Refusals are counted by whoever refuses. What is
shown are snapshots, kept so that whoever serves this store shows the same.

A closing that is not sealed has a few runs of sorted ids, each in chunks, so that a few ids are looked up by reading a
few chunks, and whatever reads a whole run holds a little of it at a time. A run never changes: another takes its place.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from changeling_protocol import NodeNumber, Refusal, ReleasePlan, StratumNumber, SurveyId, TrackNumber, decode, encode
from changeling_statistics import Attendance, Cell, NodeTally, PlanNode, Tallies
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    tuple_,
    update,
)

from .database import Bound
from .registry import SnapshotProgress
from .schema import attendance, refusals, runs, snapshots, surveys, tallies

TallyKey: TypeAlias = tuple[SurveyId, TrackNumber, NodeNumber, StratumNumber]
"""Survey id, number of the track, number of the node, stratum."""
AttendanceKey: TypeAlias = tuple[SurveyId, int, int, StratumNumber]
"""Survey id, number of the group, period of the closing, stratum."""
ClosingKey: TypeAlias = tuple[SurveyId, int]
"""Survey id, period of the closing."""
StratumKey: TypeAlias = tuple[int, int, StratumNumber]
"""The period of the closing, the number of the group, the stratum."""

_AT_ONCE = 500
_TALLY_KEY = ("survey", "track", "node", "stratum")
_ATTENDANCE_KEY = ("survey", "group", "period", "stratum")
_STRATUM_KEY = ("period", "group", "stratum")
_SNAPSHOT = and_(
    snapshots.c.survey == bindparam("of"), *(snapshots.c[name] == bindparam(name) for name in _STRATUM_KEY)
)


@dataclass(slots=True)
class StratumCounts:
    """The answers that the entries of one group and stratum gave at one closing.

    nodes: the tally of each node that ends there and has reports.
    """

    attendance: Attendance = field(default_factory=Attendance)
    nodes: dict[PlanNode, NodeTally] = field(default_factory=dict)

    @property
    def counts(self) -> dict[Cell, int]:
        """How many were heard, and the reports on each node."""
        return {None: self.attendance.heard, **{node: tally.reports for node, tally in self.nodes.items()}}


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

    def refusals(self, survey: SurveyId | None = None) -> dict[Refusal, int]:
        """How often each reason was met in a survey; None for all of them together."""
        which = true() if survey is None else refusals.c.survey == survey
        query = select(refusals.c.reason, func.sum(refusals.c.count)).where(which).group_by(refusals.c.reason)
        return {Refusal(reason): int(count) for reason, count in self._connection.execute(query)}

    def counted_strata(
        self, survey: SurveyId, plan: ReleasePlan, after: int, until: int
    ) -> dict[StratumKey, StratumCounts]:
        """All that is counted of the closings of the periods in (after, until]. Nothing of it may be shown as it is."""
        counts: dict[StratumKey, StratumCounts] = {}
        closings = and_(attendance.c.survey == survey, attendance.c.period > after, attendance.c.period <= until)
        for row in self._connection.execute(select(attendance).where(closings)):
            counts.setdefault((row.period, row.group, row.stratum), StratumCounts()).attendance = _attendance(row)
        of_tracks = []
        for number, track in enumerate(plan.tracks):
            first, last = ((time - track.first) // track.width for time in (after, until))
            of_tracks.append(and_(tallies.c.track == number, tallies.c.node > first, tallies.c.node <= last))
        for row in self._connection.execute(select(tallies).where(tallies.c.survey == survey, or_(*of_tracks))):
            key = plan.tracks[row.track].node(row.node).end, plan.group_of(row.track), row.stratum
            counts.setdefault(key, StratumCounts()).nodes[row.track, row.node] = _sum_of_tallies([row])
        return counts

    def shown_strata(
        self, survey: SurveyId, *, since: int = 0, after: int = 0, until: int | None = None
    ) -> dict[StratumKey, StratumCounts]:
        """The figures that are shown of a survey's closings.

        since: only counts taken after this revision. after, until: only those of the periods in (after, until].
        """
        query = select(snapshots).where(
            snapshots.c.survey == survey, snapshots.c.revision > since, snapshots.c.period > after
        )
        if until is not None:
            query = query.where(snapshots.c.period <= until)
        counts: dict[StratumKey, StratumCounts] = {}
        for row in self._connection.execute(query):
            nodes: dict[PlanNode, NodeTally] = {
                (TrackNumber(track), NodeNumber(node)): NodeTally(reports, np.frombuffer(slots, "<i8").astype(np.int64))
                for track, node, reports, slots in decode(row.cells)
            }
            counts[row.period, row.group, row.stratum] = StratumCounts(_attendance(row), nodes)
        return counts

    def _rows_of(self, table: Table, survey: SurveyId, strata: Collection[StratumNumber] | None) -> Sequence[Row[Any]]:
        """The rows of a survey's strata, in the order of their keys."""
        wanted = true() if strata is None else table.c.stratum.in_(strata)
        query = select(table).where(table.c.survey == survey, wanted).order_by(*table.primary_key)
        return self._connection.execute(query).all()


class WriteCounts(ReadCounts):
    """Writes counts and snapshots."""

    def _add_refusals(self, added: Mapping[tuple[SurveyId, Refusal], int]) -> None:
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

    def put_snapshots(
        self, survey: SurveyId, looked: SnapshotProgress, counts: Mapping[StratumKey, StratumCounts]
    ) -> None:
        """Show these counts from now on, in the place of what was shown of them.

        looked: how far the survey has been looked at by now. Counts come with a revision that nothing was shown with
        before.
        """
        self._connection.execute(update(surveys).where(surveys.c.id == survey).values(asdict(looked)))
        if not counts:
            return
        old = [{"of": survey, **dict(zip(_STRATUM_KEY, key, strict=True))} for key in counts]
        self._connection.execute(delete(snapshots).where(_SNAPSHOT), old)
        rows = [
            {
                **{"survey": survey, "period": period, "group": group, "stratum": stratum},
                **{"revision": looked.revision, **_of_attendance(each.attendance)},
                "cells": encode(
                    [
                        [track, node, tally.reports, tally.slots.astype("<i8").tobytes()]
                        for (track, node), tally in sorted(each.nodes.items())
                    ]
                ),
            }
            for (period, group, stratum), each in counts.items()
        ]
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


ID_BYTES = 16
CHUNK_BYTES = 4096 * ID_BYTES
_CHUNKS_AT_ONCE = 64
_NAMED_AT_ONCE = 500


class IdRun(NamedTuple):
    """A run of a closing. number: a later one's is higher. first: the first id.

    size: in bytes; of one with several chunks as if its last chunk were whole, too, so that no chunk is read for this.
    """

    number: int
    first: bytes
    size: int

    @property
    def name(self) -> tuple[int, bytes]:
        """Which run of a closing it is: as a number is given again where a transaction was lost, with the first id."""
        return self.number, self.first

    @property
    def chunks(self) -> int:
        """How many chunks it has."""
        return -(-self.size // CHUNK_BYTES)


def _runs_of(*where: ColumnElement[bool]) -> Select[Any]:
    """Asks for the runs of these closings: survey, period, number, first id, how many chunks, and the bytes of an only
    one, 0 where there are several."""
    columns = runs.c.survey, runs.c.period, runs.c.number
    counted = select(*columns, func.count().label("chunks")).where(*where).group_by(*columns).subquery()
    chunks = runs.alias()
    of_run = and_(*(chunks.c[column.name] == counted.c[column.name] for column in columns))
    first = select(chunks.c.first).where(of_run).order_by(chunks.c.first).limit(1).scalar_subquery()
    size = select(func.length(chunks.c.ids)).where(of_run).scalar_subquery()
    only = case((counted.c.chunks == 1, size), else_=0)
    return select(counted.c.survey, counted.c.period, counted.c.number, first, counted.c.chunks, only)


_RUNS = _runs_of()
_SOME_RUNS = _runs_of(runs.c.survey == bindparam("of"), runs.c.period.in_(bindparam("periods", expanding=True)))


class ReadRuns(Bound):
    """Reads runs of ids."""

    def runs(self, keys: Iterable[ClosingKey] | None = None) -> dict[ClosingKey, list[IdRun]]:
        """The runs of these closings, or of all, by their numbers; a closing without runs is left out."""
        found: dict[ClosingKey, list[IdRun]] = {}
        for query, values in [(_RUNS, {})] if keys is None else _some_closings(keys):
            for survey, period, number, first, chunks, only in self._connection.execute(query, values):
                run = IdRun(number, first, only or chunks * CHUNK_BYTES)
                found.setdefault((survey, period), []).append(run)
        return {key: sorted(some) for key, some in found.items()}

    def read_run(self, key: ClosingKey, number: int, near: bytes | None = None) -> Iterator[bytes]:
        """A run in pieces of several chunks. Other runs may be written to meanwhile.

        near: sorted ids; only chunks that could hold one of them are read. None for all.
        """
        if near == b"":
            return
        survey, period = key
        of_run = and_(runs.c.survey == survey, runs.c.period == period, runs.c.number == number)
        query = select(runs.c.first).where(of_run).order_by(runs.c.first)
        firsts = self._connection.execute(query).scalars().all()
        if near is not None:
            wanted = np.frombuffer(near, f"S{ID_BYTES}")
            below = np.append(np.searchsorted(wanted, np.array(firsts, f"S{ID_BYTES}")), len(wanted))
            firsts = [firsts[chunk] for chunk in np.flatnonzero(np.diff(below)).tolist()]
        for at in range(0, len(firsts), _CHUNKS_AT_ONCE):
            some = runs.c.first.in_(firsts[at : at + _CHUNKS_AT_ONCE])
            chunks = select(runs.c.ids).where(of_run, some).order_by(runs.c.first)
            yield b"".join(self._connection.execute(chunks).scalars())

    def read_runs(self, named: Iterable[tuple[ClosingKey, int]]) -> dict[ClosingKey, list[bytes]]:
        """The chunks of short runs, by closing. named: runs by closing and number."""
        chunks: dict[ClosingKey, list[bytes]] = {}
        for survey, those in _some_of_a_survey(named):
            for period, ids in self._connection.execute(select(runs.c.period, runs.c.ids).where(those)):
                chunks.setdefault((survey, period), []).append(ids)
        return chunks


class WriteRuns(ReadRuns):
    """Writes runs of ids."""

    def replace_runs(
        self, old: Iterable[tuple[ClosingKey, int]], new: Iterable[tuple[ClosingKey, int, bytes]] = ()
    ) -> None:
        """Delete runs whose ids are in others by now, and put sorted ids into runs, behind those that are there.

        old: by closing and number. new: of closings, under numbers.
        """
        for _, those in _some_of_a_survey(old):
            self._connection.execute(delete(runs).where(those))
        rows = [
            {
                "survey": survey,
                "period": period,
                "number": number,
                "first": ids[at : at + ID_BYTES],
                "ids": ids[at : at + CHUNK_BYTES],
            }
            for (survey, period), number, ids in new
            for at in range(0, len(ids), CHUNK_BYTES)
        ]
        if rows:
            self._connection.execute(insert(runs), rows)


def _some_closings(keys: Iterable[ClosingKey]) -> Iterator[tuple[Select[Any], dict[str, object]]]:
    for survey, of_survey in groupby(sorted(keys), lambda key: key[0]):
        periods = [period for _, period in of_survey]
        for at in range(0, len(periods), _NAMED_AT_ONCE):
            yield _SOME_RUNS, {"of": survey, "periods": periods[at : at + _NAMED_AT_ONCE]}


def _some_of_a_survey(named: Iterable[tuple[ClosingKey, int]]) -> Iterator[tuple[SurveyId, ColumnElement[bool]]]:
    for survey, of_survey in groupby(sorted(named), lambda name: name[0][0]):
        pairs = [(period, number) for (_, period), number in of_survey]
        for at in range(0, len(pairs), _NAMED_AT_ONCE):
            some = tuple_(runs.c.period, runs.c.number).in_(pairs[at : at + _NAMED_AT_ONCE])
            yield survey, and_(runs.c.survey == survey, some)

"""The counts of the fold: tallies, attendance, refusals and the ids behind them; and what is shown.

Tallies, attendance and ids are written in the transaction that moves the cursors, and after it has moved them: so each
closing counts exactly once, and no two folders add to a tally at once. Refusals are counted by whoever refuses. What is
shown are snapshots, kept so that whoever serves this store shows the same.

A closing that is not sealed has a few runs of sorted ids, each in chunks, so that a few ids are looked up by reading a
few chunks, and whatever reads a whole run holds a little of it at a time. A run never changes: another takes its place.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from changeling_protocol import (
    MOST_PERIODS,
    NodeNumber,
    Refusal,
    ReleasePlan,
    StratumNumber,
    SurveyId,
    TrackNumber,
    decode,
    encode,
)
from changeling_statistics import Attendance, Cell, Counts, GroupClosing, NodeTally, PlanNode, Tallies
from sqlalchemy import (
    ColumnElement,
    Select,
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
from .schema import refusals, runs, snapshots, surveys, tallies

TallyKey: TypeAlias = tuple[SurveyId, TrackNumber, NodeNumber, StratumNumber]
"""Survey id, number of the track, number of the node, stratum."""
AttendanceKey: TypeAlias = tuple[SurveyId, int, int, StratumNumber]
"""Survey id, number of the group, period of the closing, stratum."""
ClosingKey: TypeAlias = tuple[SurveyId, int]
"""Survey id, period of the closing."""
StratumKey: TypeAlias = tuple[int, int, StratumNumber]
"""The period of the closing, the number of the group, the stratum."""

K = TypeVar("K")
V = TypeVar("V")
_AT_ONCE = 500
_TALLY_KEY = ("survey", "track", "node", "stratum")
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


def everybody(counts: Mapping[StratumKey, StratumCounts]) -> Tallies:
    """The tallies of the entries of all these strata together."""
    nodes: dict[PlanNode, NodeTally] = {}
    closings: dict[GroupClosing, Attendance] = {}
    for (period, group, _), each in counts.items():
        closings[group, period] = closings.get((group, period), Attendance()) + each.attendance
        for node, tally in each.nodes.items():
            nodes[node] = nodes[node] + tally if node in nodes else tally
    return Tallies(nodes, closings)


def _tally(reports: int, slots: bytes) -> NodeTally:
    return NodeTally(reports, np.frombuffer(slots, "<i8").astype(np.int64))


def _packed(slots: Counts) -> bytes:
    return slots.astype("<i8").tobytes()


ID_BYTES = 16
CHUNK_BYTES = 4096 * ID_BYTES
_CHUNKS_AT_ONCE = 64


class IdRun(NamedTuple):
    """A run of a closing. number: a later one's is higher, and no other run of the closing ever has it.

    size: in bytes; of one with several chunks as if its last chunk were whole, too, so that no chunk is read for this.
    """

    number: int
    size: int

    @property
    def chunks(self) -> int:
        """How many chunks it has."""
        return -(-self.size // CHUNK_BYTES)


def _runs_of(*where: ColumnElement[bool]) -> Select[Any]:
    """Asks for the runs of these closings: survey, period, number, how many chunks, and the bytes of an only one, 0
    where there are several."""
    columns = runs.c.survey, runs.c.period, runs.c.number
    counted = select(*columns, func.count().label("chunks")).where(*where).group_by(*columns).subquery()
    chunks = runs.alias()
    of_run = and_(*(chunks.c[column.name] == counted.c[column.name] for column in columns))
    size = select(func.length(chunks.c.ids)).where(of_run).scalar_subquery()
    only = case((counted.c.chunks == 1, size), else_=0)
    return select(counted.c.survey, counted.c.period, counted.c.number, counted.c.chunks, only)


def _some_of_each(named: Iterable[tuple[K, V]]) -> Iterator[tuple[K, list[V]]]:
    """Things by the key that each is named with, some at a time: as many as a statement may name."""
    for key, those in groupby(sorted(named), itemgetter(0)):
        of_key = [each for _, each in those]
        for at in range(0, len(of_key), _AT_ONCE):
            yield key, of_key[at : at + _AT_ONCE]


def _some_runs(named: Iterable[tuple[ClosingKey, int]]) -> Iterator[tuple[SurveyId, ColumnElement[bool]]]:
    """The conditions for runs that are named by closing and number, those of a survey together."""
    for survey, pairs in _some_of_each((survey, (period, number)) for (survey, period), number in named):
        yield survey, and_(runs.c.survey == survey, tuple_(runs.c.period, runs.c.number).in_(pairs))


class ReadCounts(Bound):
    """Reads counts, the ids behind them, and snapshots."""

    def refusals(self, survey: SurveyId | None = None) -> dict[Refusal, int]:
        """How often each reason was met in a survey; None for all of them together."""
        which = true() if survey is None else refusals.c.survey == survey
        query = select(refusals.c.reason, func.sum(refusals.c.count)).where(which).group_by(refusals.c.reason)
        return {Refusal(reason): int(count) for reason, count in self._connection.execute(query)}

    def counted_strata(
        self, survey: SurveyId, plan: ReleasePlan, after: int = 0, until: int = MOST_PERIODS
    ) -> dict[StratumKey, StratumCounts]:
        """All that is counted of the closings of the periods in (after, until]. Nothing of it may be shown as it is."""
        track, node = tallies.c.track, tallies.c.node
        wanted = [and_(track < 0, node > after, node <= until)]
        for number, each in enumerate(plan.tracks):
            first, last = ((time - each.first) // each.width for time in (after, until))
            wanted.append(and_(track == number, node > first, node <= last))
        counts: dict[StratumKey, StratumCounts] = {}
        for row in self._connection.execute(select(tallies).where(tallies.c.survey == survey, or_(*wanted))):
            tally = _tally(row.reports, row.slots)
            if row.track < 0:
                key = row.node, -1 - row.track, row.stratum
                counts.setdefault(key, StratumCounts()).attendance = Attendance(tally.reports, *tally.slots.tolist())
            else:
                key = plan.tracks[row.track].node(row.node).end, plan.group_of(row.track), row.stratum
                counts.setdefault(key, StratumCounts()).nodes[row.track, row.node] = tally
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
                (TrackNumber(track), NodeNumber(node)): _tally(reports, slots)
                for track, node, reports, slots in decode(row.cells)
            }
            here = Attendance(row.heard, row.new, row.missed)
            counts[row.period, row.group, row.stratum] = StratumCounts(here, nodes)
        return counts

    def runs(self, keys: Iterable[ClosingKey] | None = None) -> dict[ClosingKey, list[IdRun]]:
        """The runs of these closings, or of all, by their numbers; a closing without runs is left out."""
        found: dict[ClosingKey, list[IdRun]] = {}
        some = ((runs.c.survey == survey, runs.c.period.in_(periods)) for survey, periods in _some_of_each(keys or ()))
        for where in [()] if keys is None else some:
            for survey, period, number, chunks, only in self._connection.execute(_runs_of(*where)):
                found.setdefault((survey, period), []).append(IdRun(number, only or chunks * CHUNK_BYTES))
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
        for survey, those in _some_runs(named):
            for period, ids in self._connection.execute(select(runs.c.period, runs.c.ids).where(those)):
                chunks.setdefault((survey, period), []).append(ids)
        return chunks


class WriteCounts(ReadCounts):
    """Writes counts, the ids behind them, and snapshots."""

    def _add_refusals(self, added: Mapping[tuple[SurveyId, Refusal], int]) -> None:
        """Add to the counters of refused envelopes, closings and reports, by survey and reason."""
        for (survey, reason), count in sorted(added.items()):
            more = self._insert(refusals).values(survey=survey, reason=reason.value, count=count)
            beside = {"count": refusals.c.count + more.excluded.count}
            self._connection.execute(more.on_conflict_do_update(index_elements=refusals.primary_key, set_=beside))

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
                **{"revision": looked.revision, **asdict(each.attendance)},
                "cells": encode(
                    [
                        [track, node, tally.reports, _packed(tally.slots)]
                        for (track, node), tally in sorted(each.nodes.items())
                    ]
                ),
            }
            for (period, group, stratum), each in counts.items()
        ]
        self._connection.execute(insert(snapshots), rows)

    def _add_tallies(self, added: Mapping[TallyKey, NodeTally], heard: Mapping[AttendanceKey, Attendance]) -> None:
        more = dict(added)
        for (survey, group, period, stratum), here in heard.items():
            key = survey, TrackNumber(-1 - group), NodeNumber(period), stratum
            more[key] = NodeTally(here.heard, np.array([here.new, here.missed]))
        stored = self._stored_beside(more)
        fresh, changed = [], []
        for key, tally in more.items():
            total = tally + stored[key] if key in stored else tally
            row = {"reports": total.reports, "slots": _packed(total.slots)}
            if key in stored:
                changed.append({f"of_{name}": part for name, part in zip(_TALLY_KEY, key, strict=True)} | row)
            else:
                fresh.append(dict(zip(_TALLY_KEY, key, strict=True)) | row)
        if fresh:
            self._connection.execute(insert(tallies), fresh)
        if changed:
            named = (tallies.c[name] == bindparam(f"of_{name}") for name in _TALLY_KEY)
            self._connection.execute(update(tallies).where(*named), changed)

    def _stored_beside(self, keys: Iterable[TallyKey]) -> dict[TallyKey, NodeTally]:
        """The tallies of these keys that there are, and of other strata, by key."""
        stored: dict[TallyKey, NodeTally] = {}
        for (survey, track), nodes in _some_of_each({((survey, track), node) for survey, track, node, _ in keys}):
            of = tallies.c.survey == survey, tallies.c.track == track, tallies.c.node.in_(nodes)
            for row in self._connection.execute(select(tallies).where(*of)):
                stored[row.survey, row.track, row.node, row.stratum] = _tally(row.reports, row.slots)
        return stored

    def replace_runs(
        self, old: Iterable[tuple[ClosingKey, int]], new: Iterable[tuple[ClosingKey, int, bytes]] = ()
    ) -> None:
        """Delete runs whose ids are in others by now, and put sorted ids into runs, behind those that are there.

        old: by closing and number. new: of closings, under numbers.
        """
        for _, those in _some_runs(old):
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

"""What is shown of a survey's closings, lot by lot; it is kept, so that whoever serves this store shows the same."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from changeling_protocol import NodeNumber, ReleasePlan, StratumNumber, SurveyId, TrackNumber, decode, encode
from changeling_statistics import Attendance, Cell, NodeTally, PlanNode
from sqlalchemy import Connection, and_, bindparam, delete, insert, or_, select, update

from .inserting import inserted
from .schema import attendance, shown, snapshots, tallies

LotKey: TypeAlias = tuple[int, int, StratumNumber]
"""The period of the closing, the number of the group, the stratum."""


_LOOKED = select(shown).where(shown.c.survey == bindparam("of"))
"""It is asked for with each answer to a reader, and so made once."""


@dataclass(slots=True)
class Lot:
    """What the entries of one group and stratum said at one closing.

    nodes: the tally of each node that ends there and has reports.
    """

    attendance: Attendance = field(default_factory=Attendance)
    nodes: dict[PlanNode, NodeTally] = field(default_factory=dict)

    @property
    def counts(self) -> dict[Cell, int]:
        """How many were heard, and the reports on each node."""
        return {None: self.attendance.heard, **{node: tally.reports for node, tally in self.nodes.items()}}


@dataclass(frozen=True, slots=True)
class Looked:
    """How far a survey has been looked at for snapshots.

    revision: how often what is shown has changed. final: the period up to which all closings are shown for good.
    due, folded: up to which period, and after how many folded envelopes, it was looked at last.
    """

    revision: int = 0
    final: int = 0
    due: int = 0
    folded: int = 0


def looked_at(connection: Connection) -> dict[SurveyId, Looked]:
    """How far each survey has been looked at; one that never was is not there."""
    rows = connection.execute(select(shown))
    return {row.survey: Looked(row.revision, row.final, row.due, row.folded) for row in rows}


def looked_at_survey(connection: Connection, survey: SurveyId) -> Looked:
    """How far a survey has been looked at."""
    row = connection.execute(_LOOKED, {"of": survey}).first()
    return Looked(row.revision, row.final, row.due, row.folded) if row else Looked()


def put_looked(connection: Connection, survey: SurveyId, looked: Looked) -> None:
    """Remember how far a survey has been looked at."""
    row = {"revision": looked.revision, "final": looked.final, "due": looked.due, "folded": looked.folded}
    if not connection.execute(update(shown).where(shown.c.survey == survey).values(row)).rowcount:
        inserted(connection, shown, survey=survey, **row)


def counted_lots(
    connection: Connection, survey: SurveyId, plan: ReleasePlan, after: int, until: int
) -> dict[LotKey, Lot]:
    """All that is counted of the closings of the periods in (after, until]. Nothing of it may be shown as it is."""
    lots: dict[LotKey, Lot] = {}
    closings = and_(attendance.c.survey == survey, attendance.c.period > after, attendance.c.period <= until)
    for row in connection.execute(select(attendance).where(closings)):
        lots.setdefault((row.period, row.group, row.stratum), Lot()).attendance = Attendance(
            row.heard, row.new, row.missed
        )
    of_tracks = []
    for number, track in enumerate(plan.tracks):
        first, last = ((time - track.first) // track.width for time in (after, until))
        of_tracks.append(and_(tallies.c.track == number, tallies.c.node > first, tallies.c.node <= last))
    for row in connection.execute(select(tallies).where(tallies.c.survey == survey, or_(*of_tracks))):
        key = plan.tracks[row.track].node(row.node).end, plan.group_of(row.track), row.stratum
        slots = np.frombuffer(row.slots, "<i8").astype(np.int64)
        lots.setdefault(key, Lot()).nodes[row.track, row.node] = NodeTally(row.reports, slots)
    return lots


def shown_lots(
    connection: Connection, survey: SurveyId, *, since: int = 0, after: int = 0, until: int | None = None
) -> dict[LotKey, Lot]:
    """What is shown of a survey's closings.

    since: only lots that were taken after this revision. after, until: only those of the periods in (after, until].
    """
    query = select(snapshots).where(
        snapshots.c.survey == survey, snapshots.c.revision > since, snapshots.c.period > after
    )
    if until is not None:
        query = query.where(snapshots.c.period <= until)
    lots: dict[LotKey, Lot] = {}
    for row in connection.execute(query):
        nodes: dict[PlanNode, NodeTally] = {
            (TrackNumber(track), NodeNumber(node)): NodeTally(reports, np.frombuffer(slots, "<i8").astype(np.int64))
            for track, node, reports, slots in decode(row.cells)
        }
        lots[row.period, row.group, row.stratum] = Lot(Attendance(row.heard, row.new, row.missed), nodes)
    return lots


def put_snapshots(
    connection: Connection, survey: SurveyId, revision: int, lots: Mapping[LotKey, Lot], held: Collection[LotKey]
) -> None:
    """Show these lots from now on, in the place of what was shown of them.

    revision: one that nothing was shown with before. held: the lots that are shown already.
    """
    for period, group, stratum in lots.keys() & held:
        connection.execute(
            delete(snapshots).where(
                snapshots.c.survey == survey,
                snapshots.c.period == period,
                snapshots.c.group == group,
                snapshots.c.stratum == stratum,
            )
        )
    rows = [
        {
            **{"survey": survey, "period": period, "group": group, "stratum": stratum, "revision": revision},
            **{"heard": lot.attendance.heard, "new": lot.attendance.new, "missed": lot.attendance.missed},
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
        connection.execute(insert(snapshots), rows)

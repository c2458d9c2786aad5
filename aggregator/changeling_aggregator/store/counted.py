"""What the fold has counted: tallies and refusals, and which nodes are sealed.

Tallies are written in the transaction that moves the cursors, and after it has moved them (`log.advance_cursors`): so
each report counts exactly once, and no two folders add to a tally at once. Refusals are counted by whoever refuses.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from changeling_protocol.quantities import NodeNumber, SurveyId, TrackNumber
from changeling_protocol.refusal import Refusal
from changeling_statistics.tallies import NodeTally
from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, select, update

from .inserting import inserted
from .schema import refusals, runs, sealed, tallies

NodeKey: TypeAlias = tuple[SurveyId, TrackNumber, NodeNumber]
"""Survey id, number of the track, number of the node."""
RefusalCounts: TypeAlias = Counter[tuple[SurveyId, Refusal]]
"""How many envelopes and reports were refused, by survey id and reason."""


def add_tallies(connection: Connection, added: Mapping[NodeKey, NodeTally]) -> None:
    """Add to the tallies of these nodes. Only a fold does, once it has moved the cursors."""
    for key, tally in added.items():
        row = connection.execute(select(tallies.c.reports, tallies.c.slots).where(of_node(tallies, key))).first()
        total = tally if row is None else tally + _tally(row.reports, row.slots)
        values = {"reports": total.reports, "slots": total.slots.astype("<i8").tobytes()}
        if row is None:
            survey, track, node = key
            connection.execute(insert(tallies).values(survey=survey, track=track, node=node, **values))
        else:
            connection.execute(update(tallies).where(of_node(tallies, key)).values(values))


def tallies_of(connection: Connection, survey: SurveyId) -> dict[tuple[TrackNumber, NodeNumber], NodeTally]:
    """All tallies of a survey, by track and node, of open nodes too: the caller decides which may be shown."""
    rows = connection.execute(
        select(tallies).where(tallies.c.survey == survey).order_by(tallies.c.track, tallies.c.node)
    )
    return {(row.track, row.node): _tally(row.reports, row.slots) for row in rows}


def add_refusals(connection: Connection, added: Mapping[tuple[SurveyId, Refusal], int]) -> None:
    """Add to the counters of refused envelopes and reports, by survey and reason."""
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


def seal_nodes(connection: Connection, survey: SurveyId, track: TrackNumber, node: NodeNumber) -> None:
    """Seal the nodes 1 to `node` of a track: their ids go, their tallies are final. What is sealed stays so."""
    connection.execute(delete(runs).where(runs.c.survey == survey, runs.c.track == track, runs.c.node <= node))
    of_track = and_(sealed.c.survey == survey, sealed.c.track == track)
    moved = connection.execute(update(sealed).where(of_track, sealed.c.node < node).values(node=node))
    if moved.rowcount == 0:
        inserted(connection, sealed, survey=survey, track=track, node=node)


def sealed_nodes(connection: Connection, survey: SurveyId) -> dict[TrackNumber, NodeNumber]:
    """By track, the number of the last node that is sealed."""
    rows = connection.execute(select(sealed.c.track, sealed.c.node).where(sealed.c.survey == survey))
    return {row.track: row.node for row in rows}


def of_node(table: Table, key: NodeKey) -> ColumnElement[bool]:
    """The rows of a node."""
    survey, track, node = key
    return and_(table.c.survey == survey, table.c.track == track, table.c.node == node)


def _tally(reports: int, slots: bytes) -> NodeTally:
    return NodeTally(reports, np.frombuffer(slots, "<i8").astype(np.int64))

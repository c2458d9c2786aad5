"""What the fold has counted: tallies, the ids behind those not yet sealed, and refusals.

Everything here is written in the transaction that moves the cursors, so each report counts exactly once.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, select, update

from ..refusal import Refusal
from ..tallies import NodeTally
from .schema import refusals, runs, sealed, tallies

NodeKey: TypeAlias = tuple[bytes, int, int]
"""Survey id, number of the track, number of the node."""


def add_tallies(connection: Connection, added: Mapping[NodeKey, NodeTally]) -> None:
    """Add to the tallies of these nodes."""
    for key, tally in added.items():
        row = connection.execute(select(tallies.c.reports, tallies.c.slots).where(_is(tallies, key))).first()
        total = tally if row is None else tally + _tally(row.reports, row.slots)
        values = {"reports": total.reports, "slots": total.slots.astype("<i8").tobytes()}
        if row is None:
            survey, track, node = key
            connection.execute(insert(tallies).values(survey=survey, track=track, node=node, **values))
        else:
            connection.execute(update(tallies).where(_is(tallies, key)).values(values))


def tallies_of(connection: Connection, survey: bytes) -> dict[tuple[int, int], NodeTally]:
    """All tallies of a survey, by track and node, closed or not: what may be shown the caller decides."""
    rows = connection.execute(
        select(tallies).where(tallies.c.survey == survey).order_by(tallies.c.track, tallies.c.node)
    )
    return {(row.track, row.node): _tally(row.reports, row.slots) for row in rows}


def runs_of(connection: Connection, key: NodeKey) -> list[bytes]:
    """The runs of a node's ids, the longest first."""
    query = select(runs.c.ids).where(_is(runs, key)).order_by(runs.c.number)
    return list(connection.execute(query).scalars())


def replace_runs(connection: Connection, key: NodeKey, kept: int, ids: bytes) -> None:
    """Put one run after the first `kept` of a node, in place of the others."""
    connection.execute(delete(runs).where(_is(runs, key), runs.c.number >= kept))
    connection.execute(insert(runs).values(survey=key[0], track=key[1], node=key[2], number=kept, ids=ids))


def add_refusals(connection: Connection, added: Mapping[tuple[bytes, Refusal], int]) -> None:
    """Add to the counters, by survey and reason."""
    for (survey, reason), count in added.items():
        counted = connection.execute(
            update(refusals)
            .where(refusals.c.survey == survey, refusals.c.reason == reason.value)
            .values(count=refusals.c.count + count)
        )
        if counted.rowcount == 0:
            connection.execute(insert(refusals).values(survey=survey, reason=reason.value, count=count))


def refusals_of(connection: Connection, survey: bytes) -> dict[Refusal, int]:
    """How often each reason was met in a survey."""
    query = select(refusals.c.reason, refusals.c.count).where(refusals.c.survey == survey)
    return {Refusal(reason): count for reason, count in connection.execute(query)}


def seal_nodes(connection: Connection, survey: bytes, track: int, node: int) -> None:
    """Seal the nodes 1 to `node` of a track: their ids go, their tallies are final."""
    connection.execute(delete(runs).where(runs.c.survey == survey, runs.c.track == track, runs.c.node <= node))
    connection.execute(delete(sealed).where(sealed.c.survey == survey, sealed.c.track == track))
    connection.execute(insert(sealed).values(survey=survey, track=track, node=node))


def sealed_nodes(connection: Connection, survey: bytes) -> dict[int, int]:
    """By track, the number of the last node that is sealed."""
    rows = connection.execute(select(sealed.c.track, sealed.c.node).where(sealed.c.survey == survey))
    return {row.track: row.node for row in rows}


def _is(table: Table, key: NodeKey) -> ColumnElement[bool]:
    survey, track, node = key
    return and_(table.c.survey == survey, table.c.track == track, table.c.node == node)


def _tally(reports: int, slots: bytes) -> NodeTally:
    return NodeTally(reports, np.frombuffer(slots, "<i8").astype(np.int64))

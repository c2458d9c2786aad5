"""The ids behind the tallies of what is not sealed, written in the transaction that adds to the tallies.

A closing has a few runs of sorted ids, each in chunks, so that a few ids are looked up by reading a few chunks, and
whatever reads a whole run holds a little of it at a time. A run never changes: another takes its place.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select

from .counted import ClosingKey
from .schema import runs

ID_BYTES = 16
CHUNK_BYTES = 4096 * ID_BYTES
_CHUNKS_AT_ONCE = 64
_CLOSINGS_AT_ONCE = 500


class Run(NamedTuple):
    """A run of a closing. number: a later one's is higher. first: the first id. size: in bytes."""

    number: int
    first: bytes
    size: int


def runs_of(connection: Connection, keys: Iterable[ClosingKey]) -> dict[ClosingKey, list[Run]]:
    """The runs of these closings, by their numbers; a closing without runs is left out."""
    found: dict[ClosingKey, list[Run]] = {}
    for survey, group in groupby(sorted(keys), lambda key: key[0]):
        periods = [period for _, period in group]
        for at in range(0, len(periods), _CLOSINGS_AT_ONCE):
            some = runs.c.period.in_(periods[at : at + _CLOSINGS_AT_ONCE])
            query = select(
                runs.c.period, runs.c.number, func.min(runs.c.first), func.sum(func.length(runs.c.ids))
            ).where(runs.c.survey == survey, some)
            for period, number, first, size in connection.execute(
                query.group_by(runs.c.period, runs.c.number).order_by(runs.c.period, runs.c.number)
            ):
                found.setdefault((survey, period), []).append(Run(number, first, int(size)))
    return found


def chunks_near(connection: Connection, key: ClosingKey, number: int, ids: bytes) -> Iterator[bytes]:
    """The chunks of a run that could hold one of these sorted ids; some are laid end to end."""
    if not ids:
        return
    wanted = np.frombuffer(ids, f"S{ID_BYTES}")
    query = select(runs.c.first).where(_of_run(key, number)).order_by(runs.c.first)
    firsts = connection.execute(query).scalars().all()
    below = np.append(np.searchsorted(wanted, np.array(firsts, f"S{ID_BYTES}")), len(wanted))
    near = [firsts[chunk] for chunk in np.flatnonzero(np.diff(below)).tolist()]
    for at in range(0, len(near), _CHUNKS_AT_ONCE):
        some = runs.c.first.in_(near[at : at + _CHUNKS_AT_ONCE])
        chunks = select(runs.c.ids).where(_of_run(key, number), some).order_by(runs.c.first)
        yield b"".join(connection.execute(chunks).scalars())


def read_run(connection: Connection, key: ClosingKey, number: int) -> Iterator[bytes]:
    """A run in pieces of several chunks. Other runs may be written to meanwhile."""
    query = select(runs.c.first, runs.c.ids).where(_of_run(key, number))
    after = b""
    while rows := connection.execute(
        query.where(runs.c.first > after).order_by(runs.c.first).limit(_CHUNKS_AT_ONCE)
    ).all():
        yield b"".join(row.ids for row in rows)
        after = rows[-1].first


def put_runs(connection: Connection, added: Iterable[tuple[ClosingKey, int, bytes]]) -> None:
    """Put sorted ids into runs, as their chunks after those that are there: of closings, under numbers."""
    rows = [
        {
            "survey": survey,
            "period": period,
            "number": number,
            "first": ids[at : at + ID_BYTES],
            "ids": ids[at : at + CHUNK_BYTES],
        }
        for (survey, period), number, ids in added
        for at in range(0, len(ids), CHUNK_BYTES)
    ]
    if rows:
        connection.execute(insert(runs), rows)


def drop_runs(connection: Connection, key: ClosingKey, numbers: Sequence[int]) -> None:
    """Delete runs of a closing, whose ids are in another by now."""
    connection.execute(delete(runs).where(_of_closing(key), runs.c.number.in_(numbers)))


def _of_closing(key: ClosingKey) -> ColumnElement[bool]:
    survey, period = key
    return and_(runs.c.survey == survey, runs.c.period == period)


def _of_run(key: ClosingKey, number: int) -> ColumnElement[bool]:
    return and_(_of_closing(key), runs.c.number == number)

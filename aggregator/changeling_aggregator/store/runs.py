"""The ids behind the tallies of what is not sealed, written in the transaction that adds to the tallies.

A closing has a few runs of sorted ids, each in chunks, so that a few ids are looked up by reading a few chunks, and
whatever reads a whole run holds a little of it at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select

from .counted import ClosingKey
from .schema import runs

ID_BYTES = 16
CHUNK_BYTES = 4096 * ID_BYTES
_CHUNKS_AT_ONCE = 64


def chunks_near(connection: Connection, key: ClosingKey, ids: bytes) -> Iterator[bytes]:
    """The chunks of a closing that could hold one of these sorted ids; some are laid end to end."""
    wanted = np.frombuffer(ids, f"S{ID_BYTES}")
    query = select(runs.c.number, runs.c.first).where(_of_closing(key)).order_by(runs.c.number, runs.c.first)
    for number, rows in groupby(connection.execute(query).all(), lambda row: row.number):
        firsts = [row.first for row in rows]
        below = np.append(np.searchsorted(wanted, np.array(firsts, f"S{ID_BYTES}")), len(wanted))
        near = [firsts[chunk] for chunk in np.flatnonzero(np.diff(below))]
        for some in _groups(near):
            chunks = select(runs.c.ids).where(_of_closing(key), runs.c.number == number, runs.c.first.in_(some))
            yield b"".join(connection.execute(chunks).scalars())


def run_sizes(connection: Connection, key: ClosingKey) -> dict[int, int]:
    """The bytes of each of a closing's runs by its number, the longest first."""
    query = select(runs.c.number, func.sum(func.length(runs.c.ids)).label("size")).where(_of_closing(key))
    rows = connection.execute(query.group_by(runs.c.number).order_by(runs.c.number))
    return {row.number: int(row.size) for row in rows}


def read_run(connection: Connection, key: ClosingKey, number: int) -> Iterator[bytes]:
    """A run in pieces of several chunks. Other runs may be written to meanwhile."""
    query = select(runs.c.first, runs.c.ids).where(_of_closing(key), runs.c.number == number)
    after = b""
    while rows := connection.execute(
        query.where(runs.c.first > after).order_by(runs.c.first).limit(_CHUNKS_AT_ONCE)
    ).all():
        yield b"".join(row.ids for row in rows)
        after = rows[-1].first


def replace_runs(
    connection: Connection, key: ClosingKey, replaced: Sequence[int], number: int, ids: Iterable[bytes]
) -> None:
    """Put a new run in place of others.

    replaced: the numbers of the others, which may be read until the last piece is taken. number: of the new run.
    ids: in sorted pieces.
    """
    survey, period = key
    of_run = {"survey": survey, "period": period, "number": number}
    for piece in ids:
        chunks = (piece[at : at + CHUNK_BYTES] for at in range(0, len(piece), CHUNK_BYTES))
        connection.execute(insert(runs), [{**of_run, "first": chunk[:ID_BYTES], "ids": chunk} for chunk in chunks])
    if replaced:
        connection.execute(delete(runs).where(_of_closing(key), runs.c.number.in_(replaced)))


def _of_closing(key: ClosingKey) -> ColumnElement[bool]:
    survey, period = key
    return and_(runs.c.survey == survey, runs.c.period == period)


def _groups(firsts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (firsts[at : at + _CHUNKS_AT_ONCE] for at in range(0, len(firsts), _CHUNKS_AT_ONCE))

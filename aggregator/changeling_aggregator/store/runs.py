"""The ids behind the tallies of what is not sealed, written in the transaction that adds to the tallies.

A closing has a few runs of sorted ids, each in chunks, so that a few ids are looked up by reading a few chunks, and
whatever reads a whole run holds a little of it at a time. A run never changes: another takes its place.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from changeling_protocol import SurveyId
from sqlalchemy import ColumnElement, and_, bindparam, case, delete, func, insert, select, tuple_

from .counted import ClosingKey
from .database import Bound
from .schema import runs

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


class RunName(NamedTuple):
    """Which run of a closing it is. As a number is given again where a transaction was lost, the first id is in it."""

    number: int
    first: bytes


_chunks, _counted = (
    runs.alias(),
    (
        select(runs.c.survey, runs.c.period, runs.c.number, func.count().label("chunks"))
        .where(runs.c.survey == bindparam("of"), runs.c.period.in_(bindparam("periods", expanding=True)))
        .group_by(runs.c.survey, runs.c.period, runs.c.number)
        .subquery()
    ),
)
_OF_COUNTED = and_(*(_chunks.c[name] == _counted.c[name] for name in ("survey", "period", "number")))
_FIRST = select(_chunks.c.first).where(_OF_COUNTED).order_by(_chunks.c.first).limit(1).scalar_subquery()
_ONLY_BYTES = case(
    (_counted.c.chunks == 1, select(func.length(_chunks.c.ids)).where(_OF_COUNTED).scalar_subquery()), else_=0
)
"""The length of a run's only chunk; 0 where it has several."""


class ReadRuns(Bound):
    """Reads runs of ids."""

    def runs(self, keys: Iterable[ClosingKey]) -> dict[ClosingKey, list[IdRun]]:
        """The runs of these closings, by their numbers; a closing without runs is left out."""
        found: dict[ClosingKey, list[IdRun]] = {}
        for key, number, first, chunks, only in self._counted_runs(keys, _ONLY_BYTES):
            found.setdefault(key, []).append(IdRun(number, first, only or chunks * CHUNK_BYTES))
        return {key: sorted(some) for key, some in found.items()}

    def runs_of_survey(self, survey: SurveyId) -> list[tuple[int, int]]:
        """The runs of a survey, as pairs of the closing's period and the run's number, in order."""
        query = select(runs.c.period, runs.c.number).where(runs.c.survey == survey).distinct()
        return sorted((row.period, row.number) for row in self._connection.execute(query))

    def chunks(self, keys: Iterable[ClosingKey]) -> dict[ClosingKey, dict[RunName, int]]:
        """How many chunks each run of these closings has; told by the index alone, so fast."""
        found: dict[ClosingKey, dict[RunName, int]] = {}
        for key, number, first, chunks in self._counted_runs(keys):
            found.setdefault(key, {})[RunName(number, first)] = chunks
        return found

    def chunks_near(self, key: ClosingKey, number: int, ids: bytes) -> Iterator[bytes]:
        """The chunks of a run that could hold one of these sorted ids; some are laid end to end."""
        if not ids:
            return
        wanted = np.frombuffer(ids, f"S{ID_BYTES}")
        query = select(runs.c.first).where(_of_run(key, number)).order_by(runs.c.first)
        firsts = self._connection.execute(query).scalars().all()
        below = np.append(np.searchsorted(wanted, np.array(firsts, f"S{ID_BYTES}")), len(wanted))
        near = [firsts[chunk] for chunk in np.flatnonzero(np.diff(below)).tolist()]
        for at in range(0, len(near), _CHUNKS_AT_ONCE):
            some = runs.c.first.in_(near[at : at + _CHUNKS_AT_ONCE])
            chunks = select(runs.c.ids).where(_of_run(key, number), some).order_by(runs.c.first)
            yield b"".join(self._connection.execute(chunks).scalars())

    def read_run(self, key: ClosingKey, number: int) -> Iterator[bytes]:
        """A run in pieces of several chunks. Other runs may be written to meanwhile."""
        query = select(runs.c.first, runs.c.ids).where(_of_run(key, number))
        after, more = b"", True
        while more:
            some = query.where(runs.c.first > after).order_by(runs.c.first).limit(_CHUNKS_AT_ONCE)
            rows = self._connection.execute(some).all()
            if rows:
                yield b"".join(row.ids for row in rows)
                after = rows[-1].first
            more = len(rows) == _CHUNKS_AT_ONCE

    def read_runs(self, named: Iterable[tuple[ClosingKey, int]]) -> dict[ClosingKey, list[bytes]]:
        """The chunks of short runs, by closing. named: runs by closing and number."""
        chunks: dict[ClosingKey, list[bytes]] = {}
        for survey, those in _some_of_a_survey(named):
            for period, ids in self._connection.execute(select(runs.c.period, runs.c.ids).where(those)):
                chunks.setdefault((survey, period), []).append(ids)
        return chunks

    def _counted_runs(self, keys: Iterable[ClosingKey], *more: ColumnElement[int]) -> Iterator[tuple[Any, ...]]:
        """The closing of each run, its number, its first id, how many chunks it has, and more of it, in no order."""
        query = select(_counted.c.period, _counted.c.number, _FIRST, _counted.c.chunks, *more)
        for survey, group in groupby(sorted(keys), lambda key: key[0]):
            periods = [period for _, period in group]
            for at in range(0, len(periods), _NAMED_AT_ONCE):
                some = {"of": survey, "periods": periods[at : at + _NAMED_AT_ONCE]}
                for period, *run in self._connection.execute(query, some):
                    yield ((survey, period), *run)


class WriteRuns(ReadRuns):
    """Writes runs of ids."""

    def put_runs(self, added: Iterable[tuple[ClosingKey, int, bytes]]) -> None:
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
            self._connection.execute(insert(runs), rows)

    def drop_runs(self, named: Iterable[tuple[ClosingKey, int]]) -> None:
        """Delete runs whose ids are in others by now. named: by closing and number."""
        for _, those in _some_of_a_survey(named):
            self._connection.execute(delete(runs).where(those))


def _some_of_a_survey(named: Iterable[tuple[ClosingKey, int]]) -> Iterator[tuple[SurveyId, ColumnElement[bool]]]:
    for survey, of_survey in groupby(sorted(named), lambda name: name[0][0]):
        pairs = [(period, number) for (_, period), number in of_survey]
        for at in range(0, len(pairs), _NAMED_AT_ONCE):
            some = tuple_(runs.c.period, runs.c.number).in_(pairs[at : at + _NAMED_AT_ONCE])
            yield survey, and_(runs.c.survey == survey, some)


def _of_closing(key: ClosingKey) -> ColumnElement[bool]:
    survey, period = key
    return and_(runs.c.survey == survey, runs.c.period == period)


def _of_run(key: ClosingKey, number: int) -> ColumnElement[bool]:
    return and_(_of_closing(key), runs.c.number == number)

"""Which ids were counted before: the high halves of runs, kept in memory, as runs never change.

The whole ids are read from the store only near those whose high half was seen. So an id costs a search in memory, and
what is looked up is what the store's transaction sees, whoever wrote it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from sqlalchemy import Connection

from ..store import ClosingKey
from ..store.runs import CHUNK_BYTES, Run, chunks_near, read_run, runs_of
from .halves import HighHalves, SortedIds, found_in
from .ids import high_halves, ids_in
from .runs import Added

MOST_BYTES = 384 * 2**20
"""So much memory for high halves, of 33 million ids at least. Of other runs the chunks near are read each time."""

_Name: TypeAlias = tuple[ClosingKey, int, bytes]
"""Of a run: its closing, its number, and its first id."""


class SeenIds:
    """Looks ids up, and remembers the high halves of the runs that it met last."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[_Name, HighHalves] = OrderedDict()

    def near(
        self, connection: Connection, written: Mapping[ClosingKey, SortedIds], wanted: Mapping[ClosingKey, bytes]
    ) -> Iterator[tuple[ClosingKey, bytes]]:
        """Ids that were counted, by closing, among them all of those wanted that were.

        written: ids that count too, whether the transaction sees them already or not. wanted: sorted ids laid end to
        end. Gives such pieces.
        """
        runs = runs_of(connection, wanted)
        for key, packed in wanted.items():
            ids = ids_in(packed)
            high = high_halves(ids)
            if key in written and len(found_in(high, [written[key].high])[0]):
                yield key, written[key].packed
            halves = {run: self._halves(connection, key, run, len(ids)) for run in runs.get(key, ())}
            known = {run: each for run, each in halves.items() if each is not None}
            places = dict(zip(known, found_in(high, known.values()), strict=True))
            for run in halves:
                near = ids[places[run]].tobytes() if run in places else packed
                for piece in chunks_near(connection, key, run.number, near):
                    yield key, piece

    def remember(self, key: ClosingKey, added: Added, ids: SortedIds) -> None:
        """Keep what was committed. ids: those that were added."""
        names = [(key, run.number, run.first) for run in added.merged]
        others = [self._kept[name] for name in names if name in self._kept]
        for name in names:
            self._forget(name)
        name = key, added.run.number, added.run.first
        if not added.merged:
            self._keep(name, ids.high)
        elif name not in self._kept and len(others) == len(names):
            together = np.concatenate([each.halves for each in (ids.high, *others)])
            self._keep(name, HighHalves.of(np.sort(together, kind="stable")))  # which merges what is sorted

    def _halves(self, connection: Connection, key: ClosingKey, run: Run, wanted: int) -> HighHalves | None:
        """A run's high halves; None where to read the chunks near so many ids is less than to read all of it."""
        name = key, run.number, run.first
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        if run.size > wanted * CHUNK_BYTES or run.size // 2 > self._most:
            return None
        pieces = [high_halves(ids_in(piece)) for piece in read_run(connection, key, run.number)]
        halves = HighHalves.of(np.concatenate(pieces))
        self._keep(name, halves)
        return halves

    def _keep(self, name: _Name, halves: HighHalves) -> None:
        self._forget(name)  # where the next batch has read it before its own remembers it
        self._kept[name] = halves
        self._bytes += halves.nbytes
        while self._bytes > self._most:
            self._forget(next(iter(self._kept)))

    def _forget(self, name: _Name) -> None:
        if name in self._kept:
            self._bytes -= self._kept.pop(name).nbytes

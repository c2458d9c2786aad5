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
from .ids import Halves, halves_in, high_halves, ids_in

MOST_BYTES = 256 * 2**20
"""So much memory for high halves, of 33 million ids. Of other runs the chunks near are read each time."""

_Name: TypeAlias = tuple[ClosingKey, int, bytes]
"""Of a run: its closing, its number, and its first id."""


class SeenIds:
    """Looks ids up, and remembers the high halves of the runs that it met last."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[_Name, Halves] = OrderedDict()

    def near(
        self, connection: Connection, written: Mapping[ClosingKey, bytes], wanted: Mapping[ClosingKey, bytes]
    ) -> Iterator[tuple[ClosingKey, bytes]]:
        """Ids that were counted, by closing, among them all of those wanted that were.

        written: ids that count too, whether the transaction sees them already or not. wanted: sorted ids laid end to
        end. Gives such pieces.
        """
        yield from ((key, ids) for key, ids in written.items() if key in wanted)
        for key, runs in runs_of(connection, wanted).items():
            ids = ids_in(wanted[key])
            high = high_halves(ids)
            for run in runs:
                halves = self._halves(connection, key, run, len(ids))
                near = ids if halves is None else ids[halves_in(high, halves)]
                for piece in chunks_near(connection, key, run.number, near.tobytes()):
                    yield key, piece

    def remember(self, key: ClosingKey, run: Run, ids: bytes) -> None:
        """Keep what is in a run that was committed."""
        self._keep((key, run.number, run.first), high_halves(ids_in(ids)))

    def _halves(self, connection: Connection, key: ClosingKey, run: Run, wanted: int) -> Halves | None:
        """A run's high halves; None where to read the chunks near so many ids is less than to read all of it."""
        name = key, run.number, run.first
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        if run.size > wanted * CHUNK_BYTES or run.size // 2 > self._most:
            return None
        halves = np.concatenate([high_halves(ids_in(piece)) for piece in read_run(connection, key, run.number)])
        self._keep(name, halves)
        return halves

    def _keep(self, name: _Name, halves: Halves) -> None:
        before = self._kept.pop(name, None)  # where the next batch has read it before its own remembers it
        self._kept[name] = halves
        self._bytes += halves.nbytes - (0 if before is None else before.nbytes)
        while self._bytes > self._most:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.nbytes

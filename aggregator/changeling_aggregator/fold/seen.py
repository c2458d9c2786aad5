"""Which ids were counted before: the high halves of runs, kept in memory, as runs never change.

The whole ids are read from the store only near those whose high half was seen. So an id costs a look into memory, and
what is looked up is what the store's transaction sees, whoever wrote it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

import numpy as np
from sqlalchemy import Connection

from ..store import ClosingKey
from ..store.runs import CHUNK_BYTES, ID_BYTES, RunName, chunks_near, chunks_of, read_run
from .halves import BYTES_AN_ID, ClosingHalves, SortedIds, found_in
from .ids import high_halves, ids_in
from .runs import Added

MOST_BYTES = 384 * 2**20
"""So much memory for high halves, of 33 million ids at least. Of other runs the chunks near are read each time."""


class SeenIds:
    """Looks ids up, and remembers the high halves of the closings that it met last."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[ClosingKey, tuple[ClosingHalves, int]] = OrderedDict()

    def near(
        self, connection: Connection, written: Mapping[ClosingKey, SortedIds], wanted: Mapping[ClosingKey, bytes]
    ) -> Iterator[tuple[ClosingKey, bytes]]:
        """Ids that were counted, by closing, among them all of those wanted that were.

        written: ids that count too, whether the transaction sees them already or not. wanted: sorted ids laid end to
        end. Gives such pieces.
        """
        runs = chunks_of(connection, wanted)
        for key, packed in wanted.items():
            ids = ids_in(packed)
            closing = self._closing(key)
            there = runs.get(key, {})
            closing.forget_gone(there)
            for name, chunks in there.items():
                if closing.of_run(name) is None and chunks <= len(ids):
                    self._read(connection, closing, key, name, chunks)
            if key in written:
                closing.write(written[key])
            self._keep(key, closing)
            high = high_halves(ids)
            likely = closing.likely(high)
            few = high[likely]
            if key in written and len(found_in(few, written[key].high)):
                yield key, written[key].packed
            for name in there:
                halves, near = closing.of_run(name), packed
                if halves is not None:
                    found = found_in(few, halves)
                    if not len(found):
                        continue
                    near = ids[likely[found]].tobytes()
                for piece in chunks_near(connection, key, name.number, near):
                    yield key, piece

    def remember(self, key: ClosingKey, added: Added, ids: SortedIds) -> None:
        """Keep what was committed. ids: those that were added."""
        closing = self._closing(key)
        if self._fits(closing, len(ids.high)):
            merged = [RunName(run.number, run.first) for run in added.merged]
            closing.replace(merged, RunName(added.run.number, added.run.first), ids)
            self._keep(key, closing)

    def _closing(self, key: ClosingKey) -> ClosingHalves:
        """What is remembered of a closing, or nothing yet."""
        return self._kept[key][0] if key in self._kept else ClosingHalves()

    def _read(
        self, connection: Connection, closing: ClosingHalves, key: ClosingKey, name: RunName, chunks: int
    ) -> None:
        """Keep a run's high halves, if there is room for them."""
        if self._fits(closing, (chunks - 1) * CHUNK_BYTES // ID_BYTES):
            halves = np.concatenate([high_halves(ids_in(piece)) for piece in read_run(connection, key, name.number)])
            if self._fits(closing, len(halves)):
                closing.keep(name, halves)

    def _fits(self, closing: ClosingHalves, more: int) -> bool:
        """Whether so many ids more of a closing may be kept: else it would have to go, and be read again each time."""
        return BYTES_AN_ID * (closing.ids + more) <= self._most

    def _keep(self, key: ClosingKey, closing: ClosingHalves) -> None:
        """As the last that was met, in the place of those that were met longest ago; by itself it fits."""
        _, before = self._kept.pop(key, (closing, 0))
        self._kept[key] = closing, closing.nbytes
        self._bytes += closing.nbytes - before
        while self._bytes > self._most and len(self._kept) > 1:
            _, (_, size) = self._kept.popitem(last=False)
            self._bytes -= size

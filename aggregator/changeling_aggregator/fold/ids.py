"""Ids of closings that were counted: told from fresh ones fast, and exactly, from batch to batch.

Ids are pairs of 64-bit halves, big-endian, high before low: sorting by them sorts the bytes. The store keeps those of a
closing in a few runs of sorted ids. Their high halves are kept in memory, as they nearly always tell ids apart; the
store's runs are read only for ids whose high half was met, which are those of duplicates, or chosen by somebody.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import randbelow

import numpy as np
from numpy.typing import NDArray

from ..store import ID_BYTES, ClosingKey, IdRun, Transaction, View

Ids = NDArray[np.uint64]
"""Ids as halves, of shape (n, 2), big-endian."""
Halves = NDArray[np.uint64]
Places = NDArray[np.int64]

MOST_BYTES = 384 * 2**20
"""The memory for high halves, of 48 million ids. Of other runs the chunks near an id are read each time."""
_MOST_RUNS = 16
"""The runs of about one length that a closing has; with one more they become one, at once or soon."""
_MOST_MERGED_BYTES = 32 * 2**20
"""A run of so many bytes stays as it is, so that neither memory nor a transaction grows with the number of ids."""
_MOST_REWRITTEN = 4
"""How many times as much as it adds a transaction rewrites, about, so that none takes very long."""
_LEAST_REWRITTEN_BYTES = 32 * 2**20
"""The bytes that a transaction may rewrite in any case."""


def ids_in(packed: bytes) -> Ids:
    """Ids laid end to end."""
    return np.frombuffer(packed, ">u8").reshape(-1, 2)


def high_halves(ids: Ids) -> Halves:
    """The upper halves of ids, as numbers that the processor compares."""
    return ids[:, 0].astype(np.uint64)


def first_of_each(ids: Ids) -> Places:
    """The places of the first of each id, in the order of ids."""
    high = high_halves(ids)
    order: Places = np.argsort(high)
    if not _any_alike(high[order]):
        return order
    order = np.lexsort((ids[:, 1], high))
    ordered = ids[order]
    again = np.r_[False, (ordered[1:] == ordered[:-1]).all(axis=1)]
    firsts: Places = order[~again]
    return firsts


def are_in(ids: Ids, others: Ids) -> NDArray[np.bool_]:
    """Tell whether each id is among others, which are sorted."""
    if not len(others):
        return np.zeros(len(ids), bool)
    high, also = high_halves(ids), high_halves(others)
    at = np.searchsorted(also, high)
    at[at == len(also)] = 0
    alike = also[at] == high
    found: NDArray[np.bool_] = alike & (others[at, 1] == ids[:, 1])
    for place in np.flatnonzero(alike & ~found).tolist():
        last = np.searchsorted(also, high[place], "right")
        found[place] = ids[place, 1] in others[at[place] : last, 1]
    return found


def merged_ids(runs: Sequence[bytes]) -> bytes:
    """Several sorted runs of ids, no id in two of them, as one."""
    if len(runs) == 1:
        return runs[0]
    ids = ids_in(b"".join(runs))
    high = high_halves(ids)
    order = np.argsort(high, kind="stable")  # which merges what is sorted
    if _any_alike(high[order]):
        order = np.lexsort((ids[:, 1], high))
    return ids.take(order, axis=0).tobytes()


def _any_alike(ordered: Halves) -> bool:
    return bool((ordered[1:] == ordered[:-1]).any())


@dataclass(slots=True)
class _Closing:
    """High halves of a closing's ids. runs: the numbers of runs all of whose halves are here, perhaps beside others.
    levels: sorted, each about twice as long as the next, or longer.
    """

    runs: set[int] = field(default_factory=set)
    levels: list[Halves] = field(default_factory=list)

    def add(self, halves: Halves) -> None:
        """Add some, which are sorted. Levels that are not much longer become one with them: so there are few."""
        while self.levels and len(self.levels[-1]) < 2 * len(halves):
            both = np.sort(np.concatenate([self.levels.pop(), halves]), kind="stable")  # which merges
            halves = both[np.r_[True, both[1:] != both[:-1]]]
        self.levels.append(halves)


class SeenIds:
    """Looks ids up, and remembers the high halves of the closings that it met last.

    What is looked up is what the store's transaction sees, whoever wrote it: a run never changes.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes // np.dtype(np.uint64).itemsize
        self._closings: OrderedDict[ClosingKey, _Closing] = OrderedDict()

    def near(self, view: View, wanted: Mapping[ClosingKey, bytes]) -> Iterator[tuple[ClosingKey, bytes]]:
        """Ids that were counted, by closing, among them all of those wanted that were.

        wanted: sorted ids laid end to end. Gives such pieces.
        """
        there = view.runs(wanted)
        for key, runs in there.items():
            closing = self._closings[key] = self._closings.pop(key, _Closing())
            closing.runs.intersection_update(run.number for run in runs)
        room = self._most - self.remembered
        for key, runs in there.items():
            ids, closing = ids_in(wanted[key]), self._closings[key]
            for run in runs:
                if run.number not in closing.runs and run.chunks <= len(ids):
                    while room < run.size // ID_BYTES and (first := next(iter(self._closings))) not in there:
                        room += sum(map(len, self._closings.pop(first).levels))
                    if room >= run.size // ID_BYTES:
                        pieces = [high_halves(ids_in(piece)) for piece in view.read_run(key, run.number)]
                        closing.add(np.concatenate(pieces))
                        closing.runs.add(run.number)
                        room -= sum(map(len, pieces))
            high, likely = high_halves(ids), np.zeros(len(ids), bool)
            for level in closing.levels:
                likely |= level.take(level.searchsorted(high), mode="clip") == high
            near = ids[likely].tobytes()
            for run in runs:
                for piece in view.read_run(key, run.number, near if run.number in closing.runs else wanted[key]):
                    yield key, piece

    @property
    def remembered(self) -> int:
        """How many high halves are in memory, of 8 bytes each."""
        return sum(len(level) for closing in self._closings.values() for level in closing.levels)


def add_ids(writing: Transaction, added: Mapping[ClosingKey, bytes]) -> int:
    """Add ids to those counted. added: by closing, sorted, laid end to end, none of them counted before.

    A closing has a few runs of each length, so that a batch rewrites little: with each rewriting an id gets into a run
    several times as long. Where that would be much more than is added, some closings keep more runs for a while. Where
    a closing has none, as Spark took them over, the number is drawn, so that none of before has it.
    Returns how many bytes it rewrote.
    """
    runs = writing.runs(added)
    left = max(_LEAST_REWRITTEN_BYTES, _MOST_REWRITTEN * sum(map(len, added.values())))
    merging: dict[ClosingKey, list[IdRun]] = {}
    for key, kept in sorted(runs.items(), key=lambda item: -len(item[1])):
        if left > 0:
            merging[key] = kept[runs_kept([run.size for run in kept], len(added[key])) :]
            left -= sum(run.size for run in merging[key])
    names = [(key, run.number) for key, some in merging.items() for run in some]
    chunks = writing.read_runs(names)
    whole = (
        (key, runs[key][-1].number + 1 if key in runs else randbelow(2**30), merged_ids([*chunks.pop(key, []), ids]))
        for key, ids in added.items()
    )
    writing.replace_runs(names, whole)
    return sum(run.size for some in merging.values() for run in some)


def runs_kept(sizes: Sequence[int], size: int) -> int:
    """How many runs of these sizes, the oldest first, stay as they are when one of this size is added.

    >>> runs_kept([16 * 80, *[16] * 15], 16), runs_kept([16 * 80, *[16] * 16], 16)
    (16, 1)
    """
    kept = len(sizes)
    while True:
        longer = next((at for at in range(kept, 0, -1) if _length(sizes[at - 1]) > _length(size)), 0)
        if kept - longer < _MOST_RUNS or size + sum(sizes[longer:kept]) > _MOST_MERGED_BYTES:
            return kept
        size += sum(sizes[longer:kept])
        kept = longer


def _length(size: int) -> int:
    """About how long a run is: one that is sixteen times as long is one more."""
    return (size // ID_BYTES).bit_length() // 4

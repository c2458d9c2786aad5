"""The links of the chains of nodes that tell, or bound, who changed between two times."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from .network import Indices
from .releases import Releases


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The change nodes that chains lead over.

    source: the edge whose tally says who changed, shape (links,). start, end: the times that it links.
    tells: whether that is exact.
    """

    source: Indices
    start: Indices
    end: Indices
    tells: NDArray[np.bool_]


def links(releases: Releases, changes: Indices, identified: NDArray[np.bool_]) -> Links:
    """The change nodes that chains are made of. For one that is lost the last before it on its track stands in.

    changes: the edges of change nodes that start after time 0. identified: of all nodes, those whose tally tells who
    changed, shape (nodes,).
    """
    network = releases.network
    ids = {(used.track, used.number): edge for edge, used in enumerate(releases.nodes)}
    later, last = set(changes.tolist()), int(network.end.max(initial=0))
    source, start, end = [], [], []
    for number in np.unique(releases.track[changes]).tolist():
        track, before = releases.survey.plan.tracks[number], None
        for at in track.node_numbers():
            edge, node = ids.get((number, at)), track.node(at)
            if edge is not None:
                before = edge if edge in later else None
            elif before is not None and node.end <= last:
                source.append(before)
                start.append(node.start)
                end.append(node.end)
    return Links(
        source=np.concatenate([changes, np.array(source, np.intp)]),
        start=np.concatenate([network.start[changes], np.array(start, np.intp)]),
        end=np.concatenate([network.end[changes], np.array(end, np.intp)]),
        tells=np.concatenate([identified[changes], np.zeros(len(source), np.bool_)]),
    )


@dataclass(frozen=True, eq=False)
class Routes:
    """The shortest chains of edges between all pairs of some times.

    periods: the last time there may be.
    start, end: the two times of each edge, shape (E,).
    length: the share of entries that is expected to change on each edge, above 0, shape (E,).
    tells: whether each edge's tally tells who changed from what to what, shape (E,).
    times: the F times between which chains are sought, rising, shape (F,).
    """

    periods: int
    start: Indices
    end: Indices
    length: Floats
    tells: NDArray[np.bool_]
    times: Indices

    @cached_property
    def first(self) -> Indices:
        """The earlier time of every pair, as an index into `times`: shape (F(F-1)/2,)."""
        return np.triu_indices(len(self.times), 1)[0].astype(np.intp)

    @cached_property
    def second(self) -> Indices:
        """The later time of every pair, as an index into `times`: shape (F(F-1)/2,)."""
        return np.triu_indices(len(self.times), 1)[1].astype(np.intp)

    def pair(self, start: Indices, end: Indices) -> Indices:
        """The number of the pair of these two times, start < end, among all pairs; -1 if they are not in `times`."""
        F = len(self.times)
        if F == 0:
            return np.full(len(start), -1, np.intp)
        i, j = (np.minimum(np.searchsorted(self.times, times), F - 1) for times in (start, end))
        number = i * F - i * (i + 1) // 2 + j - i - 1
        return np.where((self.times[i] == start) & (self.times[j] == end), number, -1).astype(np.intp)

    @property
    def expected(self) -> Floats:
        """The length of each pair's chain, shape (F(F-1)/2,); inf if there is none."""
        return self._of_pairs[0]

    @property
    def hops(self) -> NDArray[np.int32]:
        """How many edges each pair's chain has, shape (F(F-1)/2,); 0 if there is none."""
        return self._of_pairs[1]

    @property
    def told(self) -> NDArray[np.bool_]:
        """Whether every edge of a pair's chain tells who changed, shape (F(F-1)/2,); true if it has none."""
        return self._of_pairs[2]

    def chains(self, pairs: Indices | None = None) -> Any:
        """Which edges the chains of p pairs are made of: sparse, shape (p, E).

        pairs: their numbers; None for all, which is worked out once.
        """
        return self._all_chains if pairs is None else self._chains(pairs)

    @cached_property
    def _all_chains(self) -> Any:
        return self._chains(np.arange(len(self.first), dtype=np.intp))

    def _chains(self, pairs: Indices) -> Any:
        from scipy.sparse import csr_matrix  # late: it loads slowly

        last = self._shortest.last
        at, source = self.times[self.second[pairs]], self.first[pairs]
        going = np.flatnonzero(last[at, source] >= 0)
        rows, columns = [], []
        while len(going):
            edge = last[at[going], source[going]]
            rows.append(going)
            columns.append(edge)
            at[going] = self.start[edge]
            going = going[at[going] != self.times[source[going]]]
        row = np.concatenate([*rows, np.zeros(0, np.intp)])
        column = np.concatenate([*columns, np.zeros(0, np.intp)])
        return csr_matrix((np.ones(len(row)), (row, column)), shape=(len(pairs), len(self.start)))

    @cached_property
    def _of_pairs(self) -> tuple[Floats, NDArray[np.int32], NDArray[np.bool_]]:
        at, found = (self.times[self.second], self.first), self._shortest
        return found.length[at], found.hops[at], found.told[at]

    @cached_property
    def _shortest(self) -> "_Shortest":
        """Edge by edge in the order of their ends: what leads to the start of an edge is known by then."""
        shape = self.periods + 1, len(self.times)
        length, told = np.full(shape, np.inf), np.ones(shape, np.bool_)
        hops, last = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        length[self.times, np.arange(shape[1])] = 0.0
        distinct = self._distinct[np.lexsort((self.start[self._distinct], self.end[self._distinct]))]
        earlier = np.searchsorted(self.times, self.start[distinct], side="right")
        for edge, sources in zip(distinct.tolist(), earlier.tolist(), strict=True):
            start, end = self.start[edge], self.end[edge]
            there = length[start, :sources] + self.length[edge]
            better = np.flatnonzero(there < length[end, :sources])
            length[end, better], last[end, better] = there[better], edge
            hops[end, better] = hops[start, better] + 1
            told[end, better] = told[start, better] & self.tells[edge]
        return _Shortest(length, hops, told, last)

    @cached_property
    def _distinct(self) -> Indices:
        """The edges of distinct spans: of several over one span, the first."""
        keys = self.start * (self.periods + 1) + self.end
        first: Indices = np.unique(keys, return_index=True)[1].astype(np.intp)
        return first


@dataclass(frozen=True, slots=True, eq=False)
class _Shortest:
    """The shortest chains from F times to the times 0..T, each of shape (T+1, F).

    length, hops, told: as of `Routes`. last: the last edge of a chain, -1 if there is none.
    """

    length: Floats
    hops: NDArray[np.int32]
    told: NDArray[np.bool_]
    last: NDArray[np.int32]


def routes(
    periods: int, start: Indices, end: Indices, length: Floats, tells: NDArray[np.bool_], times: Indices
) -> Routes:
    """The `Routes` of these, worked out once for edges and times that are the same."""
    edges = start.tobytes(), end.tobytes(), length.tobytes(), tells.tobytes()
    return _routes(periods, *edges, times.tobytes())


@lru_cache(maxsize=4)
def _routes(periods: int, start: bytes, end: bytes, length: bytes, tells: bytes, times: bytes) -> Routes:
    first, last, at = (np.frombuffer(each, np.intp) for each in (start, end, times))
    return Routes(periods, first, last, np.frombuffer(length), np.frombuffer(tells, np.bool_), at)

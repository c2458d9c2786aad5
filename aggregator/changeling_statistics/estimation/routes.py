"""Chains of published change nodes that lead from one time to another.

A node (s, e] tells how many entries changed between s and e. Over a span that is no node, the nodes of a chain add up
to at least that: an entry that came back has changed in between, but not over the span. A chain goes forward only, so
that what closes later never changes which is taken; nor do tallies.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from .network import Indices


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

    @cached_property
    def expected(self) -> Floats:
        """The length of each pair's chain, shape (F(F-1)/2,); inf if there is none."""
        distance: Floats = self._shortest[0][self.first, self.times[self.second]]
        return distance

    @cached_property
    def hops(self) -> NDArray[np.int64]:
        """How many edges each pair's chain has, shape (F(F-1)/2,); 0 if there is none."""
        counts: NDArray[np.int64] = np.diff(self.incidence.indptr).astype(np.int64)
        return counts

    @cached_property
    def told(self) -> NDArray[np.bool_]:
        """Whether every edge of a pair's chain tells who changed, shape (F(F-1)/2,); true if it has none."""
        silent = self.incidence @ (~self.tells).astype(np.float64)
        told: NDArray[np.bool_] = silent == 0
        return told

    @cached_property
    def incidence(self) -> Any:
        """Which edges each pair's chain is made of: sparse, shape (F(F-1)/2, E)."""
        from scipy.sparse import csr_matrix

        predecessors = self._shortest[1]
        pairs = np.flatnonzero(np.isfinite(self.expected))
        at, source = self.times[self.second[pairs]].copy(), self.first[pairs]
        rows, columns = [], []
        while len(pairs):
            before = predecessors[source, at].astype(np.intp)
            rows.append(pairs)
            columns.append(self._edge(np.minimum(before, at), np.maximum(before, at)))
            going = before != self.times[source]
            pairs, at, source = pairs[going], before[going], source[going]
        row = np.concatenate([*rows, np.zeros(0, np.intp)])
        column = np.concatenate([*columns, np.zeros(0, np.intp)])
        return csr_matrix((np.ones(len(row)), (row, column)), shape=(len(self.first), len(self.start)))

    @cached_property
    def _shortest(self) -> tuple[Floats, NDArray[np.int32]]:
        from scipy.sparse import csgraph, csr_matrix

        n = self.periods + 1
        start, end, length = self.start[self._distinct], self.end[self._distinct], self.length[self._distinct]
        links = csr_matrix((length, (start, end)), shape=(n, n))
        distance, before = csgraph.dijkstra(links, directed=True, indices=self.times, return_predecessors=True)
        return distance, before

    @cached_property
    def _distinct(self) -> Indices:
        """The edges of distinct spans: of several over one span, the first."""
        return np.unique(self._keys, return_index=True)[1].astype(np.intp)

    @cached_property
    def _keys(self) -> Indices:
        return self.start * (self.periods + 1) + self.end

    def _edge(self, start: Indices, end: Indices) -> Indices:
        """The numbers of the edges over these spans, of the same shape."""
        keys = self._keys[self._distinct]
        return self._distinct[np.searchsorted(keys, start * (self.periods + 1) + end)]


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

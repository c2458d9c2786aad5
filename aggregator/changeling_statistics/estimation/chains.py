"""Chains of published change nodes that lead from one time to another: they tell, or bound, who changed in between.

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
class Chains:
    """The shortest chains of edges between all P = F(F-1)/2 pairs of some times.

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
        """The earlier time of every pair, as an index into `times`, shape (P,)."""
        return np.triu_indices(len(self.times), 1)[0].astype(np.intp)

    @cached_property
    def second(self) -> Indices:
        """The later time of every pair, as an index into `times`, shape (P,)."""
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
        """The length of each pair's chain, shape (P,); inf if there is none."""
        length: Floats = self._shortest[0][self.times[self.second], self.first]
        return length

    @cached_property
    def hops(self) -> NDArray[np.int32]:
        """How many edges each pair's chain has, shape (P,); 0 if there is none."""
        hops: NDArray[np.int32] = self._shortest[1][self.times[self.second], self.first]
        return hops

    @cached_property
    def told(self) -> NDArray[np.bool_]:
        """True if every edge of a pair's chain tells who changed, shape (P,); true if it has none."""
        told: NDArray[np.bool_] = self._shortest[2][self.times[self.second], self.first]
        return told

    def edges(self, pairs: Indices | None = None) -> Any:
        """Which edges the chains of p pairs are made of: sparse, shape (p, E). pairs: their numbers; None for all."""
        return self._edges_of_all if pairs is None else self._edges(pairs)

    @cached_property
    def _edges_of_all(self) -> Any:
        return self._edges(np.arange(len(self.first), dtype=np.intp))

    def _edges(self, pairs: Indices) -> Any:
        from scipy.sparse import csr_matrix  # late: it loads slowly

        last = self._shortest[3]
        at, source = self.times[self.second[pairs]], self.first[pairs]
        going = np.flatnonzero(last[at, source] >= 0)
        rows, columns = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
        while len(going):
            edge = last[at[going], source[going]]
            rows.append(going)
            columns.append(edge)
            at[going] = self.start[edge]
            going = going[at[going] != self.times[source[going]]]
        row, column = np.concatenate(rows), np.concatenate(columns)
        return csr_matrix((np.ones(len(row)), (row, column)), shape=(len(pairs), len(self.start)))

    @cached_property
    def _shortest(self) -> tuple[NDArray[Any], ...]:
        """Length, hops and `told` of the shortest chains, and the last edge of each, -1 if there is none.

        Edge by edge in the order of their ends: what leads to the start of an edge is known by then. Of several over
        one span the first counts.
        """
        shape = self.periods + 1, len(self.times)
        length, told = np.full(shape, np.inf), np.ones(shape, np.bool_)
        hops, last = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        length[self.times, np.arange(shape[1])] = 0.0
        distinct = np.unique(self.end * (self.periods + 1) + self.start, return_index=True)[1]
        earlier = np.searchsorted(self.times, self.start[distinct], side="right")
        for edge, sources in zip(distinct.tolist(), earlier.tolist(), strict=True):
            start, end = self.start[edge], self.end[edge]
            there = length[start, :sources] + self.length[edge]
            better = np.flatnonzero(there < length[end, :sources])
            length[end, better], last[end, better] = there[better], edge
            hops[end, better] = hops[start, better] + 1
            told[end, better] = told[start, better] & self.tells[edge]
        return length, hops, told, last


def chains(periods: int, made: Links, length: Floats, times: Indices) -> Chains:
    """The `Chains` of some links, worked out once for links and times that are the same."""
    return _chains(periods, *(each.tobytes() for each in (made.start, made.end, length, made.tells, times)))


@lru_cache(maxsize=4)
def _chains(periods: int, start: bytes, end: bytes, length: bytes, tells: bytes, times: bytes) -> Chains:
    first, last, at = (np.frombuffer(each, np.intp) for each in (start, end, times))
    return Chains(periods, first, last, np.frombuffer(length), np.frombuffer(tells, np.bool_), at)

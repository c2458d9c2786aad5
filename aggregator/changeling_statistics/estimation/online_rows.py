"""The weights of online estimates at every time, one edge after another.

What `recursion` does to estimates, done to the rows of weights that they are made with. The weights depend on the times
and variances of edges alone, so that values, variances and whatever else is linear in weights or in their squares comes
for all times at once. A time stays in the state for as long as a node that started there is open, and for `lag` periods
after: then the estimate at that time, as it was known later, is there too.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from .network import Network
from .recursion import GROUND, last_uses


class _State:
    """The joint estimate of some times as rows of weights, in a table whose rows are used again.

    weights: shape (rows, E). planned: their covariance, shape (rows, rows). part: of each row the number of its
    connected part, -1 for a row that is free.
    """

    def __init__(self, rows: int, edges: int) -> None:
        self.weights, self._products = np.zeros((rows, edges)), np.empty((rows, edges))
        self.planned = np.zeros((rows, rows))
        self.part = np.full(rows, -1, np.intp)
        self._free = list(range(rows - 1, -1, -1))

    def add(self, time: int) -> int:
        """A row for a time of which nothing is known."""
        row = self._free.pop()
        self.part[row] = time
        self.weights[row] = 0.0
        self.planned[row] = 0.0
        self.planned[:, row] = 0.0
        return row

    def drop(self, row: int) -> None:
        """A row that is not needed any more. It goes on changing with the others until it is used again."""
        self.part[row] = -1
        self._free.append(row)

    def update(self, start: int, end: int, edge: int, first: int, variance: float) -> None:
        """One more edge between two rows of one part. first: in the weights of edges before the two do not differ."""
        P, known = self.planned, slice(first, edge + 1)
        toward = P[end] - P[start]
        gain = (toward / (toward[end] - toward[start] + variance))[:, None]
        innovation = self.weights[start, known] - self.weights[end, known]
        innovation[-1] = 1.0
        self.weights[:, known] += np.multiply(gain, innovation, out=self._products[:, known])
        P -= gain * toward

    def begin(self, fresh: int, start: int, edge: int, variance: float) -> None:
        """The first edge to a row of which nothing is known: it is where the edge says."""
        P = self.planned
        self.weights[fresh, :edge] = self.weights[start, :edge]
        self.weights[fresh, edge] = 1.0
        P[fresh] = P[start]
        P[:, fresh] = P[:, start]
        P[fresh, fresh] = P[start, start] + variance
        self.part[fresh] = self.part[start]

    def join(self, moved: NDArray[np.bool_], fixed: int, loose: int, edge: int, variance: float, sign: float) -> None:
        """The first edge between two parts: one is shifted as a whole to where the edge says it is."""
        self.weights[moved] += self.weights[fixed] - self.weights[loose]
        self.weights[moved, edge] += sign
        P = self.planned
        P[moved] += P[fixed] - P[loose]
        P[:, moved] += (P[:, fixed] - P[:, loose])[:, None]
        P[np.ix_(moved, moved)] += variance
        self.part[moved] = self.part[fixed]


def online_rows(network: Network, until: int, lag: int = 0) -> Iterator[tuple[int, Floats | None, Floats | None]]:
    """(t, K_t, K_t - K_s) at each time t from 1 to `until`, from the edges that end by t; s = t - lag.

    network: E edges, in order of their ends.
    lag: how long times are kept; at least 0. K_s is that of the histogram at s as it is known at t.
    Each is of shape (E,), and only good until the next is asked for; None for one that no edges lead to.
    """
    until_used = np.maximum(last_uses(network), np.arange(network.periods + 1) + lag)[: until + 1].tolist()
    dropped: list[list[int]] = [[] for _ in range(until + 1)]
    for time in range(1, until + 1):
        if until_used[time] <= until:
            dropped[until_used[time]].append(time)
    most = at_once = 1
    for period in range(1, until + 1):
        at_once += 1
        most = max(most, at_once)
        at_once -= len(dropped[period])
    state = _State(most, len(network.start))
    row_of: dict[int, int] = {0: state.add(0)}
    bounds = np.searchsorted(network.end, np.arange(until + 2)).tolist()
    starts, variances = network.start.tolist(), network.variance.tolist()
    firsts = _first_differing(network)
    for period in range(1, until + 1):
        here = row_of[period] = state.add(period)
        for edge in range(bounds[period], bounds[period + 1]):
            i = row_of[starts[edge]]
            if edge == bounds[period]:
                state.begin(here, i, edge, variances[edge])
            elif state.part[i] == state.part[here]:
                state.update(i, here, edge, firsts[edge], variances[edge])
            elif state.part[here] == GROUND:
                state.join(state.part == state.part[i], here, i, edge, variances[edge], -1.0)
            else:
                state.join(state.part == state.part[here], i, here, edge, variances[edge], 1.0)
        earlier = row_of.get(period - lag) if lag and period >= lag else None
        linked = earlier is not None and state.part[earlier] == state.part[here]
        yield (
            period,
            state.weights[here] if state.part[here] == GROUND else None,
            state.weights[here] - state.weights[earlier] if linked else None,
        )
        for time in dropped[period]:
            state.drop(row_of.pop(time))


def _first_differing(network: Network) -> list[int]:
    """For each edge, the first on whose weight the estimate of the change over it may hang, as it is known before.

    If no edge that ends within an edge's span begins before it, nothing that ended before the span tells anything of
    that change: the weights are 0, exactly. So in a hierarchy a short node takes a few steps, however late it closes.
    """
    firsts: list[int] = np.searchsorted(network.end, network.start, side="right").tolist()
    starts, rising = network.start.tolist(), list[int]()  # edges that begin before all that follow them so far
    for edge, start in enumerate(starts):
        while rising and starts[rising[-1]] >= start:
            rising.pop()
        if rising and rising[-1] >= firsts[edge]:
            firsts[edge] = 0
        rising.append(edge)
    return firsts

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
    connected part. time: of each row; -1 for one that is free.
    """

    def __init__(self, rows: int, edges: int) -> None:
        self.weights = np.zeros((rows, edges))
        self.planned = np.zeros((rows, rows))
        self.part = np.full(rows, -1, np.intp)
        self.time = np.full(rows, -1, np.intp)

    def add(self, time: int) -> int:
        """A row for a time of which nothing is known."""
        row = int(np.flatnonzero(self.time < 0)[0])
        self.time[row], self.part[row] = time, time
        self.weights[row] = 0.0
        self.planned[row] = 0.0
        self.planned[:, row] = 0.0
        return row

    def update(self, start: int, end: int, edge: int, variance: float) -> None:
        """One more edge between two rows of one part."""
        P, known = self.planned, slice(edge + 1)
        toward = P[end] - P[start]
        gain = toward / (toward[end] - toward[start] + variance)
        innovation = self.weights[start, known] - self.weights[end, known]
        innovation[edge] = 1.0
        self.weights[:, known] += gain[:, None] * innovation
        P -= gain[:, None] * toward

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
    last = last_uses(network)
    bounds = np.searchsorted(network.end, np.arange(until + 2))
    times = np.arange(len(last))
    open_at = np.zeros(until + 2, np.intp)
    np.add.at(open_at, times[1:][times[1:] <= until], 1)
    np.add.at(open_at, np.minimum(np.maximum(last, times + lag)[1:] + 1, until + 1)[:until], -1)
    state = _State(int(np.cumsum(open_at).max(initial=0)) + 3, len(network.start))
    row_of: dict[int, int] = {0: state.add(0)}
    starts, variances = network.start.tolist(), network.variance.tolist()
    for period in range(1, until + 1):
        here = row_of[period] = state.add(period)
        for edge in range(int(bounds[period]), int(bounds[period + 1])):
            i = row_of[starts[edge]]
            if state.part[i] == state.part[here]:
                state.update(i, here, edge, variances[edge])
            elif state.part[here] == GROUND:
                state.join(state.part == state.part[i], here, i, edge, variances[edge], -1.0)
            else:
                state.join(state.part == state.part[here], i, here, edge, variances[edge], 1.0)
        earlier = row_of.get(period - lag) if period >= lag else None
        linked = earlier is not None and state.part[earlier] == state.part[here]
        yield (
            period,
            state.weights[here] if state.part[here] == GROUND else None,
            state.weights[here] - state.weights[earlier] if linked else None,
        )
        for time in [time for time in row_of if time and max(int(last[time]), time + lag) <= period]:
            row = row_of.pop(time)
            state.time[row] = state.part[row] = -1

"""Estimates from a central release: sums over covers, and the best linear unbiased ones on the release graph.

A node (s, e] of noise variance σ² is a resistor σ² between s and e; the variance of the best estimate at t is the
effective resistance between 0 and t, of a window between its ends (docs/mathematics.md, "Central releases"). The noise
is all there is: variances are known, the same for each column, and independent of the data. Post-processing: costs no
privacy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import Node, cover
from changeling_statistics import Closing, Floats, Frontier, Indices, Network, advance

from .hdcr import NodeRelease


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """values: shape (w,), in units of the query. variance: of each, in units squared. nodes: those it came with."""

    values: Floats
    variance: float
    nodes: tuple[NodeRelease, ...] = ()


@dataclass(frozen=True, slots=True)
class BestEstimates:
    """Online estimates, one period after another, from the nodes of the widths that have closed.

    window: how many periods back a window begins, if windows are asked for.
    """

    periods: int
    widths: tuple[int, ...]
    columns: int
    window: int | None = None

    def start(self) -> Frontier:
        """Before the first period, where the query is 0."""
        return Frontier.before(self.columns)

    def step(self, frontier: Frontier, nodes: Sequence[NodeRelease]) -> tuple[Frontier, Level]:
        """One more period: the query at its end."""
        closing = Closing(
            np.array([release.node.start for release in nodes], np.intp),
            np.array([release.variance for release in nodes]),
            np.array([release.values for release in nodes], np.float64).reshape(len(nodes), self.columns),
        )
        after, online = advance(frontier, closing, self._last_use())
        if online is None:
            raise ValueError(f"no node ends at period {after.period}: a hierarchy's first layer has width 1")
        return after, Level(online.values.copy(), online.planned)

    def in_window(self, frontier: Frontier) -> Level | None:
        """The change over the last `window` periods; None before there are as many."""
        if self.window is None or frontier.period < self.window:
            return None
        i, j = (frontier.times.index(time) for time in (frontier.period - self.window, frontier.period))
        P = frontier.planned
        return Level(frontier.values[j] - frontier.values[i], float(P[i, i] + P[j, j] - 2 * P[i, j]))

    def _last_use(self) -> Indices:
        return _last_uses(self.periods, self.widths, self.window)


def cover_sum(nodes: Iterable[NodeRelease], start: int, end: int, widths: Sequence[int]) -> Level:
    """The change over (start, end] as the sum over the fewest nodes that cover it.

    nodes: those released. start, end: in periods. widths: of the layers, in periods. KeyError where a node is missing.
    """
    by_node = {release.node: release for release in nodes}
    used = [by_node[node] for node in cover(Node(start, end), widths)]
    return Level(
        np.sum([release.values for release in used], axis=0, dtype=np.float64),
        float(sum(release.variance for release in used)),
    )


def retrospective(nodes: Sequence[NodeRelease], periods: int) -> tuple[Floats, Floats]:
    """The best estimates of the query at the times 0 to `periods` from all nodes, also those that closed later.

    Returns the values, shape (periods + 1, w), in units, and their variances, shape (periods + 1,), in units squared.
    """
    network = network_of(nodes, periods)
    values = network.fit(np.array([release.values for release in nodes], np.float64))
    times = list(range(1, periods + 1))
    rows = network.rows(network.unit_sources(times))
    variances = np.concatenate([[0.0], (rows**2 * network.variance).sum(1)])
    return values, variances


def network_of(nodes: Sequence[NodeRelease], periods: int) -> Network:
    """The release graph of nodes that are all of change."""
    return Network(
        periods,
        np.array([release.node.start for release in nodes], np.intp),
        np.array([release.node.end for release in nodes], np.intp),
        np.array([release.variance for release in nodes]),
    )


def online_variance(branching: int, layers: int, periods: int) -> Floats:
    """The variance of the best online estimate at t = 1..periods, in variances of one node; shape (periods,).

        Σ_i d_i(t) v_i,   v_0 = 1,  v_i = c·v_{i-1} / (c·v_{i-1} + 1)

    d_i: the digits of t to base c, the last being all that is left. What has closed by t is a forest of whole
    trees, one for each node of the cover of (0, t], and a tree of c trees beside its root is two resistors in parallel.
    """
    t = np.arange(1, periods + 1)
    variance, v = np.zeros(periods), 1.0
    for layer in range(layers):
        digit = t % branching if layer < layers - 1 else t
        variance += digit * v
        v = branching * v / (branching * v + 1)
        t = t // branching
    return variance


@lru_cache(maxsize=16)
def _last_uses(periods: int, widths: tuple[int, ...], window: int | None) -> Indices:
    last = np.zeros(periods + 1, np.intp)
    for width in widths:
        starts = np.arange(0, periods - width + 1, width)
        last[starts] = np.maximum(last[starts], starts + width)
    if window is not None:
        times = np.arange(periods + 1)
        last = np.maximum(last, times + window + 1)
    return last

"""The release graph as a network of resistors: vertices are times, edges are published nodes.

An edge with variance σ² is a resistor of σ² between the two times. The best linear unbiased estimate of how the
histogram differs between two times weighs each edge by the current it carries when one unit flows from the one time to
the other. Knows times and variances; nothing of surveys, tallies or answers.

Online, the estimate at t uses the edges that have closed by t, so each t has a network of its own. Of the past only
those times matter at which a node started that is still open; in a hierarchy there are few. The joint estimate of these
times is the state that is carried on from period to period (a Kalman filter), which is exact: as weights of edges in
`online_rows`, as values in `advance`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats

Indices: TypeAlias = NDArray[np.intp]
GROUND = 0
"""The number of the connected part that time 0 is in."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network of E edges between the times 0 to `periods`.

    periods: the last time.
    start, end: the two times of each edge, shape (E,).
    variance: the resistance of each edge, above 0, shape (E,).
    Raises ValueError for other shapes, variances that are not above 0, or times beyond `periods`.
    """

    periods: int
    start: Indices
    end: Indices
    variance: Floats

    def __post_init__(self) -> None:
        if not len(self.start) == len(self.end) == len(self.variance):
            raise ValueError(
                "a network's starts, ends and variances must be as many, "
                f"got {len(self.start)}, {len(self.end)} and {len(self.variance)}"
            )
        if not bool(np.all(self.variance > 0)):
            raise ValueError(f"the variance of a release must be above 0, got {self.variance.min()}")
        if len(self.end) and int(max(self.end.max(), self.start.max())) > self.periods:
            raise ValueError(f"a release ends after period {self.periods}")

    def closed_by(self, period: int) -> "Network":
        """The network of the edges that end at a time or before: what an online estimate may use."""
        return self.take(self.end <= period)

    def take(self, edges: Indices | NDArray[np.bool_] | slice) -> "Network":
        """The network of some of the edges, in this order."""
        return Network(self.periods, self.start[edges], self.end[edges], self.variance[edges])

    @cached_property
    def components(self) -> Indices:
        """The number of the connected part that each time belongs to, shape (periods + 1,)."""
        from scipy.sparse import csc_matrix, csgraph

        n = self.periods + 1
        links = csc_matrix((np.ones(len(self.start)), (self.start, self.end)), shape=(n, n))
        labels: Indices = csgraph.connected_components(links, directed=False)[1].astype(np.intp)
        return labels

    def connected(self, time: int, other: int) -> bool:
        """True if edges lead from one time to the other."""
        return bool(self.components[time] == self.components[other])

    def potentials(self, sources: Floats) -> Floats:
        """φ = L⁺ sources: the potential of every time when currents flow in and out.

            L = Σ_e (1/σ_e²)(e_end - e_start)(e_end - e_start)'

        sources: the current into each time, for k cases, shape (periods + 1, k). In each connected part they must add
        up to 0. Returns the same shape. In each part the first time has potential 0.
        """
        solved = np.zeros_like(sources)
        if len(self.free):
            solved[self.free] = self._factor.solve(np.asfortranarray(sources[self.free]))
        return solved

    def fit(self, changes: Floats) -> Floats:
        """The histogram v̂ at every time, from the change on every edge, by weighted least squares.

        changes: of k answers, shape (E, k). Returns shape (periods + 1, k).
        In each connected part values are relative to its first time; where that is time 0 they are absolute.
        """
        weighted = changes / self.variance[:, None]
        sources: Floats = self._incidence @ weighted
        return self.potentials(sources)

    def rows(self, sources: Floats) -> Floats:
        """K: how much each edge weighs in the estimate of Σ_t sources[t]·v_t, for k cases, shape (k, E).

        K_e = (φ_end - φ_start)/σ_e², φ = L⁺ sources. sources: as for `potentials`.
        """
        potentials = self.potentials(sources)
        drops = potentials[self.end] - potentials[self.start]
        currents: Floats = np.divide(drops, self.variance[:, None])
        return currents.T

    def row(self, plus: int, minus: int = 0) -> Floats:
        """The weights K of the estimate of v_plus - v_minus, shape (E,). Raises ValueError if no edges connect them."""
        row: Floats = self.rows_between([plus], [minus])[0]
        return row

    def rows_between(self, plus: Sequence[int], minus: Sequence[int]) -> Floats:
        """The weights of v_p - v_m for several pairs of times, shape (pairs, E). Raises ValueError likewise."""
        return self.rows(self.unit_sources(plus, minus))

    def unit_sources(self, plus: Sequence[int], minus: Sequence[int] | int = 0) -> Floats:
        """The sources of v_p - v_m for several pairs of times, shape (periods + 1, pairs). Raises ValueError likewise.

        minus: one for each, or one for all.
        """
        others = [minus] * len(plus) if isinstance(minus, int) else minus
        sources = np.zeros((self.periods + 1, len(plus)))
        for at, (time, other) in enumerate(zip(plus, others, strict=True)):
            if not self.connected(time, other):
                raise ValueError(f"no releases connect the times {other} and {time}")
            sources[time, at] += 1.0
            sources[other, at] -= 1.0
        return sources

    @cached_property
    def free(self) -> Indices:
        """All times but the first of each connected part, whose potential is 0."""
        free = np.ones(self.periods + 1, np.bool_)
        free[np.unique(self.components, return_index=True)[1]] = False
        return np.flatnonzero(free)

    @cached_property
    def _incidence(self) -> Any:
        """+1 at the end and -1 at the start of each edge: sparse, (periods + 1, E)."""
        from scipy.sparse import csc_matrix

        edges = np.arange(len(self.start))
        signs = np.repeat([1.0, -1.0], len(edges))
        at = (np.concatenate([self.end, self.start]), np.concatenate([edges, edges]))
        return csc_matrix((signs, at), shape=(self.periods + 1, len(edges)))

    @cached_property
    def _factor(self) -> Any:
        """The sparse LU factors of L on the free times."""
        from scipy.sparse import csc_matrix
        from scipy.sparse.linalg import splu

        place = np.full(self.periods + 1, -1, np.intp)
        place[self.free] = np.arange(len(self.free))
        start, end, conductance = place[self.start], place[self.end], 1.0 / self.variance
        rows, columns = np.concatenate([start, end, start, end]), np.concatenate([start, end, end, start])
        entries = np.concatenate([conductance, conductance, -conductance, -conductance])
        inside = (rows >= 0) & (columns >= 0)
        n = len(self.free)
        laplacian = csc_matrix((entries[inside], (rows[inside], columns[inside])), shape=(n, n))
        # Symmetric and positive definite, and nearly a tree: hardly any fill, and no pivoting is needed.
        return splu(laplacian, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


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
    """The first edge, for each, on whose weight the estimate of the change over it may hang, as it is known before.

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


def last_uses(network: Network) -> Indices:
    """The `last_use` of `advance` where all edges are known."""
    last = np.zeros(network.periods + 1, np.intp)
    np.maximum.at(last, network.start, network.end)
    return last


@dataclass(frozen=True, slots=True, eq=False)
class ClosingEdges:
    """The k nodes that close with a period, as edges of the release graph.

    start: where each begins, shape (k,).
    variance: the variance of each, shape (k,).
    changes: the measured change over each, shape (k, z).
    """

    start: Indices
    variance: Floats
    changes: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The joint estimate, at the end of a period, of time 0 and the times at which nodes start that are still open.

    period: the period that has just closed.
    times: those F times, rising.
    part: the number of the connected part of each, shape (F,). Estimates in part 0 are absolute; in another they are
    relative to one another.
    planned: P, their covariance, in units of the nodes' variances, shape (F, F).
    values: the estimated histograms, shape (F, z).
    """

    period: int
    times: tuple[int, ...]
    part: Indices
    planned: Floats
    values: Floats

    @classmethod
    def before(cls, answers: int) -> Self:
        """The frontier at time 0, where the histogram of z answers is 0."""
        return cls(0, (0,), np.zeros(1, np.intp), np.zeros((1, 1)), np.zeros((1, answers)))


@dataclass(frozen=True, slots=True, eq=False)
class Online:
    """The online estimate at the end of one period: its values, shape (z,), and their variance."""

    period: int
    values: Floats
    planned: float


def advance(frontier: Frontier, closing: ClosingEdges, last_use: Indices) -> tuple[Frontier, Online | None]:
    """One more period: the frontier after it, and the estimate at its end; None if nothing connects that with time 0.

    closing: the nodes that close with the period.
    last_use: for each time, the end of the last node that starts there, 0 if none does; shape (periods + 1,).
    Takes O(F²) steps for each node, whatever came before. Raises ValueError for a node that starts at a time already
    dropped.
    """
    period = frontier.period + 1
    times = (*frontier.times, period)
    F, z = len(times), frontier.values.shape[1]
    part = np.append(frontier.part, period)
    # The estimates beside their covariance: every step is linear in both. A fresh time's row is still void.
    joint = np.zeros((F, z + F))
    joint[:-1, :z], joint[:-1, z:-1] = frontier.values, frontier.planned
    steps = zip(closing.start.tolist(), closing.variance.tolist(), closing.changes, strict=True)
    for start, variance, change in steps:
        if start not in times:
            raise ValueError(f"a release starts at time {start}, which is no longer open at period {period}")
        i = times.index(start)
        if part[i] == part[-1]:
            _update(joint, z, i, variance, change)
        elif part[-1] == GROUND:
            _join(joint, z, part, part == part[i], (F - 1, i), variance, -change)
        else:
            _join(joint, z, part, part == part[-1], (i, F - 1), variance, change)
    values, P = joint[:, :z], joint[:, z:]
    online = Online(period, values[-1], float(P[-1, -1])) if part[-1] == GROUND else None
    kept = [at for at, time in enumerate(times) if time == 0 or last_use[time] > period]
    return Frontier(period, tuple(times[at] for at in kept), part[kept], P[kept][:, kept], values[kept]), online


def _join(
    joint: Floats,
    z: int,
    part: Indices,
    moved: NDArray[np.bool_],
    ends: tuple[int, int],
    variance: float,
    change: Floats,
) -> None:
    """The first edge between two connected parts: one part is shifted, as a whole, to where the edge says it is.

    v := v + (v_fixed ± y - v_loose) for all times that move; (fixed, loose) = ends. Its values were relative, so
    nothing is lost.
    """
    fixed, loose = ends
    joint[moved] += joint[fixed] - joint[loose]
    joint[moved, :z] += change
    P = joint[:, z:]
    P[:, moved] += (P[:, fixed] - P[:, loose])[:, None]
    P[np.ix_(moved, moved)] += variance
    part[moved] = part[fixed]


def _update(joint: Floats, z: int, i: int, variance: float, change: Floats) -> None:
    """One more edge, which ends at the newest time, within a connected part: the usual Kalman gain."""
    values, P = joint[:, :z], joint[:, z:]
    toward = P[-1] - P[i]
    gain = (toward / (toward[-1] - toward[i] + variance))[:, None]
    values += gain * (change - (values[-1] - values[i]))
    P -= gain * toward

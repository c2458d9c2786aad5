"""The release graph as a network of resistors, and the weights of the best linear unbiased estimates.

Vertices are times, edges are published nodes. An edge with variance σ² is a resistor of σ² between the two times. The
best linear unbiased estimate of how the histogram differs between two times weighs each edge by the current it carries
when one unit flows from the one time to the other. Online, the estimate at t uses the edges that have closed by t, so
each t has a network of its own. Of the past only those times matter at which a node started that is still open; in a
hierarchy there are few. The joint estimate of these times, as weights of edges, is the state that is carried on from
period to period (a Kalman filter), which is exact.

Where what one entry says of two nodes is correlated, edges are no resistors. What it says of the histograms v is B v +
noise of covariance V, B the incidence of its edges. Whitened by the Cholesky factor C of V it is R v + independent
noise, R = C⁻¹B; so an entry tells L = R'R. What a share f_g of n entries in each group tells of means adds up to
n Σ_g f_g L_g, and of sums over the n entries to Σ_g f_g L_g / n. As edges are in order of their ends, the first rows of
R are what is known online. Dense matrices over all times. Knows nothing of tallies or answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from changeling_protocol import ExpectedChanges, Survey
from numpy.typing import NDArray

from ..estimate import Floats, Indices
from .entries import (
    LEAST_VARIANCE,
    EntryCovariance,
    GroupEdges,
    edges_by_group,
    entry_covariance,
    expected_moments,
    expected_variances,
)

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
        """The sparse LU factors of L on the free times. Raises ValueError where variances are beyond all measure."""
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
        how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        try:
            return splu(laplacian, **how)
        except RuntimeError as singular:  # as next to others an edge's conductance is 0
            raise ValueError("nothing can be estimated from such tallies: they differ beyond all measure") from singular


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

    def link(self, start: int, end: int, edge: int, first: int, variance: float) -> None:
        """One more edge between two rows. first: in weights of edges before, two rows of one part do not differ."""
        if self.part[start] == self.part[end]:
            self._update(start, end, edge, first, variance)
        else:
            fixed, loose, sign = (end, start, -1.0) if self.part[end] == GROUND else (start, end, 1.0)
            self._join(fixed, loose, edge, variance, sign)

    def _update(self, start: int, end: int, edge: int, first: int, variance: float) -> None:
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

    def _join(self, fixed: int, loose: int, edge: int, variance: float, sign: float) -> None:
        """The first edge between two parts: one is shifted as a whole to where the edge says it is."""
        moved = self.part == self.part[loose]
        self.weights[moved] += self.weights[fixed] - self.weights[loose]
        self.weights[moved, edge] += sign
        P = self.planned
        P[moved] += P[fixed] - P[loose]
        P[:, moved] += (P[:, fixed] - P[:, loose])[:, None]
        P[np.ix_(moved, moved)] += variance
        self.part[moved] = self.part[fixed]


def online_rows(network: Network, until: int, lag: int = 0) -> Iterator[tuple[int, Floats]]:
    """(t, K) at each time t from 1 to `until` that the edges which end by t connect with t - lag; K of shape (E,).

    network: E edges, in order of their ends.
    lag: so long are the windows over which changes are estimated; 0 for the histograms, which are since time 0.
    """
    last_used = np.arange(network.periods + 1) + lag  # as the start of a window, or of an edge
    np.maximum.at(last_used, network.start, network.end)
    until_used = last_used[: until + 1].tolist()
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
            else:
                state.link(i, here, edge, firsts[edge], variances[edge])
        earlier = row_of.get(period - lag if lag else 0)
        if earlier is not None and state.part[earlier] == state.part[here]:
            yield period, state.weights[here] - state.weights[earlier]
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


MANY = 150
"""If so many edges end between two times, L is inverted anew for each, which is faster then."""


@dataclass(frozen=True)
class Whitened:
    """The information of one entry of a group, whitened.

    edges: the E edges. factor: C, lower triangular, CC' = V over them, shape (E, E).
    """

    edges: GroupEdges
    factor: Floats

    def rows(self, periods: int) -> Floats:
        """R, shape (E, periods + 1): a column for each time, time 0 included."""
        from scipy.linalg import solve_triangular  # late: it loads slowly, and the command line imports this

        edges = np.arange(len(self.edges.end))
        incidence = np.zeros((len(edges), periods + 1))
        incidence[edges, self.edges.end] = 1.0
        incidence[edges, self.edges.start] -= 1.0
        rows: Floats = solve_triangular(self.factor, incidence, lower=True, check_finite=False)
        return rows

    def closed_by(self, period: int) -> int:
        """How many of the edges end at a time or before."""
        return int(np.searchsorted(self.edges.end, period, side="right"))


@dataclass(frozen=True, slots=True, eq=False)
class HeardGroup:
    """One group of which some nodes are published.

    told: what one of its entries tells on the edges of those nodes.
    at: the numbers of these edges in the network, rising, shape (E_g,).
    share: f_g, the part of the entries that are in the group.
    """

    told: Whitened
    at: Indices
    share: float


@dataclass(frozen=True)
class BestWeights:
    """The weights of the best linear unbiased estimates from several groups.

    network: the edges, in order of their ends.
    groups: all groups of which an edge is in the network.
    """

    network: Network
    groups: Sequence[HeardGroup]

    def row(self, plus: int, minus: int, until: int) -> Floats:
        """K: how much each edge weighs in the estimate of v_plus - v_minus from the edges that end by `until`, (E,).

        Raises ValueError if these do not connect the two times.
        """
        network = self.network.closed_by(until)
        row: Floats = self._solved(network.unit_sources([plus], minus), network, self._information(until), until)[0]
        return row

    @cached_property
    def retrospective(self) -> Floats:
        """K of v_t less that at the first time of its connected part, for all times t and from all edges, (T+1, E)."""
        network = self.network
        return self._solved(np.eye(network.periods + 1), network, self._information(network.periods), network.periods)

    @cached_property
    def planned(self) -> Floats:
        """L⁻¹: the covariance between the estimates of all times, if there were one entry, shape (T+1, T+1).

        That of n entries has an n-th of it. Rows of the first time of each connected part are 0.
        """
        network, free = self.network, np.ix_(self.network.free, self.network.free)
        planned = np.zeros((network.periods + 1,) * 2)
        planned[free] = inverse(self._information(network.periods)[free])
        return planned

    @cached_property
    def online(self) -> Sequence[tuple[int, Floats]]:
        """(t, K) of the histogram at each time t that the edges closed by then connect with time 0."""
        return self.windows(0)

    def windows(self, width: int) -> Sequence[tuple[int, Floats]]:
        """(t, K) of v_t - v_{t - width} at each time t that the edges closed by then connect with t - width.

        width: 0 for the histograms, which are since time 0.
        """
        if not len(self.network.end):
            return []
        try:
            return self._growing(width)
        except np.linalg.LinAlgError:  # some time is reached late, or never
            return list(self._one_by_one(width))

    def _growing(self, lag: int) -> list[tuple[int, Floats]]:
        """(t, K) at each time t at which edges end; where there is a lag, of what changed since so many periods before.

        Raises LinAlgError unless each time that an edge has is reached as it closes.
        """
        from scipy.linalg import solve_triangular  # late: it loads slowly

        times = np.unique(np.concatenate([self.network.start, self.network.end]))
        times = times[times > 0]
        place: dict[int, int] = {0: -1, **{time: at for at, time in enumerate(times.tolist())}}
        reached: list[int] = []
        rows = np.concatenate([np.sqrt(heard.share) * rows[:, times] for heard, rows in self._paired])
        ends = np.searchsorted(times, np.concatenate([heard.told.edges.end for heard in self.groups])) + 1
        columns = np.zeros((len(times), len(times)))
        for P, time in zip(inverses(rows, ends, np.arange(1, len(times) + 1)), times.tolist(), strict=True):
            if time - lag in place:
                column = columns[: len(P), len(reached)]
                column += P[:, -1]
                if lag and time > lag:
                    column -= P[:, place[time - lag]]
                reached.append(time)
        del rows  # as large as all that follows
        columns = columns[:, : len(reached)]
        weights = np.zeros((len(reached), len(self.network.start)))
        for heard, told in self._paired:
            currents = heard.share * (told[:, times] @ columns)
            currents[heard.told.edges.end[:, None] > np.array(reached, np.intp)] = 0.0
            C = heard.told.factor
            weights[:, heard.at] = solve_triangular(C, currents, lower=True, trans="T", check_finite=False).T
        return list(zip(reached, weights, strict=True))

    def _one_by_one(self, lag: int) -> Iterator[tuple[int, Floats]]:
        information = np.zeros((self.network.periods + 1,) * 2)
        for time in range(1, self.network.periods + 1):
            network, before = self.network.closed_by(time), time - lag if lag else 0
            information += self._information(time, after=time - 1)
            if before >= 0 and network.connected(time, before):
                yield time, self._solved(network.unit_sources([time], before), network, information, time)[0]

    def _information(self, until: int, after: int = -1) -> Floats:
        """Σ_g f_g L_g from the edges that end in (after, until], shape (T+1, T+1)."""
        information = np.zeros((self.network.periods + 1,) * 2)
        for heard, rows in self._paired:
            known = rows[heard.told.closed_by(after) : heard.told.closed_by(until)]
            if len(known):
                information += heard.share * (known.T @ known)
        return information

    def _solved(self, sources: Floats, network: Network, information: Floats, until: int) -> Floats:
        from scipy.linalg import cho_factor, cho_solve, solve_triangular  # late: it loads slowly

        free = network.free
        potentials = np.zeros_like(sources)
        factor = cho_factor(information[np.ix_(free, free)], check_finite=False)
        potentials[free] = cho_solve(factor, sources[free], check_finite=False)
        weights = np.zeros((sources.shape[1], len(self.network.start)))
        for heard, rows in self._paired:
            known = heard.told.closed_by(until)
            currents = heard.share * (rows[:known] @ potentials)
            C = heard.told.factor[:known, :known]
            weights[:, heard.at[:known]] = solve_triangular(C, currents, lower=True, trans="T", check_finite=False).T
        return weights

    @property
    def _paired(self) -> Iterator[tuple[HeardGroup, Floats]]:
        return zip(self.groups, self._whitened, strict=True)

    @cached_property
    def _whitened(self) -> list[Floats]:
        return [heard.told.rows(self.network.periods) for heard in self.groups]


def inverses(rows: Floats, ends: Indices, times: Indices) -> Iterator[Floats]:
    """P = L⁻¹, L = R'R of what has closed by each of some times, over the times from 1 to it.

    rows: R, shape (E, T), a column for each of the times 1..T. ends: when each edge ends, shape (E,).
    times: rising. Raises LinAlgError where an L is singular.
    """
    order = np.argsort(ends, kind="stable")
    closed = np.searchsorted(ends[order], times, side="right").tolist()
    many = len(rows) > MANY * len(times)
    P, L, before = np.zeros((0, 0)), np.zeros((rows.shape[1],) * 2), 0
    for time, known in zip(times.tolist(), closed, strict=True):
        new = rows[order[before:known], :time]
        if many:
            L[:time, :time] += new.T @ new
            P = inverse(L[:time, :time])
        else:
            P = grown(P, new)
        before = known
        yield P


def grown(P: Floats, rows: Floats) -> Floats:
    """P = L⁻¹ of the times up to the last, given that of fewer times, and what is newly told of all.

    Let W be the new rows, of old and new times. The new times are v_n = -C v_o + noise of covariance N, and
    C = N W_n'W_o; what of the rows is left, Z = W_o - W_n C, is of the old times alone, and improves these.
    rows: W, shape (k, T'). P: of the first times, shape (old, old). Raises LinAlgError where L is singular.
    """
    old = len(P)
    W_o, W_n = rows[:, :old], rows[:, old:]
    N = inverse(W_n.T @ W_n)
    C = N @ (W_n.T @ W_o)
    Z = W_o - W_n @ C
    PZ = P @ Z.T
    gained = Z @ PZ
    gained.flat[:: len(gained) + 1] += 1.0
    wider = np.empty((rows.shape[1],) * 2)
    np.subtract(P, PZ @ np.linalg.solve(gained, PZ.T), out=wider[:old, :old])
    wider[old:, :old] = -C @ wider[:old, :old]
    wider[:old, old:] = wider[old:, :old].T
    wider[old:, old:] = N - wider[old:, :old] @ C.T
    return wider


def inverse(L: Floats) -> Floats:
    """L⁻¹. Raises LinAlgError if L is not positive definite, as far as can be told."""
    np.linalg.cholesky(L)
    found: Floats = np.linalg.inv(L).astype(np.float64, copy=False)
    return found


APART = 1e-12
"""By so much, relatively, a report is taken to vary by itself: those that never differ would make V singular."""
MOST_DENSE_PERIODS = 1200
"""With more periods than that, matrices over all times and nodes take too long, and releases are weighed one by one."""


def best_weights(
    survey: Survey, network: Network, group: Indices, track: Indices, *, remember: bool = True
) -> BestWeights | None:
    """The weights of a survey's nodes; None where the network's own do.

    network: the nodes as edges, in order of their ends.
    group, track: the numbers of each node's group and track in the plan, shape (nodes,).
    remember: whether to keep them for the next call, which takes memory; not for a plan that is looked at once. They
    depend on nothing but the survey and which of its nodes are published.
    """
    if survey.calendar.periods > MOST_DENSE_PERIODS or not hangs_together(survey):
        return None
    if not remember:
        return _best_weights(_Published(survey, network, group, track))
    return _remembered(_Published(survey, network, group, track, (survey.id, track.tobytes(), network.end.tobytes())))


@dataclass(frozen=True)
class _Published:
    """The nodes of a survey that are published; equal if their keys are."""

    survey: Survey = field(compare=False)
    network: Network = field(compare=False)
    group: Indices = field(compare=False)
    track: Indices = field(compare=False)
    key: tuple[bytes, ...] = ()


@lru_cache(maxsize=4)
def _remembered(published: _Published) -> BestWeights:
    return _best_weights(published)


def _best_weights(published: _Published) -> BestWeights:
    survey, network, group, track = published.survey, published.network, published.group, published.track
    heard = []
    for edges, at in edges_by_group(survey.plan, group, track, network.start, network.end):
        if len(at):
            told = whitened(edges, len(survey.answers), survey.expected, survey.closed, survey.calendar.periods)
            heard.append(HeardGroup(told, at, edges.group.share / survey.plan.total_share))
    return BestWeights(network, heard)


def hangs_together(survey: Survey) -> bool:
    """True if what one entry says of two nodes is correlated: by a joint response, or as not all entries are asked."""
    return is_partial(survey) or any(group.joint is not None for group in survey.plan.groups)


def is_partial(survey: Survey) -> bool:
    """True if some entries are not asked on some nodes."""
    return len(survey.plan.groups) > 1 or any(track.reports < track.count for track in survey.plan.tracks)


def whitened(edges: GroupEdges, answers: int, expected: ExpectedChanges, closed: bool, periods: int) -> Whitened:
    """The information that one entry is expected to give on these edges, in a survey of so many answers and periods."""
    covariance = expected_covariance(edges, answers, expected, closed, periods).whole
    covariance.flat[:: len(covariance) + 1] *= 1 + APART
    return Whitened(edges, np.linalg.cholesky(covariance).astype(np.float64, copy=False))


def expected_covariance(
    edges: GroupEdges, answers: int, expected: ExpectedChanges, closed: bool, periods: int
) -> EntryCovariance:
    """The covariance of what one entry is expected to say on these edges, as above."""
    variances = np.empty(len(edges.end))
    for place, track in enumerate(edges.group.tracks):
        at = edges.place == place
        variances[at] = expected_variances(track.randomizer, edges.start[at], edges.end[at], expected, closed)
    moments = expected_moments(answers, expected, periods)
    return entry_covariance(edges, np.maximum(variances, LEAST_VARIANCE), moments)

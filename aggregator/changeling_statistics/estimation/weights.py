"""How much one entry of a group tells of the histograms, and the weights of the best linear unbiased estimates.

What an entry says of the histograms v is B v + noise of covariance V, B the incidence of its edges. Whitened by the
Cholesky factor C of V it is R v + independent noise, R = C⁻¹B; so an entry tells L = R'R. What a share f_g of n entries
in each group tells of means adds up to n Σ_g f_g L_g, and of sums over the n entries to Σ_g f_g L_g / n. As edges are
in order of their ends, the first rows of R are what is known online. Dense matrices over all times; knows nothing of
tallies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from changeling_protocol import ExpectedChanges, Survey

from ..estimate import Floats
from .entries import EntryCovariance, GroupEdges, edges_by_group, entry_covariance, expected_moments, expected_variances
from .network import Indices, Network
from .releases import LEAST_VARIANCE

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
        try:
            return self._growing()
        except np.linalg.LinAlgError:  # some time is reached late, or never
            return list(self._one_by_one(self.network.periods))

    def windows(self, width: int) -> Sequence[tuple[int, Floats]]:
        """(t, K) of v_t - v_{t - width} at each time t that the edges closed by then connect with t - width.

        Raises LinAlgError where some time is reached late.
        """
        return self._growing(width)

    def _growing(self, lag: int = 0) -> list[tuple[int, Floats]]:
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

    def _one_by_one(self, until: int) -> Iterator[tuple[int, Floats]]:
        information = np.zeros((self.network.periods + 1,) * 2)
        for time in range(1, until + 1):
            network = self.network.closed_by(time)
            information += self._information(time, after=time - 1)
            if network.connected(time, 0):
                yield time, self._solved(network.unit_sources([time]), network, information, time)[0]

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

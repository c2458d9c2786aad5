"""Effective resistances between every time and time 0, all at once, and how much of a current each edge carries.

This is the release graph for planning, in dense matrices. Online, the graph of each time is that of the edges which
end by then, and times are added one after another; retrospective, all times have the whole graph. Knows edges;
nothing of plans.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from changeling_protocol import HEAD_BYTES, SEAL_BYTES, Node, ReleasePlan, Survey, TrackNumber, closings, upload_bytes
from numpy.typing import NDArray

from ..estimate import Floats
from ..estimation.entries import GroupEdges, Moments, entry_covariance, expected_moments, expected_variances
from ..estimation.network import Indices, Network
from ..estimation.releases import planned_variances, shares
from ..estimation.weights import best_weights, hangs_together, is_partial
from .wish import Wish


def sums(index: Indices, figures: Floats, size: int) -> Floats:
    """The sum of the figures of each index, shape (size,).

    index: from 0 to size - 1, one for each figure.
    """
    return np.bincount(index, figures, size).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """E distinct edges between the times 0 to `periods`, in order of their ends.

    start, end: the two times of each, shape (E,).
    retrospective: whether a time may use all edges; if not, those that end by then.
    """

    periods: int
    start: Indices
    end: Indices
    retrospective: bool

    @property
    def closed(self) -> NDArray[np.bool_]:
        """Which edges the estimate of each time may use, shape (E, periods); column t - 1 is for the time t."""
        times = np.arange(1, self.periods + 1)
        return (self.end[:, None] <= times) | np.bool_(self.retrospective)


def potentials(edges: Edges, conductance: Floats) -> Floats:
    """P: the covariances Cov(v̂_s, v̂_t) of all times s and t, in the graph that t is solved on.

    conductance: 1/σ² of each edge, 0 for one that is not there, shape (E,).
    Returns shape (periods + 1, periods), s in rows; column t - 1 is for the time t. P[t, t - 1] is the effective
    resistance between t and time 0, inf if nothing connects them. Online, P is 0 for s > t.
    """
    return _whole(edges, conductance) if edges.retrospective else _growing(edges, conductance)


def resistances(P: Floats) -> Floats:
    """The effective resistance between each time 1, 2, … and time 0, shape (periods,).

    P: from `potentials`.
    """
    return np.diagonal(P, -1).copy()


def drops(edges: Edges, P: Floats) -> Floats:
    """The potential across each edge for one unit of current out of each time, 0 where the edge may not be used.

    Times the edge's conductance it is K, the weight of the edge in the estimate. Shape (E, periods).
    """
    across = P[edges.end] - P[edges.start]
    across[~edges.closed] = 0.0
    return across


def _whole(edges: Edges, conductance: Floats) -> Floats:
    from scipy.linalg.lapack import dpotrf, dpotri  # late: it loads slowly, and the command line imports this

    n = edges.periods
    L = np.zeros((n + 1, n + 1))
    for here, there in ((edges.start, edges.end), (edges.end, edges.start)):
        np.add.at(L, (here, there), -conductance)
        np.add.at(L, (here, here), conductance)
    factor, failed = dpotrf(L[1:, 1:], lower=1, overwrite_a=1)
    if failed:
        return np.full((n + 1, n), np.inf)
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
    P = np.zeros((n + 1, n))
    P[1:] = np.tril(inverse) + np.tril(inverse, -1).T
    return P


def _growing(edges: Edges, conductance: Floats) -> Floats:
    """Online: S, the covariance of the best linear unbiased estimates of all times so far, one time after another.

    The k edges that end at t read v_t = v_s + y. Let C = S_ss + diag(σ²), r = 1 / 1'C⁻¹1 and q = r·C⁻¹1. Then the new
    time has the variance r, and the covariance q'S_s. with the others. These improve by what the readings say about
    one another: S := S - S_.s (C⁻¹ - qq'/r) S_s. Of S only those columns are kept at whose times an edge still starts.
    """
    n = edges.periods
    S, P = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n))
    there = np.flatnonzero(conductance > 0)
    there = there[np.argsort(edges.end[there], kind="stable")]
    bounds = np.searchsorted(edges.end[there], np.arange(n + 2)).tolist()
    last_use = np.zeros(n + 1, np.intp)
    np.maximum.at(last_use, edges.start[there], edges.end[there])
    open_, variance = np.zeros(0, np.intp), 1.0 / conductance[there]
    for t in range(1, n + 1):
        at = slice(bounds[t], bounds[t + 1])
        s, noise = edges.start[there[at]], variance[at]
        reached = np.isfinite(S[s, s])
        if not reached.all():
            s, noise = s[reached], noise[reached]
        if not len(s):
            S[t, t] = P[t, t - 1] = np.inf
        else:
            reach = S[:t, s]
            C = reach[s]
            C.flat[:: len(s) + 1] += noise
            inverse = np.linalg.inv(C)
            q = inverse.sum(1)
            r = 1.0 / q.sum()
            q *= r
            P[:t, t - 1] = column = reach @ q
            P[t, t - 1] = r
            if len(s) > 1 and len(open_):
                S[:t, open_] -= reach @ ((inverse - np.outer(q, q) / r) @ reach[open_].T)
            if last_use[t]:
                S[:t, t], S[t, t] = column, r
            S[t, open_] = column[open_]
        if last_use[t]:
            open_ = np.append(open_, t)
        open_ = open_[last_use[open_] > t]
    return P


POINT = 0.01
"""One percentage point, as a fraction of the entries."""


class PopulationMoments(Protocol):
    """What a prediction needs to know of a population."""

    def report_variances(self, track: int) -> Floats:
        """The variance of one report on each node of a track, mean over the answers, in entries squared.

        track: its number in the plan. Returns shape (nodes,).
        """
        ...

    @property
    def moments(self) -> Moments:
        """Means of products of the histories, at the times 0..T."""
        ...


@dataclass(frozen=True)
class ExpectedPopulation:
    """The population that a survey's designer expects.

    survey: the survey, which states the expectation.
    """

    survey: Survey

    def report_variances(self, track: int) -> Floats:
        """The mean variance over entries that change as often as expected."""
        survey, reported = self.survey, self.survey.plan.tracks[track]
        end = reported.first + reported.width * np.arange(1, reported.count + 1, dtype=np.intp)
        return expected_variances(reported.randomizer, end - reported.width, end, survey.expected, survey.closed)

    @property
    def moments(self) -> Moments:
        """Those of answers that are uniform, and change at a steady rate."""
        survey = self.survey
        return expected_moments(len(survey.answers), survey.expected, survey.calendar.periods)


@dataclass(frozen=True)
class Prediction:
    """How accurate a survey's histograms will be, as fractions of the entries, at the ends of periods 1..T.

    devices: how many answer.
    response: the variance that the randomizers add, mean over the answers, shape (T,), in squared fractions.
    sampling: the variance that asking only some of the entries adds, likewise.
    Both are inf at the end of a period that no nodes connect with the start.
    """

    devices: int
    response: Floats
    sampling: Floats

    @cached_property
    def errors(self) -> Floats:
        """The standard error at the end of each period, root mean square over the answers, shape (T,)."""
        errors: Floats = np.sqrt(self.response + self.sampling)
        return errors

    @property
    def mean(self) -> float:
        """The standard error over all periods: their root mean square."""
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def worst(self) -> float:
        """The largest standard error of all periods."""
        return float(self.errors.max())

    def at(self, period: int) -> float:
        """The standard error at the end of a period. Raises ValueError outside 1..T."""
        if not 1 <= period <= len(self.errors):
            raise ValueError(f"periods are numbered 1 to {len(self.errors)}, got {period}")
        return float(self.errors[period - 1])

    def objective(self, objective: str) -> float:
        """One standard error for all periods.

        objective: "mean" for their root mean square, or "worst" for the largest.
        """
        return self.worst if objective == "worst" else self.mean

    def devices_for(self, error: float = POINT, objective: str = "mean") -> float:
        """How many devices it takes for a standard error, which falls with the root of their number; inf if none do.

        error: the standard error to reach, as a fraction of the entries; 0.01 is one percentage point.
        objective: "mean" or "worst", as above. Raises ValueError for an error that is not above 0.
        """
        if not error > 0:
            raise ValueError(f"a standard error to reach is above 0, got {error}")
        return self.devices * (self.objective(objective) / error) ** 2


def predict(
    survey: Survey,
    devices: int,
    *,
    retrospective: bool = False,
    population: PopulationMoments | None = None,
    lost: int | None = None,
) -> Prediction:
    """How accurate a survey's histograms will be.

        Var v̂_t = (1/n) {Σ_g K_g V_g K_g' / f_g - E x(t)²}

    with the weights K of the estimator, and V_g the covariance of what one entry of the population says in group g.

    devices: n, how many answer, at least 1.
    retrospective: whether histograms are estimated from everything; if not, each as its period closes.
    population: who answers; if not given, the population that the survey's designer expects.
    lost: a period at whose end nobody is heard, so that no node that ends then is published; None for none.
    Raises ValueError for fewer than one device.
    """
    if devices < 1:
        raise ValueError(f"a survey needs at least one device, got {devices}")
    population, periods = population or ExpectedPopulation(survey), survey.calendar.periods
    plan = PlannedEdges(survey, lost)
    K, reached = plan.weights(retrospective)
    variances = [population.report_variances(track) for track in range(len(survey.plan.tracks))]
    response, sampling = np.zeros(periods), np.zeros(periods)
    if not hangs_together(survey):
        response = K**2 @ plan.by_edge(variances)
    else:
        moments = population.moments
        for share, (edges, at) in zip(shares(survey).tolist(), plan.groups, strict=True):
            if not len(at):
                continue
            said = entry_covariance(edges, plan.by_edge(variances)[at], moments)
            rows = K[:, at]
            response += (rows**2 @ said.response + _quadratic(rows, said.joint)) / share
            sampling += _quadratic(rows, said.sampling) / share
        if is_partial(survey):
            sampling = np.maximum(sampling - np.diagonal(moments.centred)[1:], 0.0)  # rounding could leave it below
        else:
            sampling = np.zeros(periods)
    response[~reached] = sampling[~reached] = np.inf
    return Prediction(devices, response / devices, sampling / devices)


def _quadratic(rows: Floats, form: Floats) -> Floats:
    """r A r' for every row r, shape (rows,)."""
    quadratic: Floats = ((rows @ form) * rows).sum(1)
    return quadratic


class PlannedEdges:
    """The nodes of a survey's plan as edges, in order of their ends, and the weights that the estimator gives them.

    lost: a period; nodes that end with it are left out. None for no such period.
    start, end: their two times, shape (E,). group, track: the numbers of their group and track, shape (E,).
    groups: the edges of each group, and their numbers among all.
    """

    def __init__(self, survey: Survey, lost: int | None = None) -> None:
        by_group = [GroupEdges.of(group).without(lost) for group in survey.plan.groups]
        firsts = np.cumsum([0, *(len(group.tracks) for group in survey.plan.groups)])
        start = np.concatenate([edges.start for edges in by_group])
        end = np.concatenate([edges.end for edges in by_group])
        track = np.concatenate([edges.place + first for edges, first in zip(by_group, firsts, strict=False)])
        group = np.repeat(np.arange(len(by_group)), [len(edges.end) for edges in by_group])
        order = np.lexsort((track, start, end))
        self._survey, self.start, self.end = survey, start[order], end[order]
        self.track, self.group = track[order], group[order]
        numbers = [np.flatnonzero(self.group == number) for number in range(len(by_group))]
        self.groups = list(zip(by_group, numbers, strict=True))

    def weights(self, retrospective: bool) -> tuple[Floats, NDArray[np.bool_]]:
        """K of every time 1..T, shape (T, E), and which times the nodes connect with time 0, shape (T,).

        K is 0 for the others.
        """
        periods = self._survey.calendar.periods
        network = Network(periods, self.start, self.end, np.ones(len(self.end)))  # best weights know no resistances
        best = best_weights(self._survey, network, self.group, self.track, 1.0)
        if best is None:
            return _network_weights(replace(network, variance=self._planned), retrospective)
        K, reached = np.zeros((periods, len(self.end))), np.zeros(periods, np.bool_)
        for time, row in best.retrospective if retrospective else best.online:
            K[time - 1], reached[time - 1] = row, True
        return K, reached

    def by_edge(self, figures: list[Floats]) -> Floats:
        """The figures of all edges, from those of each track's nodes, shape (E,)."""
        found = np.empty(len(self.end))
        for number, track in enumerate(self._survey.plan.tracks):
            at = np.flatnonzero(self.track == number)
            found[at] = figures[number][(self.end[at] - track.first) // track.width - 1]
        return found

    @property
    def _planned(self) -> Floats:
        """The planned variance of each edge, of one entry, shape (E,)."""
        planned = np.empty(len(self.end))
        for number in range(len(self._survey.plan.tracks)):
            at = self.track == number
            one = np.ones(int(at.sum()))
            planned[at] = planned_variances(self._survey, TrackNumber(number), self.end[at], one, one)
        return planned


def _network_weights(network: Network, retrospective: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """The weights of all times in the network of resistors, as `PlannedEdges.weights` has them."""
    periods = network.periods
    named = network.end * (periods + 1) + network.start
    distinct, edge = np.unique(named, return_inverse=True)
    end, start = np.divmod(distinct, periods + 1)
    conductances = sums(edge, 1 / network.variance, len(distinct))
    P = potentials(Edges(periods, start, end, retrospective), conductances)
    reached = np.isfinite(resistances(P))
    if reached.all():
        across = P[end] - P[start]
        if not retrospective:
            across[end[:, None] > np.arange(1, periods + 1)] = 0.0
    else:
        across, reached = _piecewise(Network(periods, start, end, 1 / conductances), retrospective)
    return (across[edge] / network.variance[:, None]).T, reached


def _piecewise(network: Network, retrospective: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """The drops across edges, shape (E, periods), and which periods' ends are connected with the start.

    Period by period: it is slower than `potentials`, and right where the graph has several connected parts.
    """
    periods = network.periods
    across, reached = np.zeros((len(network.end), periods)), np.zeros(periods, np.bool_)
    for time in range(1, periods + 1):
        used = network if retrospective else network.closed_by(time)
        reached[time - 1] = used.connected(time, 0)
        if reached[time - 1]:
            across[: len(used.end), time - 1] = used.row(time) * used.variance
    return across, reached


@dataclass(frozen=True, slots=True)
class Option:
    """A plan, how accurate it will be, and what it asks of a device.

    name: what kind of plan it is.
    detail: its parameters in a few words; may be empty.
    survey: an unsigned survey with this plan.
    prediction: how accurate its histograms will be if as many devices answer as the wish says.
    """

    name: str
    detail: str
    survey: Survey
    prediction: Prediction

    @classmethod
    def of(cls, wish: Wish, name: str, plan: ReleasePlan, detail: str = "") -> "Option":
        """The option of a plan for this wish, its accuracy predicted."""
        survey = wish.survey(plan)
        return cls(name, detail, survey, predict(survey, wish.devices, retrospective=wish.retrospective))

    @property
    def plan(self) -> ReleasePlan:
        """The release plan itself."""
        return self.survey.plan

    @property
    def title(self) -> str:
        """Name and detail, as tables show them."""
        return f"{self.name}, {self.detail}" if self.detail else self.name

    def error(self, wish: Wish) -> float:
        """The standard error that the wish wants small, mean or worst, as a fraction of the entries."""
        return self.prediction.objective(wish.objective)

    @property
    def reports(self) -> float:
        """How many reports one device sends in all, mean over the groups."""
        groups = self.plan.groups
        sent = sum(group.share * sum(track.reports for track in group.tracks) for group in groups)
        return sent / self.plan.total_share

    @property
    def sent_bytes(self) -> int:
        """How many bytes one device uploads in all, in one envelope for each time at which nodes of the plan close.

        It is the same for every device, as uploads are padded to the length of the longest group's.
        """
        ends = closings(self.plan, 0, self.survey.calendar.periods)
        return sum(upload_bytes(self.plan, Node(end - 1, end)) + HEAD_BYTES + SEAL_BYTES for end in ends)

    def least_reports(self, devices: int) -> float:
        """How many reports the node with the fewest is expected to get, if so many devices answer."""
        groups, total = self.plan.groups, self.plan.total_share
        return min(
            devices * group.share / total * track.reports / track.count for group in groups for track in group.tracks
        )

"""Online estimates at every time, one period after another: a function from state to state.

The estimate at t uses the nodes that have closed by t, so each t has a release graph of its own. Of the past only
those times matter at which a node started that is still open; in a hierarchy there are few. The joint estimate of
these times is the state that is carried on (a Kalman filter). The result is exact, not an approximation.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from changeling_protocol import ReleasePlan
from numpy.typing import NDArray

from ..estimate import Floats
from .network import GROUND, Indices, Network, last_uses


@dataclass(frozen=True, slots=True, eq=False)
class Closing:
    """The k nodes that close with a period, as edges of the release graph.

    start: where each begins, shape (k,).
    variance: the planned variance of each, shape (k,).
    changes: the estimated change over each, shape (k, z), in entries.
    covariances: the covariance of each of those, flattened, shape (k, q); q = 0 if none is wanted.
    """

    start: Indices
    variance: Floats
    changes: Floats
    covariances: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The joint estimate, at the end of a period, of time 0 and the times at which nodes start that are still open.

    period: the period that has just closed.
    times: those F times, rising.
    part: the number of the connected part of each, shape (F,). Estimates in part 0 are absolute; in another they are
    relative to one another.
    planned: P, their covariance if the planned variances were the true ones, shape (F, F).
    values: the estimated histograms, shape (F, z), in entries.
    covariance: S, their covariance from the nodes' own, shape (F, F, q).
    """

    period: int
    times: tuple[int, ...]
    part: Indices
    planned: Floats
    values: Floats
    covariance: Floats

    @classmethod
    def before(cls, answers: int, columns: int) -> Self:
        """The frontier at time 0, where the histogram is 0.

        answers: z. columns: q, how many figures a covariance has.
        """
        nothing = np.zeros((1, 1))
        return cls(0, (0,), np.zeros(1, np.intp), nothing, np.zeros((1, answers)), np.zeros((1, 1, columns)))


@dataclass(frozen=True, slots=True, eq=False)
class Online:
    """The online estimate at the end of one period.

    values: shape (z,), in entries.
    covariance: flattened, shape (q,), in entries squared.
    planned: its variance if the planned variances were the true ones.
    """

    period: int
    values: Floats
    covariance: Floats
    planned: float


def advance(frontier: Frontier, closing: Closing, last_use: Indices) -> tuple[Frontier, Online | None]:
    """One more period: the frontier after it, and the estimate at its end; None if nothing connects that with time 0.

    closing: the nodes that close with the period.
    last_use: for each time, the end of the last node that starts there, 0 if none does; shape (periods + 1,).
    Takes O(F²q) steps, whatever came before. Raises ValueError for a node that starts at a time already dropped.
    """
    period = frontier.period + 1
    times = (*frontier.times, period)
    F, k = len(times), len(closing.start)
    part = np.empty(F, np.intp)
    part[:-1], part[-1] = frontier.part, period
    # Estimates after the period are G @ (those before) + H @ (changes); a fresh time's row is still void.
    G, H, P = np.zeros((F, F - 1)), np.zeros((F, k)), np.zeros((F, F))
    G.flat[::F] = 1.0
    G[-1] = 0.0
    P[:-1, :-1] = frontier.planned
    for edge, (start, variance) in enumerate(zip(closing.start.tolist(), closing.variance.tolist(), strict=True)):
        if start not in times:
            raise ValueError(f"a release starts at time {start}, which is no longer open at period {period}")
        i = times.index(start)
        if part[i] == part[-1]:
            _update(G, H, P, i, edge, variance)
        elif part[-1] == GROUND:
            _join(G, H, P, part, part == part[i], F - 1, i, edge, variance, -1.0)
        else:
            _join(G, H, P, part, part == part[-1], i, F - 1, edge, variance, 1.0)
    values = G @ frontier.values + H @ closing.changes
    covariance = _propagated(G, H, frontier.covariance, closing.covariances)
    online = Online(period, values[-1], covariance[-1, -1], float(P[-1, -1])) if part[-1] == GROUND else None
    kept = [at for at, time in enumerate(times) if time == 0 or last_use[time] > period]
    if len(kept) < F:
        times, part, values = tuple(times[at] for at in kept), part[kept], values[kept]
        P, covariance = P[kept][:, kept], covariance[kept][:, kept]
    return Frontier(period, times, part, P, values, covariance), online


def run(network: Network, changes: Floats, covariances: Floats, until: int) -> list[Online | None]:
    """The online estimates at the times 1 to `until`; None where nothing connects a time with time 0.

    changes: the estimated change on every edge, shape (E, z), in entries.
    covariances: of those, flattened, shape (E, q); (E, 0) if none are wanted.
    """
    last_use = last_uses(network)
    order = np.argsort(network.end, kind="stable")
    bounds = np.searchsorted(network.end[order], np.arange(until + 2))
    frontier = Frontier.before(changes.shape[1], covariances.shape[1])
    estimates: list[Online | None] = []
    for period in range(1, until + 1):
        at = order[bounds[period] : bounds[period + 1]]
        closing = Closing(network.start[at], network.variance[at], changes[at], covariances[at])
        frontier, online = advance(frontier, closing, last_use)
        estimates.append(online)
    return estimates


def planned_last_uses(plan: ReleasePlan, periods: int) -> Indices:
    """The `last_use` of `advance` where nodes of the plan are still to come."""
    last = np.zeros(periods + 1, np.intp)
    for track in plan.tracks:
        if track.reports_changes:
            starts = track.first + track.width * np.arange(track.count)
            last[starts] = np.maximum(last[starts], starts + track.width)
    return last


def _join(
    G: Floats,
    H: Floats,
    P: Floats,
    part: Indices,
    moved: NDArray[np.bool_],
    fixed: int,
    loose: int,
    edge: int,
    variance: float,
    sign: float,
) -> None:
    """The first edge between two connected parts: one part is shifted, as a whole, to where the edge says it is.

    v := v + (v_fixed ± y - v_loose) for all times that move. Its values were relative, so nothing is lost.
    """
    for M in (G, H, P):
        M[moved] += M[fixed] - M[loose]
    P[:, moved] += (P[:, fixed] - P[:, loose])[:, None]
    P[np.ix_(moved, moved)] += variance
    H[moved, edge] += sign
    part[moved] = part[fixed]


def _update(G: Floats, H: Floats, P: Floats, i: int, edge: int, variance: float) -> None:
    """One more edge, which ends at the newest time, within a connected part: the usual Kalman gain."""
    toward = P[-1] - P[i]
    gain = toward / (toward[-1] - toward[i] + variance)
    column = gain[:, None]
    G -= column * (G[-1] - G[i])
    H -= column * (H[-1] - H[i])
    H[:, edge] += gain
    P -= column * toward


def _propagated(G: Floats, H: Floats, S: Floats, C: Floats) -> Floats:
    """G S G' + H diag(C) H', for each of the q columns of S, (F, F, q), and C, (k, q)."""
    F, k = H.shape
    q = C.shape[1]
    if q == 0:
        return np.zeros((F, F, 0))
    f = len(S)
    left = (G @ S.reshape(f, f * q)).reshape(F, f, q)
    both = (G @ left.transpose(1, 0, 2).reshape(f, F * q)).reshape(F, F, q)
    both += ((H[:, None, :] * H[None, :, :]).reshape(F * F, k) @ C).reshape(F, F, q)
    return both

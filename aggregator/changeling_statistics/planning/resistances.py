"""Effective resistances between every time and time 0, all at once, and how much of a current each edge carries.

This is the release graph for planning, in dense matrices. Online, the graph of each time is that of the edges which
end by then, and times are added one after another; retrospective, all times have the whole graph. Knows edges;
nothing of plans.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from ..estimation.network import Indices


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

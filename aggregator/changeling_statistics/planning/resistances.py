"""Effective resistances between every time and the ground at once, and how each edge carries the current.

The release graph, dense, for planning: `online` solves the graph that has closed by t for every t,
by adding one time after another; `retrospective` solves the whole one. Knows edges; nothing of plans.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from ..estimation.network import Indices

GROUND = 0


def sums(index: Indices, figures: Floats, size: int) -> Floats:
    """Figures added up by index, shape (size,)."""
    return np.bincount(index, figures, size).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """E distinct edges start -> end between the times 0 (the ground) to `periods`, by their ends."""

    periods: int
    start: Indices
    end: Indices
    retrospective: bool

    @property
    def closed(self) -> NDArray[np.bool_]:
        """Which edges an estimate may use, shape (E, periods): the time t is column t - 1."""
        times = np.arange(1, self.periods + 1)
        return (self.end[:, None] <= times) | np.bool_(self.retrospective)


def potentials(edges: Edges, conductance: Floats) -> Floats:
    """P, shape (periods + 1, periods): column t - 1 holds Cov(v̂_s, v̂_t) for every s, in the graph t is solved on.

    conductance: 1/σ² of each edge, 0 for one that is not there, shape (E,). P[t, t - 1] is the effective resistance
    between t and the ground; a time that nothing connects has inf there. Online, P is 0 for s > t.
    """
    return _whole(edges, conductance) if edges.retrospective else _growing(edges, conductance)


def resistances(P: Floats) -> Floats:
    """The resistance of each time, shape (periods,)."""
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
    for one, other, sign in ((edges.start, edges.end, -1.0), (edges.end, edges.start, -1.0)):
        np.add.at(L, (one, other), sign * conductance)
        np.add.at(L, (one, one), conductance)
    factor, failed = dpotrf(L[1:, 1:], lower=1, overwrite_a=1)
    if failed:
        return np.full((n + 1, n), np.inf)
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
    P = np.zeros((n + 1, n))
    P[1:] = np.tril(inverse) + np.tril(inverse, -1).T
    return P


def _growing(edges: Edges, conductance: Floats) -> Floats:
    """One time after another: the best linear unbiased estimate of all times so far, with its covariance S.

    The k edges that end at t read v_t = v_s + y. With C = S_ss + diag(σ²), r = 1 / 1'C⁻¹1 and q = r·C⁻¹1, the new
    time has variance r and covariance q'S_s. with the others, and these learn from how the readings disagree:
    S := S - S_.s (C⁻¹ - qq'/r) S_s. Of S only the columns are kept from which an edge is still to come.
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

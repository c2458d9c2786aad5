"""The planner's problem: which shares f of candidate groups make the variances of histograms small.

The variance at time t is R_t, the effective resistance between t and time 0 in a network where an edge e of group g has
the conductance f_g / σ_e². What is made small is R(f) = Σ_t w_t R_t(f). R is convex in f and homogeneous of degree -1.
So with φ_g = -∂R/∂f_g no shares at all have an R below

    R² / max_g φ_g        (docs/mathematics.md, "Planning")

Knows edges and variances; nothing of randomizers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from ..estimation.network import Indices
from .candidates import Candidate
from .resistances import Edges, drops, potentials, resistances, sums


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The problem at some shares.

    resistances: R_t, shape (T,).
    slopes: φ_g, shape (groups,).
    weights: w, shape (T,), adding up to 1.
    """

    resistances: Floats
    slopes: Floats
    weights: Floats

    @property
    def value(self) -> float:
        """R, the weighted mean of the resistances."""
        return float(self.weights @ self.resistances)

    @property
    def bound(self) -> float:
        """A figure that R is not below for any shares of these groups."""
        return self.value**2 / float(self.slopes.max())


@dataclass(frozen=True)
class Problem:
    """The problem of some candidates.

    candidates: the groups among which shares are divided.
    periods: T.
    retrospective: whether histograms are estimated from everything; if not, each from what has closed by its time.
    """

    candidates: Sequence[Candidate]
    periods: int
    retrospective: bool

    def at(self, shares: Floats, weights: Floats) -> Evaluation:
        """The resistances and slopes at some shares; inf if a time is not connected with time 0.

        shares: f, at least 0, shape (groups,). weights: w, shape (T,), adding up to 1.
        """
        conductance = sums(self._edge, self._per_share * shares[self._owner], len(self._edges.start))
        P = potentials(self._edges, conductance)
        reached = resistances(P)
        if not np.isfinite(reached).all():
            return Evaluation(reached, np.full(len(shares), np.inf), weights)
        squared = drops(self._edges, P) ** 2 @ weights
        slopes = sums(self._owner, squared[self._edge] * self._per_share, len(shares))
        return Evaluation(reached, slopes, weights)

    def restricted(self, chosen: NDArray[np.intp]) -> "Problem":
        """The problem of only some of the candidates, chosen by number."""
        return Problem([self.candidates[i] for i in chosen], self.periods, self.retrospective)

    @cached_property
    def _owner(self) -> Indices:
        counts = [len(candidate.start) for candidate in self.candidates]
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def _per_share(self) -> Floats:
        variances: Floats = np.concatenate([candidate.variance for candidate in self.candidates])
        return 1.0 / variances

    @cached_property
    def _named(self) -> tuple[Indices, Indices]:
        start = np.concatenate([candidate.start for candidate in self.candidates])
        end = np.concatenate([candidate.end for candidate in self.candidates])
        named, edge = np.unique(end * (self.periods + 1) + start, return_inverse=True)
        return named, edge

    @property
    def _edge(self) -> Indices:
        """Which distinct edge each candidate's edge is; parallel edges are one."""
        return self._named[1]

    @cached_property
    def _edges(self) -> Edges:
        end, start = np.divmod(self._named[0], self.periods + 1)
        return Edges(self.periods, start, end, self.retrospective)

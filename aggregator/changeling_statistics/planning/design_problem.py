"""The planner's problem: shares f of candidate groups that minimise the resistance between the times and the ground.

    R(f) = Σ_t w_t R_t(f),  R_t the effective resistance where edge e of group g has the conductance f_g / σ_e²

R is convex in f and homogeneous of degree -1, so with φ_g = -∂R/∂f_g no shares whatever do better than

    R* >= R² / max_g φ_g        (docs/mathematics.md, "Planning")

and R = Σ_g f_g φ_g says where a plan falls short of that. Knows edges and variances; nothing of randomizers.
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
class Point:
    """What some shares give.

    resistances: R_t, shape (T,). slopes: φ_g, shape (groups,). weights: w, shape (T,), adding up to 1.
    """

    resistances: Floats
    slopes: Floats
    weights: Floats

    @property
    def value(self) -> float:
        """R."""
        return float(self.weights @ self.resistances)

    @property
    def bound(self) -> float:
        """A resistance that no shares of these groups can undercut."""
        return self.value**2 / float(self.slopes.max())


@dataclass(frozen=True)
class Problem:
    """Candidates over T periods; retrospective: every time is solved on the whole graph."""

    candidates: Sequence[Candidate]
    periods: int
    retrospective: bool

    def point(self, shares: Floats, weights: Floats) -> Point:
        """The resistances and slopes at shares f, shape (groups,), f >= 0; inf where something is not connected."""
        conductance = sums(self._edge, self._per_share * shares[self._owner], len(self._edges.start))
        P = potentials(self._edges, conductance)
        found = resistances(P)
        if not np.isfinite(found).all():
            return Point(found, np.full(len(shares), np.inf), weights)
        squared = drops(self._edges, P) ** 2 @ weights
        slopes = sums(self._owner, squared[self._edge] * self._per_share, len(shares))
        return Point(found, slopes, weights)

    def restricted(self, to: NDArray[np.intp]) -> "Problem":
        """The problem with only some of the candidates, by their numbers."""
        return Problem([self.candidates[i] for i in to], self.periods, self.retrospective)

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
        """Which distinct edge each candidate's edge is: parallel resistors are one."""
        return self._named[1]

    @cached_property
    def _edges(self) -> Edges:
        end, start = np.divmod(self._named[0], self.periods + 1)
        return Edges(self.periods, start, end, self.retrospective)

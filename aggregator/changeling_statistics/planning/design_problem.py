"""The planner's problem: which shares f of candidate groups make the variances of histograms small.

Entries of group g tell L_g = B_g' V_g⁻¹ B_g each, so together they tell L(f) = Σ_g f_g L_g. The variance of the best
estimate at time t is R_t(f) = [L(f)⁻¹]_tt, less what the entries themselves vary by, which no shares change. Online, L
is of what has closed by t. What is made small is R(f) = Σ_t w_t R_t(f). R is convex in f and homogeneous of degree -1.
So with φ_g = -∂R/∂f_g no shares at all have an R below

    R² / max_g φ_g        (docs/mathematics.md, "Planning")

It is the whole figure that is predicted: noise, joint responses and sampling. "Everybody in one group" is one of its
points. Knows what entries tell; nothing of randomizers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from ..estimation.information import inverse, inverses
from ..estimation.network import Indices
from .candidates import Candidate


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The problem at some shares.

    variances: R_t less the entries' own variance, at the times that are looked at, shape (times,).
    value: Σ_t w_t R_t, with the entries' own variance.
    slopes: φ_g, shape (groups,).
    own: Σ_t w_t of the entries' own variance.
    """

    variances: Floats
    value: float
    slopes: Floats
    own: float

    @property
    def error(self) -> float:
        """Σ_t w_t of the variances that are published: what the search makes small."""
        return self.value - self.own

    @property
    def bound(self) -> float:
        """A figure that `error` is not below for any shares of these groups."""
        return self.value**2 / float(self.slopes.max()) - self.own


@dataclass(frozen=True)
class Problem:
    """The problem of some candidates.

    candidates: the groups among which shares are divided.
    own: the variance of an entry's own answer at the times 1..T, mean over the answers, shape (T,).
    retrospective: whether histograms are estimated from everything; if not, each from what has closed by its time.
    times: which of the times 1..T are looked at, rising, shape (times,).
    """

    candidates: Sequence[Candidate]
    own: Floats
    retrospective: bool
    times: Indices

    def at(self, shares: Floats, weights: Floats) -> Evaluation:
        """The variances and slopes at some shares; inf if a time is not connected with time 0.

        shares: f, at least 0, shape (groups,). weights: w of the times that are looked at, adding up to 1.
        """
        own = self.own[self.times - 1]
        try:
            columns = self._columns(shares)
        except np.linalg.LinAlgError:
            nothing = np.full(len(self.times), np.inf)
            return Evaluation(nothing, np.inf, np.full(len(shares), np.inf), float(weights @ own))
        R = columns[self.times - 1, np.arange(len(self.times))]
        return Evaluation(R - own, float(weights @ R), self._slopes(columns, weights), float(weights @ own))

    def curvature(self, shares: Floats, weights: Floats) -> Floats:
        """The second derivatives of R, shape (groups, groups); for few candidates, and few times.

        ∂²R / ∂f_g ∂f_h = 2 Σ_t w_t (L_g u)' L⁻¹ (L_h u),  u = L⁻¹ e_t,  each L of what may be used at t
        """
        scaled = self._columns(shares) * np.sqrt(weights)
        pushed = np.stack([self._pushed(candidate, scaled) for candidate in self.candidates])
        curvature = np.zeros((len(shares), len(shares)))
        for at, P in self._inverses(shares):
            forces = pushed[:, : len(P), at]
            curvature += 2.0 * np.einsum("gst,hst->gh", forces, P @ forces, optimize=True)
        return curvature

    def restricted(self, chosen: NDArray[np.intp]) -> "Problem":
        """The problem of only some of the candidates, chosen by number."""
        return Problem([self.candidates[i] for i in chosen], self.own, self.retrospective, self.times)

    def looking_at(self, times: Indices) -> "Problem":
        """The same problem with other times looked at."""
        return Problem(self.candidates, self.own, self.retrospective, times)

    def _columns(self, shares: Floats) -> Floats:
        """L⁻¹ e_t for each time that is looked at, 0 for times that L does not reach, shape (T, times)."""
        columns = np.zeros((len(self.own), len(self.times)))
        for at, P in self._inverses(shares):
            columns[: len(P), at] = P[:, self.times[at] - 1]
        return columns

    def _inverses(self, shares: Floats) -> Iterator[tuple[slice, Floats]]:
        """P = L⁻¹ for each of the times that are looked at, with which of them these are: one for all, or for each.

        Raises LinAlgError where an L is singular.
        """
        used = np.flatnonzero(shares).tolist()
        if self.retrospective:
            L = np.zeros((len(self.own),) * 2)
            for g in used:
                L += shares[g] * self.candidates[g].told
            yield slice(None), inverse(L)
            return
        rows = np.concatenate([np.sqrt(shares[g]) * self.candidates[g].rows for g in used])
        ends = np.concatenate([self.candidates[g].ends for g in used])
        for at, P in enumerate(inverses(rows, ends, self.times)):
            yield slice(at, at + 1), P

    def _slopes(self, columns: Floats, weights: Floats) -> Floats:
        """φ_g = Σ_t w_t u_t' L_g u_t, over the edges that may be used at t."""
        scaled = columns * np.sqrt(weights)
        if self.retrospective:
            M = scaled @ scaled.T
            return np.array([np.vdot(M, candidate.told) for candidate in self.candidates])
        return np.array([np.vdot(told, told) for told in (self._told(each, scaled) for each in self.candidates)])

    def _told(self, candidate: Candidate, columns: Floats) -> Floats:
        """R_g u_t, 0 for edges that may not be used at t, shape (E_g, times)."""
        told: Floats = candidate.rows @ columns
        if not self.retrospective:
            told[candidate.ends[:, None] > self.times] = 0.0
        return told

    def _pushed(self, candidate: Candidate, columns: Floats) -> Floats:
        """L_g u_t, shape (T, times)."""
        if self.retrospective:
            return candidate.told @ columns
        return candidate.rows.T @ self._told(candidate, columns)

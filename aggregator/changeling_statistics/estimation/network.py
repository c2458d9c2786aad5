"""The release graph as a network of resistors: vertices are times, edges are releases.

A release of variance σ² between two times is a resistor of σ² between them; the best linear unbiased difference of
the histogram between two times weighs every release by the current it carries when one unit flows from the one time
to the other. Knows times and variances; nothing of surveys, tallies or answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats

Indices = NDArray[np.intp]
IN_CACHE = 1024
"""How many edges' currents are squared and summed at a time."""


@dataclass(frozen=True, eq=False)
class Network:
    """Edges start[e] -> end[e] of resistance variance[e] > 0, all of shape (E,), on the times 0 to `periods`."""

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
        """The network of the releases that have closed by a period: what an online estimate may use."""
        closed = self.end <= period
        return Network(self.periods, self.start[closed], self.end[closed], self.variance[closed])

    @cached_property
    def components(self) -> Indices:
        """Which connected part each time belongs to, shape (periods + 1,)."""
        from scipy.sparse import csc_matrix, csgraph

        n = self.periods + 1
        links = csc_matrix((np.ones(len(self.start)), (self.start, self.end)), shape=(n, n))
        labels: Indices = csgraph.connected_components(links, directed=False)[1].astype(np.intp)
        return labels

    def connected(self, time: int, other: int) -> bool:
        """Whether edges lead from one time to the other."""
        return bool(self.components[time] == self.components[other])

    def potentials(self, sources: Floats) -> Floats:
        """L⁺ of the sources: shape (periods + 1, k) to the same, up to a constant in each connected part.

            L = Σ_e (1/σ_e²)(e_end - e_start)(e_end - e_start)'

        The sources of each connected part must add up to 0. In each part the first time is grounded.
        """
        solved = np.zeros_like(sources)
        if len(self._free):
            solved[self._free] = self._factor.solve(np.asfortranarray(sources[self._free]))
        return solved

    def fit(self, changes: Floats) -> Floats:
        """v̂ at every time from the changes on every edge, (E, k) to (periods + 1, k): weighted least squares.

        In each connected part relative to its first time, so absolutely where that is time 0.
        """
        weighted = changes / self.variance[:, None]
        sources: Floats = self._incidence @ weighted
        return self.potentials(sources)

    def rows(self, sources: Floats) -> Floats:
        """K: how much each edge weighs in the estimates Σ_t sources[t]·v_t, shape (k, E).

        K_e = (φ_end - φ_start)/σ_e², φ = L⁺ sources; sources as for `potentials`.
        """
        potentials = self.potentials(sources)
        drops = potentials[self.end] - potentials[self.start]
        currents: Floats = np.divide(drops, self.variance[:, None])
        return currents.T

    def spread(self, sources: Floats, columns: Floats) -> Floats:
        """Σ_e K_e² columns[e] for each of the estimates of `rows`: (E, q) to (k, q)."""
        potentials = self.potentials(sources)
        summed = np.zeros((sources.shape[1], columns.shape[1]))
        for at in range(0, len(self.start), IN_CACHE):
            edges = slice(at, at + IN_CACHE)
            currents = potentials[self.end[edges]]
            currents -= potentials[self.start[edges]]
            currents /= self.variance[edges, None]
            currents *= currents
            summed += np.asarray(currents.T @ columns[edges])
        return summed

    def row(self, plus: int, minus: int = 0) -> Floats:
        """K of v_plus - v_minus, shape (E,). ValueError where the two are not connected."""
        row: Floats = self.rows(self.unit_sources([plus], minus))[0]
        return row

    def unit_sources(self, plus: Sequence[int], minus: int = 0) -> Floats:
        """The sources of the differences v_t - v_minus, shape (periods + 1, len(plus))."""
        for time in plus:
            if not self.connected(time, minus):
                raise ValueError(f"no releases connect the times {minus} and {time}")
        sources = np.zeros((self.periods + 1, len(plus)))
        sources[list(plus), np.arange(len(plus))] += 1.0
        sources[minus] -= 1.0
        return sources

    def resistance(self, plus: int, minus: int = 0) -> float:
        """The effective resistance: the variance of v̂_plus - v̂_minus if the edges' variances are the true ones."""
        return float((self.row(plus, minus) ** 2 * self.variance).sum())

    @property
    def log_determinant(self) -> float:
        """ln det L, without the rows of the times that are grounded."""
        return float(np.log(np.abs(self._factor.U.diagonal())).sum()) if len(self._free) else 0.0

    @cached_property
    def _free(self) -> Indices:
        """The times that are not grounded."""
        first = np.unique(self.components, return_index=True)[1]
        return np.setdiff1d(np.arange(self.periods + 1), first).astype(np.intp)

    @cached_property
    def _incidence(self) -> Any:
        from scipy.sparse import csc_matrix

        edges = np.arange(len(self.start))
        signs = np.repeat([1.0, -1.0], len(edges))
        at = (np.concatenate([self.end, self.start]), np.concatenate([edges, edges]))
        return csc_matrix((signs, at), shape=(self.periods + 1, len(edges)))

    @cached_property
    def _factor(self) -> Any:
        from scipy.sparse.linalg import splu

        scaled = self._incidence.multiply(1.0 / np.sqrt(self.variance)).tocsr()[self._free]
        laplacian = (scaled @ scaled.T).tocsc()
        # Symmetric and positive definite, and nearly a tree: hardly any fill, and no pivoting is needed.
        return splu(laplacian, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})

"""The release graph as a network of resistors: vertices are times, edges are published nodes.

An edge with variance σ² is a resistor of σ² between the two times. The best linear unbiased estimate of how the
histogram differs between two times weighs each edge by the current it carries when one unit flows from the one time to
the other. Knows times and variances; nothing of surveys, tallies or answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats

Indices: TypeAlias = NDArray[np.intp]
IN_CACHE = 1024
"""How many edges' currents are squared and added up at a time."""


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
        closed = self.end <= period
        return Network(self.periods, self.start[closed], self.end[closed], self.variance[closed])

    @cached_property
    def components(self) -> Indices:
        """The number of the connected part that each time belongs to, shape (periods + 1,)."""
        from scipy.sparse import csc_matrix, csgraph

        n = self.periods + 1
        links = csc_matrix((np.ones(len(self.start)), (self.start, self.end)), shape=(n, n))
        labels: Indices = csgraph.connected_components(links, directed=False)[1].astype(np.intp)
        return labels

    def connected(self, time: int, other: int) -> bool:
        """Whether edges lead from one time to the other."""
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

    def spread(self, sources: Floats, columns: Floats) -> Floats:
        """Σ_e K_e² columns[e], with the K of `rows`.

        sources: as for `potentials`. columns: q figures for each edge, shape (E, q). Returns shape (k, q).
        """
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
        """The weights K of the estimate of v_plus - v_minus, shape (E,).

        plus, minus: two times. Raises ValueError if no edges connect them.
        """
        row: Floats = self.rows(self.unit_sources([plus], minus))[0]
        return row

    def unit_sources(self, plus: Sequence[int], minus: int = 0) -> Floats:
        """The sources of the differences v_t - v_minus, for each time t in `plus`, shape (periods + 1, len(plus)).

        Raises ValueError if no edges connect the two.
        """
        for time in plus:
            if not self.connected(time, minus):
                raise ValueError(f"no releases connect the times {minus} and {time}")
        sources = np.zeros((self.periods + 1, len(plus)))
        sources[list(plus), np.arange(len(plus))] += 1.0
        sources[minus] -= 1.0
        return sources

    def resistance(self, plus: int, minus: int = 0) -> float:
        """The effective resistance between two times: the variance of v̂_plus - v̂_minus if the edges' are the true ones.

        Raises ValueError if no edges connect them.
        """
        return float((self.row(plus, minus) ** 2 * self.variance).sum())

    @property
    def log_determinant(self) -> float:
        """ln det L, without the rows and columns of the first time of each connected part."""
        return float(np.log(np.abs(self._factor.U.diagonal())).sum()) if len(self.free) else 0.0

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
        """The sparse LU factors of L on the free times."""
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
        return splu(laplacian, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def with_drift(network: Network, drift: float) -> Network:
    """The network with more edges after its own: one of variance τ² between the times t and t + 1, for each t >= 1.

    drift: τ².
    """
    times = np.arange(1, network.periods, dtype=np.intp)
    return Network(
        network.periods,
        np.concatenate([network.start, times]),
        np.concatenate([network.end, times + 1]),
        np.concatenate([network.variance, np.full(len(times), drift)]),
    )

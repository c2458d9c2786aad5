"""The solution of a release graph: weights, values, and the exact covariance of what is published.

    v̂_t = Σ_e K_te y_e        Cov(v̂_t, v̂_t') = Σ_e K_te K_t'e C_e + sampling error of shares

K comes from planned variances, C_e from the node's own tally: whatever the weights, the covariance is the one of
that very sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..estimate import Estimate, Floats
from .network import Network
from .reach import not_estimable
from .recursion import run
from .releases import Releases, UsedNode
from .sampling import Sampling

BLOCK = 32
"""How many times are solved for at once, so that their weights stay in the cache: four times faster than 128."""
NOTHING = 1e-9
"""Weights below this share of the largest are rounding, not weights."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Estimates on one release graph, online (each time by what has closed by it) or retrospective.

    drift: τ², the resistance of extra edges between neighbouring times, on which nothing is measured to have
    changed; None for none. With it estimates are biased, and are offered only by `smoother`.
    """

    releases: Releases
    retrospective: bool = False
    drift: float | None = None

    @cached_property
    def network(self) -> Network:
        """The edges of the releases, then those of the drift."""
        network = self.releases.network
        return network if self.drift is None else with_drift(network, self.drift)

    def reaches(self, plus: int, minus: int = 0) -> bool:
        """Whether v̂_plus - v̂_minus can be estimated: releases connect the two times."""
        return self._used_for(plus).connected(plus, minus)

    def row(self, plus: int, minus: int = 0) -> Floats:
        """K of v̂_plus - v̂_minus, shape (E,). Raises NotEstimable where nothing connects the two."""
        network = self._used_for(plus)
        if not network.connected(plus, minus):
            until = network.periods if self.retrospective else plus
            raise not_estimable(self.releases, plus, until, minus)
        found = network.row(plus, minus)
        if self.retrospective:
            return found[: len(self.releases)]
        row = np.zeros(len(self.network.start))
        row[self.network.end <= plus] = found
        return row[: len(self.releases)]

    def rows(self, times: Sequence[int]) -> Floats:
        """K of the histograms at several times, shape (len(times), E). Raises NotEstimable."""
        if self.retrospective and all(self.reaches(time) for time in times):
            return self.network.rows(self.network.unit_sources(times))[:, : len(self.releases)]
        return np.array([self.row(time) for time in times]).reshape(len(times), len(self.releases))

    def used(self, plus: int, minus: int = 0) -> tuple[UsedNode, ...]:
        """The nodes that carry weight in v̂_plus - v̂_minus."""
        weights = np.abs(self.row(plus, minus))
        return tuple(self.releases.nodes[e] for e in np.flatnonzero(weights > NOTHING * weights.max(initial=0.0)))

    def estimate(self, plus: int, minus: int = 0) -> Estimate:
        """v̂_plus - v̂_minus with its covariance. Raises NotEstimable."""
        row = self.row(plus, minus)
        response = sandwich(row, self.releases.covariances)
        sampling, bounded = self.sampling.covariance(row)
        return Estimate(row @ self.releases.changes, response + sampling, bounded or self.releases.bounded)

    def estimates(self, until: int) -> list[Estimate | None]:
        """The histograms at times 1 to `until`, None where one is not estimable."""
        found = self._retrospective(until) if self.retrospective else self._online(until)
        if not self.sampling.needed:
            return found
        return [self._with_sampling(time, estimate) if estimate else None for time, estimate in enumerate(found, 1)]

    def variances(self, until: int) -> Floats:
        """The variances of the histograms at times 1 to `until`, (until, z), in entries squared; nan where none is."""
        z = len(self.releases.survey.answers)
        own = np.diagonal(self.releases.covariances, axis1=1, axis2=2)
        found = np.full((until, z), np.nan)
        for time, variance in self._spread(_padded(own, len(self.network.start)), until):
            sampling = self.sampling.covariance(self.row(time))[0] if self.sampling.needed else np.zeros((z, z))
            found[time - 1] = variance + np.diag(sampling)
        return found

    def joint_covariance(self, times: Sequence[int]) -> Floats:
        """Cov(v̂_t, v̂_t') for several times, shape (k, k, z, z), in entries squared. Raises NotEstimable.

        Its symmetric part in the two answers, which is what variances of sums and differences need.
        """
        rows = self.rows(times)
        k, z = len(times), len(self.releases.survey.answers)
        flat = self.releases.covariances.reshape(len(self.releases), z * z)
        response = np.stack([(rows * row) @ flat for row in rows]).reshape(k, k, z, z)
        joint: Floats = response + self.sampling.joint_covariance(rows)
        return joint

    @cached_property
    def sampling(self) -> Sampling:
        """The sampling error of these estimates."""
        return Sampling(self.releases)

    def _used_for(self, time: int) -> Network:
        return self.network if self.retrospective else self.network.closed_by(time)

    def _with_sampling(self, time: int, estimate: Estimate) -> Estimate:
        sampling, bounded = self.sampling.covariance(self.row(time))
        return Estimate(estimate.values, estimate.covariance + sampling, estimate.upper_bound or bounded)

    def _online(self, until: int) -> list[Estimate | None]:
        z, bounded = len(self.releases.survey.answers), self.releases.bounded
        return [
            Estimate(online.values, _unpacked(online.covariance, z), bounded) if online else None
            for online in run(self.network, self._changes, self._packed, until)
        ]

    def _retrospective(self, until: int) -> list[Estimate | None]:
        z, bounded = len(self.releases.survey.answers), self.releases.bounded
        values = self.network.fit(self._changes)
        found: list[Estimate | None] = [None] * until
        for time, covariance in self._spread(self._packed, until):
            found[time - 1] = Estimate(values[time], _unpacked(covariance, z), bounded)
        return found

    def _spread(self, columns: Floats, until: int) -> Iterator[tuple[int, Floats]]:
        """(t, Σ_e K_te² columns[e]) for the times up to `until` that are estimable; columns: (edges, q)."""
        if not self.retrospective:
            for online in run(self.network, np.zeros((len(columns), 1)), columns, until):
                if online:
                    yield online.period, online.covariance
            return
        reached = [time for time in range(1, until + 1) if self.network.connected(time, 0)]
        for at in range(0, len(reached), BLOCK):
            times = reached[at : at + BLOCK]
            yield from zip(times, self.network.spread(self.network.unit_sources(times), columns), strict=True)

    @cached_property
    def _changes(self) -> Floats:
        """On every edge, 0 on those of the drift."""
        return _padded(self.releases.changes, len(self.network.start))

    @cached_property
    def _packed(self) -> Floats:
        """The upper triangles of the releases' covariances, row by row, 0 for the drift; (edges, z(z+1)/2)."""
        upper = np.triu_indices(len(self.releases.survey.answers))
        return _padded(self.releases.covariances[:, upper[0], upper[1]], len(self.network.start))


def sandwich(row: Floats, covariances: Floats) -> Floats:
    """Σ_e K_e² C_e: (E,) and (E, z, z) to (z, z). With true covariances C_e, the exact response covariance."""
    summed: Floats = np.tensordot(row**2, covariances, axes=1)
    return summed


def with_drift(network: Network, drift: float) -> Network:
    """The network with a resistor of τ² = `drift` between the times t and t + 1, t >= 1, after its own edges."""
    times = np.arange(1, network.periods, dtype=np.intp)
    return Network(
        network.periods,
        np.concatenate([network.start, times]),
        np.concatenate([network.end, times + 1]),
        np.concatenate([network.variance, np.full(len(times), drift)]),
    )


def _padded(columns: Floats, rows: int) -> Floats:
    return np.concatenate([columns, np.zeros((rows - len(columns), columns.shape[1]))])


def _unpacked(packed: Floats, z: int) -> Floats:
    """A symmetric matrix, (z, z), from its upper triangle by rows."""
    upper = np.triu_indices(z)
    full = np.zeros((z, z))
    full[upper] = packed
    full.T[upper] = packed
    return full

"""Matrices of a solution: covariances that randomizers add, and symmetric ones as rows of a triangle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..estimate import Estimate, Floats
from .network import Indices, Network, with_drift
from .recursion import run
from .releases import Releases, UsedNode, not_estimable
from .sampling import ManySampling, Sampling
from .weights import BestWeights, best_weights, hangs_together


def sandwich(row: Floats, covariances: Floats) -> Floats:
    """Σ_e K_e² C_e: the covariance of Σ_e K_e y_e that the randomizers add, shape (z, z).

    row: K, shape (E,). covariances: C_e of each y_e, shape (E, z, z).
    """
    summed: Floats = np.tensordot(row**2, covariances, axes=1)
    return summed


def padded(columns: Floats, rows: int) -> Floats:
    """The columns with rows of 0 below, so many in all."""
    return np.concatenate([columns, np.zeros((rows - len(columns), columns.shape[1]))])


def unpacked(packed: Floats, z: int) -> Floats:
    """A symmetric matrix, (z, z), from its upper triangle by rows."""
    upper = np.triu_indices(z)
    full = np.zeros((z, z))
    full[upper] = packed
    full.T[upper] = packed
    return full


BLOCK = 32
"""For how many times the graph is solved at once. Their weights then stay in the cache: 128 take four times as long."""
NOTHING = 1e-9
"""Weights below this share of the largest are rounding, not weights."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The estimates on one release graph.

    releases: the published nodes.
    retrospective: whether to use all of them; if not, an estimate uses those that have closed by its time.
    drift: τ², the resistance of extra edges between neighbouring times, on which a change of 0 is taken to have been
    measured; None for no such edges. They make estimates biased, and only `smoother` uses them.
    """

    releases: Releases
    retrospective: bool = False
    drift: float | None = None

    @cached_property
    def network(self) -> Network:
        """The edges of the nodes, then those of the drift."""
        network = self.releases.network
        return network if self.drift is None else with_drift(network, self.drift)

    def reaches(self, plus: int, minus: int = 0) -> bool:
        """Whether v_plus - v_minus can be estimated: whether edges connect the two times."""
        return self._used_for(plus).connected(plus, minus)

    def row(self, plus: int, minus: int = 0) -> Floats:
        """The weight of each node in the estimate of v_plus - v_minus, shape (E,).

        plus, minus: two times. Raises NotEstimable if no edges connect them.
        """
        network, until = self._used_for(plus), self.known_until(plus)
        if not network.connected(plus, minus):
            raise not_estimable(self.releases, plus, until, minus)
        scale = self.releases.enrolment.scale(until)
        if self._best is not None:
            best: Floats = scale * self._best.row(plus, minus, until)[: len(self.releases)]
            return best
        weights: Floats = scale * network.row(plus, minus)
        if self.retrospective:
            return weights[: len(self.releases)]
        row = np.zeros(len(self.network.start))
        row[self.network.end <= plus] = weights
        return row[: len(self.releases)]

    def rows(self, times: Sequence[int]) -> Floats:
        """The weight of each node in the histograms at several times, shape (len(times), E). Raises NotEstimable."""
        if self.retrospective and all(self.reaches(time) for time in times):
            whole = self._best.rows(times) if self._best else self.network.rows(self.network.unit_sources(times))
            scaled: Floats = self.releases.enrolment.scale(self.network.periods) * whole[:, : len(self.releases)]
            return scaled
        return np.array([self.row(time) for time in times]).reshape(len(times), len(self.releases))

    def used(self, plus: int, minus: int = 0) -> tuple[UsedNode, ...]:
        """The nodes that have a weight in the estimate of v_plus - v_minus. Raises NotEstimable."""
        return self.weighing(self.row(plus, minus))

    def weighing(self, row: Floats) -> tuple[UsedNode, ...]:
        """The nodes that have a weight in a row. row: shape (E,)."""
        weights = np.abs(row)
        return tuple(self.releases.nodes[e] for e in np.flatnonzero(weights > NOTHING * weights.max(initial=0.0)))

    def estimate(self, plus: int, minus: int = 0) -> Estimate:
        """The estimate of v_plus - v_minus with its covariance. Raises NotEstimable if no edges connect the times."""
        return self.weighed(self.row(plus, minus), self.known_until(plus))

    def weighed(self, row: Floats, until: int, *, of_heard: bool = False) -> Estimate:
        """The estimate with these weights, and its covariance as known at a time.

        of_heard: whether it is about those alone who are heard, so that nothing is missing of those who are silent.
        """
        response = sandwich(row, self.releases.responses if of_heard else self.releases.covariances)
        sampling, bounded = np.zeros_like(response), False
        if self.needs_sampling(np.array([until]), of_heard=of_heard):
            sampling, bounded = self.sampling.covariance(row, until, of_heard=of_heard)
        return Estimate(row @ self.releases.changes, response + sampling, bounded or self.releases.bounded(until))

    def estimates(self, until: int) -> list[Estimate | None]:
        """The histograms at the times 1 to `until`; None for one that is not estimable."""
        if self._best is not None:
            estimates: list[Estimate | None] = [None] * until
            for time, row in self.best_rows(until):
                estimates[time - 1] = self.weighed(row, self.known_until(time))
            return estimates
        alone = self._retrospective(until) if self.retrospective else self._online(until)
        if not hangs_together(self.releases.survey):
            return [
                self._from_everybody(time, estimate) if estimate else None for time, estimate in enumerate(alone, 1)
            ]
        return [self.estimate(time) if estimate else None for time, estimate in enumerate(alone, 1)]

    def values(self, until: int) -> Floats:
        """The histograms at the times 1 to `until` without their covariances, which take longer; shape (until, z).

        nan for a time that is not estimable.
        """
        enrolment = self.releases.enrolment
        scales = np.array([enrolment.scale(self.known_until(time)) for time in range(1, until + 1)])
        scaled: Floats = self._relative(until) * scales[:, None]
        return scaled

    def _relative(self, until: int) -> Floats:
        """`values` in the releases' units, of as many entries as those stand for who are heard."""
        values = np.full((until, len(self.releases.survey.answers)), np.nan)
        if self._best is not None:
            for time, row in self.best_rows(until):
                values[time - 1] = row @ self.releases.changes / self.releases.enrolment.scale(self.known_until(time))
        elif self.retrospective:
            reached = self.network.components[1 : until + 1] == self.network.components[0]
            values[reached] = self.network.fit(self._changes)[1 : until + 1][reached]
        else:
            nothing = np.zeros((len(self.network.start), 0))
            for time, online in enumerate(run(self.network, self._changes, nothing, until)):
                if online is not None:
                    values[time] = online.values
        return values

    def variances(self, until: int) -> Floats:
        """The variances of the histograms at the times 1 to `until`, shape (until, z), in entries squared.

        nan for a time that is not estimable.
        """
        variances = np.full((until, len(self.releases.survey.answers)), np.nan)
        if hangs_together(self.releases.survey):
            for time, estimate in enumerate(self.estimates(until)):
                if estimate is not None:
                    variances[time] = np.diag(estimate.covariance)
            return variances
        own, values = np.diagonal(self.releases.covariances, axis1=1, axis2=2), self._relative(until)
        for time, variance in self._spread(padded(own, len(self.network.start)), until):
            missed = np.diag(self._missed_by_all(time, values[time - 1]))
            variances[time - 1] = self.releases.enrolment.scale(self.known_until(time)) ** 2 * (variance + missed)
        return variances

    def joint_covariance(self, times: Sequence[int]) -> Floats:
        """Cov(v̂_t, v̂_t') between k times, shape (k, k, z, z), in entries squared. Raises NotEstimable.

        It is made symmetric in the two answers, which is all that variances of sums and differences need.
        """
        rows = self.rows(times)
        k, z = len(times), len(self.releases.survey.answers)
        flat = self.releases.covariances.reshape(len(self.releases), z * z)
        response = np.stack([(rows * row) @ flat for row in rows]).reshape(k, k, z, z)
        until = self.known_until(max(times, default=0))
        joint: Floats = response + self.sampling.joint_covariance(rows, until)
        return joint

    @cached_property
    def sampling(self) -> Sampling:
        """What the reports of one entry have in common in these estimates."""
        known = self.releases
        last = int(known.network.end.max(initial=0))
        histories = np.full((known.network.periods + 1, len(known.survey.answers)), np.nan)
        histories[0] = 0.0
        histories[1 : last + 1] = self._relative(last)
        return Sampling(known, histories)

    @cached_property
    def many_sampling(self) -> ManySampling:
        """`sampling` for many estimates."""
        return ManySampling(self.sampling)

    @property
    def weighs_groups(self) -> bool:
        """Whether weights are those of `information`, and not the network's own."""
        return self._best is not None

    def needs_sampling(self, until: Indices, *, of_heard: bool = False) -> bool:
        """Whether `sampling` adds anything to some estimates. until: what is known for each; at least one."""
        if hangs_together(self.releases.survey):
            return True
        return not of_heard and bool((self.releases.enrolment.lasting[until] > 0).any())

    def known_until(self, time: int) -> int:
        """Up to which time nodes are used in an estimate at a time."""
        return self.network.periods if self.retrospective else time

    @cached_property
    def _best(self) -> BestWeights | None:
        known = self.releases
        entries = float(known.enrolment.stands_for[-1])
        return best_weights(known.survey, self.network, known.group, known.track, entries)

    def best_rows(self, until: int) -> Iterator[tuple[int, Floats]]:
        """(t, K) of the histogram at each estimable time t up to `until`; none unless `weighs_groups`."""
        for time, row in self._all_best_rows:
            if time <= until:
                yield time, self.releases.enrolment.scale(self.known_until(time)) * row

    def best_windows(self, width: int, until: int) -> Iterator[tuple[int, Floats]]:
        """(t, K) of the change over each window (t - width, t] up to `until` that can be estimated, online."""
        try:
            rows = self._best.windows(width) if self._best and len(self.releases) else []
        except np.linalg.LinAlgError:  # some time is reached late, or never
            ends = [end for end in range(width, until + 1) if self.reaches(end, end - width)]
            yield from ((end, self.row(end, end - width)) for end in ends)
        else:
            yield from ((end, self.releases.enrolment.scale(end) * row) for end, row in rows if end <= until)

    @cached_property
    def _all_best_rows(self) -> list[tuple[int, Floats]]:
        """Of all times at which a node has closed, or a later one; not scaled."""
        if self._best is None or not len(self.releases):
            return []
        rows = self._best.retrospective if self.retrospective else self._best.online
        return [(time, row[: len(self.releases)]) for time, row in rows]

    def _used_for(self, time: int) -> Network:
        return self.network if self.retrospective else self.network.closed_by(time)

    def _from_everybody(self, time: int, alone: Estimate) -> Estimate:
        """An estimate to which everybody adds who is heard: it is scaled to those who are enrolled.

        alone: what the nodes say, each by itself.
        """
        scale = self.releases.enrolment.scale(self.known_until(time))
        covariance = alone.covariance + self._missed_by_all(time, alone.values)
        return Estimate(scale * alone.values, scale**2 * covariance, alone.upper_bound)

    def _missed_by_all(self, time: int, values: Floats) -> Floats:
        """What it adds to a covariance that all nodes miss the same silent entries, shape (z, z).

        values: the histogram at that time, in the releases' units.
        """
        enrolment, until = self.releases.enrolment, self.known_until(time)
        m, unheard = float(enrolment.stands_for[until]), enrolment.missing(until).lasting
        missed: Floats = unheard * m / max(m - 1.0, 1.0) * (np.diag(values) - np.outer(values, values) / m)
        return missed

    def _online(self, until: int) -> list[Estimate | None]:
        z, bounded = len(self.releases.survey.answers), self.releases.bounded
        return [
            Estimate(online.values, unpacked(online.covariance, z), bounded(online.period)) if online else None
            for online in run(self.network, self._changes, self._packed, until)
        ]

    def _retrospective(self, until: int) -> list[Estimate | None]:
        z, bounded = len(self.releases.survey.answers), self.releases.bounded(self.network.periods)
        values = self.network.fit(self._changes)
        estimates: list[Estimate | None] = [None] * until
        for time, covariance in self._spread(self._packed, until):
            estimates[time - 1] = Estimate(values[time], unpacked(covariance, z), bounded)
        return estimates

    def _spread(self, columns: Floats, until: int) -> Iterator[tuple[int, Floats]]:
        """(t, Σ_e K_te² columns[e]) for each time up to `until` that is estimable.

        columns: q figures for each edge, shape (edges, q).
        """
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
        """The change measured on every edge, 0 on those of the drift, shape (edges, z)."""
        return padded(self.releases.changes, len(self.network.start))

    @cached_property
    def _packed(self) -> Floats:
        """The upper triangle of the covariance on every edge, row by row, 0 for the drift; shape (edges, z(z+1)/2)."""
        upper = np.triu_indices(len(self.releases.survey.answers))
        return padded(self.releases.covariances[:, upper[0], upper[1]], len(self.network.start))

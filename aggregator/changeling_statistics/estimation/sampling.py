"""The sampling error of shares: the error that comes from asking only some of the entries on each node.

Entries of one track are the same people at all its nodes, so these errors do not add up node by node. They are
quadratic forms of the entries' histories x_i(τ):

    Σ_i d_i d_i' = (Σ_τ c_τ) Σ_τ c_τ V_τ - Σ_{τ<τ'} c_τ c_τ' Q_ττ',     d_i = Σ_τ c_τ x_i(τ), times τ >= 1

V_τ = diag(v_τ) is estimated by the solution. Q_ττ' = Σ_i (x_i(τ') - x_i(τ))(…)' says who changed between two times.
Reports cannot be linked, so only a node of changes over just (τ, τ'] tells it. For another span, answer by answer,

    0 <= Q_ττ' <= the sum of Q over a chain of nodes from τ to τ', or V_τ + V_τ' if there is no chain

(who changes and comes back is counted in the sum). Of these limits the one is taken that makes the error larger.

So the figure is linear in the tallies. It is unbiased for the error if every span that matters is a node, as for one
share and prefix sums, (1/f - 1)·v_t, or for panels of one node. It is unbiased too in a closed cohort where entries
change at most once after the first period, as nobody comes back. Else it is unbiased for an upper bound, and labelled
so. A bound holds for the variance of each answer; for a region it holds to second order in the rate of changes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import AtMost
from numpy.typing import NDArray

from ..estimate import Floats
from .network import Indices
from .releases import Releases, shares
from .routes import Routes
from .sampling_forms import Design, Forms, draws, forms

WHOLE = 600
"""With up to so many times, the chains between all of them are kept; with more, only between those that matter."""
NOTHING = 1e-9
"""Weights below this are rounding, not weights."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingWeights:
    """A sampling covariance as a weighted sum of what tallies tell: Σ_e edges[e] Q̂_e + diag(Σ_t times[t] v̂_t).

    In a closed cohort products of means are taken off. The weights depend on the plan and on how many reported, never
    on what was answered.

    edges: the weight of each Q̂_e, shape (E,).
    times: the weight of the histogram at each time, shape (periods + 1,).
    omega: how often each of the K pairs of means is taken off, shape (K,).
    means: the pairs, as weights of histograms, each of shape (K, periods + 1).
    spans: how often the square of each edge's own mean is taken off, shape (E,).
    bounded: whether the sum is an upper bound.
    """

    edges: Floats
    times: Floats
    omega: Floats
    means: tuple[Floats, Floats]
    spans: Floats
    bounded: bool


@dataclass(frozen=True, eq=False)
class Sampling:
    """The sampling error of estimates on one release graph.

    releases: the published nodes.
    """

    releases: Releases

    @property
    def needed(self) -> bool:
        """Whether there is any; there is none if every entry reports on every node."""
        return self.design.needed

    def covariance(self, row: Floats) -> tuple[Floats, bool]:
        """The sampling covariance of an estimate, shape (z, z), in entries squared, and whether it is an upper bound.

        row: the weight of each edge in the estimate, shape (E,).
        """
        if not self.needed:
            z = len(self.releases.survey.answers)
            return np.zeros((z, z)), False
        weights = self.weights(row)
        return weighed(weights, self.design, self._products, self._histograms), weights.bounded

    def joint_covariance(self, rows: Floats) -> Floats:
        """The sampling covariances between k estimates, shape (k, k, z, z), in entries squared; their symmetric parts.

        rows: the weight of each edge in each estimate, shape (k, E).
        For a span that is no node a chain of nodes stands in, as if nobody came back. That is no bound, as whether a
        covariance ought to be large or small depends on its use.
        """
        k, z = len(rows), len(self.releases.survey.answers)
        joint = np.zeros((k, k, z, z))
        if not self.needed:
            return joint
        quadratics = [self._forms(row) for row in rows]
        for i, first in enumerate(quadratics):
            for j, second in enumerate(quadratics[: i + 1]):
                scatter = np.sign(rows[i] * rows[j]) * np.sqrt(first.scatter * second.scatter)
                weights = self._weights(first.omega, first.c, second.c, scatter, bounding=False)
                joint[i, j] = weighed(weights, self.design, self._products, self._histograms)
                joint[j, i] = joint[i, j]
        return joint

    def weights(self, row: Floats) -> SamplingWeights:
        """The sampling covariance of the estimate with these weights of edges, as a sum of what tallies tell."""
        quadratic = self._forms(row)
        return self._weights(quadratic.omega, quadratic.c, quadratic.c, quadratic.scatter, bounding=True)

    @cached_property
    def design(self) -> Design:
        """Who reports on which node, and with what chance."""
        known, survey = self.releases, self.releases.survey
        kept, scatter = draws(survey)
        f, n = shares(survey), known.entries
        seen = f[~np.isnan(known.members)].sum()
        expansion = np.where(np.isnan(known.members), 0.0, n / known.members) if survey.closed else 1.0 / f
        return Design(
            start=known.network.start,
            end=known.network.end,
            group=known.group,
            track=known.track,
            expansion=expansion,
            kept=kept,
            scatter=scatter,
            centred=survey.closed,
            entries=n,
            unseen=(1.0 / seen - 1.0) / n if survey.closed and n else 0.0,
        )

    def _forms(self, row: Floats) -> Forms:
        return forms(self.design, row, self.releases.network.periods)

    def _weights(self, omega: Floats, c: Floats, other: Floats, scatter: Floats, *, bounding: bool) -> SamplingWeights:
        """The weights of Σ_k ω_k Σ_i d_ik d'_ik' and of the scatter, d from c and d' from `other`, symmetric in them.

        bounding: whether spans that are no nodes are to make the sum larger.
        """
        active = np.flatnonzero((np.abs(c) + np.abs(other)).max(0) > NOTHING)
        routes = self._routes(active[active > 0])
        left, right = c[:, routes.times], other[:, routes.times]
        on_time = 0.5 * ((omega * left.sum(1)) @ right + (omega * right.sum(1)) @ left)
        pairs = (omega[:, None] * left).T @ right
        on_pair = -0.5 * (pairs + pairs.T)[routes.first, routes.second]
        load, on_time, bounded = self._routed(routes, on_time, on_pair, bounding=bounding)
        edges, times = np.zeros(len(self.releases)), np.zeros(self.releases.network.periods + 1)
        edges[self._changes] = load
        times[routes.times] = on_time
        changes = np.zeros(len(edges), np.bool_)
        changes[self._changes] = True
        edges[changes] += scatter[changes]
        np.add.at(times, self.design.end[~changes], scatter[~changes])
        guessed = bool((np.abs(scatter[changes]) > 0)[~self._identified[changes]].any())
        return SamplingWeights(edges, times, omega, (c, other), scatter, bounded or guessed)

    def _routed(
        self, routes: Routes, on_time: Floats, on_pair: Floats, *, bounding: bool
    ) -> tuple[Floats, Floats, bool]:
        """The weights of edges and of times that make up Σ_{τ<τ'} on_pair Q_ττ', and whether that is a bound."""
        exact = routes.hops == 1
        first_edge = self._changes[routes.incidence.indices[routes.incidence.indptr[:-1][exact]]]
        exact[exact] = self._identified[first_edge]
        exact |= (routes.hops > 1) & self._never_back
        used = np.where(bounding & ~exact & (on_pair < 0), 0.0, on_pair)
        by_chain = exact | ((routes.hops > 0) & (routes.expected <= 1))
        apart = np.where(by_chain, 0.0, used)
        np.add.at(on_time, routes.first, apart)
        np.add.at(on_time, routes.second, apart)
        load: Floats = routes.incidence.T @ np.where(by_chain, used, 0.0)
        return load, on_time, bool((np.abs(on_pair[~exact]) > NOTHING).any())

    def _routes(self, active: Indices) -> Routes:
        if self.releases.network.periods <= WHOLE:
            return self._all_routes
        return self._routes_between(active)

    @cached_property
    def _all_routes(self) -> Routes:
        return self._routes_between(np.arange(1, self.releases.network.periods + 1, dtype=np.intp))

    def _routes_between(self, times: Indices) -> Routes:
        network, expected = self.releases.network, self.releases.survey.expected
        start, end = network.start[self._changes], network.end[self._changes]
        spans = zip(start.tolist(), end.tolist(), strict=True)
        length = np.array([max(expected.share_changed(s, e), 1e-6 * (e - s)) for s, e in spans])
        return Routes(network.periods, start, end, length, times)

    @cached_property
    def _never_back(self) -> bool:
        """Whether no entry can change and come back: each changes at most once after the first period."""
        survey = self.releases.survey
        return survey.closed and isinstance(survey.constraint, AtMost) and survey.constraint.k <= 2

    @cached_property
    def _changes(self) -> Indices:
        """The edges of change nodes that start after time 0: those that tell who changed between two times."""
        tracks = self.releases.survey.plan.tracks
        changes = np.array([track.reports_changes for track in tracks], dtype=np.bool_)[self.releases.track]
        return np.flatnonzero(changes & (self.releases.network.start > 0)).astype(np.intp)

    @cached_property
    def _identified(self) -> NDArray[np.bool_]:
        """Whether each node's tally tells Q, shape (E,)."""
        return ~np.isnan(self.releases.products[:, 0, 0])

    @cached_property
    def _products(self) -> Floats:
        """Q̂, shape (E, z, z); where no tally tells it, the lesser of V_start + V_end and how many changed."""
        network, V = self.releases.network, self._histograms
        at_most = np.fmin(V[network.start] + V[network.end], self.releases.changed[:, None])
        known = self.releases.products
        return np.where(self._identified[:, None, None], known, at_most[:, :, None] * np.eye(V.shape[1]))

    @cached_property
    def _histograms(self) -> Floats:
        """v̂ at every time from all edges, shape (periods + 1, z); where none connect it with time 0, all entries."""
        network = self.releases.network
        V = network.fit(self.releases.changes)
        V[network.components != network.components[0]] = self.releases.entries
        return V


def weighed(weights: SamplingWeights, design: Design, products: Floats, histograms: Floats) -> Floats:
    """The sampling covariance that follows from some weights, shape (..., z, z), in entries squared.

    products: Q̂, shape (..., E, z, z). histograms: v̂, shape (..., periods + 1, z).
    """
    z = histograms.shape[-1]
    on_answers = np.einsum("t,...tz->...z", weights.times, histograms)
    spread: Floats = np.einsum("e,...eyz->...yz", weights.edges, products) + on_answers[..., None] * np.eye(z)
    if design.centred:
        n = design.entries
        left, right = (mean @ histograms for mean in weights.means)
        moved = histograms[..., design.end, :] - histograms[..., design.start, :]
        centre = np.einsum("k,...ky,...kz->...yz", weights.omega, left, right)
        centre += np.einsum("e,...ey,...ez->...yz", weights.spans, moved, moved)
        spread = (spread - centre / n) * (n / max(n - 1.0, 1.0))
        spread = spread + design.unseen * left[..., -1, :, None] * right[..., -1, None, :]
    return 0.5 * (spread + np.swapaxes(spread, -1, -2))

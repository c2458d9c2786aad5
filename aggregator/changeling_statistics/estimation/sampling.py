"""The sampling error of shares: what it adds that each release asks only some of the entries.

Entries of one track are the same people at all its nodes, so these errors do not add up edge by edge. They are
quadratic forms of the entries' histories x_i(τ), and those are known from the tallies only in parts:

    Σ_i d_i d_i' = (Σ_τ c_τ) Σ_τ c_τ V_τ - Σ_{τ<τ'} c_τ c_τ' Q_ττ',     d_i = Σ_τ c_τ x_i(τ), times τ >= 1,

V_τ = diag(v_τ), which the solution estimates, and Q_ττ' = Σ_i (x_i(τ') - x_i(τ))(…)', who changed between the two,
which a change node over just (τ, τ'] tells and no other tally does: reports are unlinkable. For a span without a
node of its own, 0 <= Q_ττ' <= the sum of Q along nodes that lead from τ to τ' (who comes back is counted twice),
answer by answer; or V_τ + V_τ' where no nodes do. Whichever makes the error larger is taken: the figure is linear
in the tallies and so unbiased, for the error itself where every span that matters is a node, as for one share and
prefix sums, (1/f - 1)·v_t, or panels of one node; elsewhere for a bound, and labelled so. In a closed cohort where
entries change at most once after the first period nobody comes back, the sums are exact, and so is the figure.
Off the diagonal a bound's entries are those of the same sums: it bounds each answer's variance, and a region to
second order in the rate of changes.
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
"""Up to so many times all ways between them are kept; beyond, only those between times that matter."""
NOTHING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class SamplingWeights:
    """A sampling covariance as a sum of what tallies tell: Σ_e edges[e] Q̂_e + diag(Σ_t times[t] v̂_t), and centring.

    edges: shape (E,), times: (periods + 1,). means: pairs of weights on histograms, (K, periods + 1) each, whose
    products are subtracted in a closed cohort, omega times; spans: weights of the edges' own, (E,). bounded:
    whether it is an upper bound. They depend on the plan and on numbers of reports, never on what was answered.
    """

    edges: Floats
    times: Floats
    omega: Floats
    means: tuple[Floats, Floats]
    spans: Floats
    bounded: bool


@dataclass(frozen=True, eq=False)
class Sampling:
    """The sampling error of estimates on one release graph."""

    releases: Releases

    @property
    def needed(self) -> bool:
        """Whether there is such an error: not if every entry reports on every node."""
        return self.design.needed

    def covariance(self, row: Floats) -> tuple[Floats, bool]:
        """The sampling covariance of the estimate with weights `row`, (z, z), and whether it is a bound."""
        if not self.needed:
            z = len(self.releases.survey.answers)
            return np.zeros((z, z)), False
        weights = self.weights(row)
        return weighed(weights, self.design, self._products, self._histograms), weights.bounded

    def joint_covariance(self, rows: Floats) -> Floats:
        """Between several estimates, (k, k, z, z), their symmetric part; a span without a node by the nodes on the way.

        No bound of a covariance would be one for every use, so none is labelled here.
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
        """The sampling covariance of the estimate with weights `row`, as a sum of what tallies tell."""
        quadratic = self._forms(row)
        return self._weights(quadratic.omega, quadratic.c, quadratic.c, quadratic.scatter, bounding=True)

    @cached_property
    def design(self) -> Design:
        """Which entries report on which release, and with what chance."""
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
        """Of Σ_k ω_k Σ_i d_ik d'_ik', d from c and d' from `other`, symmetric in the two, and of the scatter."""
        active = np.flatnonzero((np.abs(c) + np.abs(other)).max(0) > NOTHING)
        routes = self._routes(active[active > 0])
        one, two = c[:, routes.times], other[:, routes.times]
        on_time = 0.5 * ((omega * one.sum(1)) @ two + (omega * two.sum(1)) @ one)
        pairs = (omega[:, None] * one).T @ two
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
        """What Σ_{τ<τ'} on_pair Q_ττ' weighs on edges and on times, what is not identified by what makes it larger."""
        exact = routes.hops == 1
        first_edge = self._changes[routes.incidence.indices[routes.incidence.indptr[:-1][exact]]]
        exact[exact] = self._identified[first_edge]
        exact |= (routes.hops > 1) & self._never_back
        used = np.where(bounding & ~exact & (on_pair < 0), 0.0, on_pair)
        by_way = exact | ((routes.hops > 0) & (routes.expected <= 1))
        apart = np.where(by_way, 0.0, used)
        np.add.at(on_time, routes.first, apart)
        np.add.at(on_time, routes.second, apart)
        load: Floats = routes.incidence.T @ np.where(by_way, used, 0.0)
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
        survey = self.releases.survey
        return survey.closed and isinstance(survey.constraint, AtMost) and survey.constraint.k <= 2

    @cached_property
    def _changes(self) -> Indices:
        """The edges of change nodes after the start: those that tell of two times who changed in between."""
        tracks = self.releases.survey.plan.tracks
        changes = np.array([track.reports_changes for track in tracks], dtype=np.bool_)[self.releases.track]
        return np.flatnonzero(changes & (self.releases.network.start > 0)).astype(np.intp)

    @cached_property
    def _identified(self) -> NDArray[np.bool_]:
        """Whether a node's tally tells the products of its changes, shape (E,)."""
        return ~np.isnan(self.releases.products[:, 0, 0])

    @cached_property
    def _products(self) -> Floats:
        """Q̂; where not identified V_start + V_end, or how many changed at all, whichever is less; (E, z, z)."""
        network, V = self.releases.network, self._histograms
        at_most = np.fmin(V[network.start] + V[network.end], self.releases.changed[:, None])
        known = self.releases.products
        return np.where(self._identified[:, None, None], known, at_most[:, :, None] * np.eye(V.shape[1]))

    @cached_property
    def _histograms(self) -> Floats:
        """v̂ at every time by all releases, (periods + 1, z); where nothing connects it with 0, everybody."""
        network = self.releases.network
        V = network.fit(self.releases.changes)
        V[network.components != network.components[0]] = self.releases.entries
        return V


def weighed(weights: SamplingWeights, design: Design, products: Floats, histograms: Floats) -> Floats:
    """The covariance that the weights make of Q̂, (..., E, z, z), and v̂, (..., periods + 1, z): (..., z, z)."""
    z = histograms.shape[-1]
    on_answers = np.einsum("t,...tz->...z", weights.times, histograms)
    spread: Floats = np.einsum("e,...eyz->...yz", weights.edges, products) + on_answers[..., None] * np.eye(z)
    if design.centred:
        n = design.entries
        one, two = (mean @ histograms for mean in weights.means)
        moved = histograms[..., design.end, :] - histograms[..., design.start, :]
        centre = np.einsum("k,...ky,...kz->...yz", weights.omega, one, two)
        centre += np.einsum("e,...ey,...ez->...yz", weights.spans, moved, moved)
        spread = (spread - centre / n) * (n / max(n - 1.0, 1.0))
        spread = spread + design.unseen * one[..., -1, :, None] * two[..., -1, None, :]
    return 0.5 * (spread + np.swapaxes(spread, -1, -2))

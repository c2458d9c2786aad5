"""What the reports of one entry have in common: the part of a covariance that does not add up node by node.

Entries of one track are the same people at all its nodes, so that the error of asking only some of them is common to
the nodes; and a joint response draws an entry's reports together. Both are quadratic forms of the entries' histories
x_i(τ):

    Σ_i d_i d_i' = (Σ_τ c_τ) Σ_τ c_τ V_τ - Σ_{τ<τ'} c_τ c_τ' Q_ττ',     d_i = Σ_τ c_τ x_i(τ), times τ >= 1

V_τ = diag(v_τ) is estimated by the solution. Q_ττ' = Σ_i (x_i(τ') - x_i(τ))(…)' says who changed between two times.
Reports cannot be linked, so only a node of changes over just (τ, τ'] tells it. For another span, answer by answer,

    0 <= Q_ττ' <= the sum of Q over a chain of nodes from τ to τ', or V_τ + V_τ' if there is no chain

(who changes and comes back is counted in the sum). Where Q adds to the error the upper limit is taken, where it takes
off from it, as under many joint responses, the lower. Nodes whose tallies do not tell Q, as those of signed subsets
over an even number of states, are between 0 and the lesser of V_τ + V_τ' and how many changed.

A change node that nobody published is taken to have changed as many as the last one before it on its track.

So the figure is linear in the tallies. It is unbiased if every span that matters is a node, as for one share and
prefix sums, (1/f - 1)·v_t, or for panels. It is unbiased too in a closed cohort where entries change at most once
after the first period, as nobody comes back. Else it is unbiased for an upper bound, and labelled so. A bound holds
for the variance of each answer; for a region it holds to second order in the rate of changes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import AtMost
from numpy.typing import NDArray

from ..estimate import Floats
from .links import Links, links
from .network import Indices
from .releases import Releases, shares
from .routes import Routes, routes
from .sampling_forms import Design, Forms, Scatter, Tie, draws, forms, scatter, ties
from .sampling_weights import SamplingWeights, weighed

WHOLE = 600
"""With up to so many times, the chains between all of them are kept; with more, only between those that matter."""
NOTHING = 1e-9
"""Weights below this are rounding, not weights."""


@dataclass(frozen=True, eq=False)
class Sampling:
    """What the reports of one entry have in common, in estimates on one release graph.

    releases: the published nodes.
    histograms: v̂ at the times 0..T, in the releases' units, shape (periods + 1, z); nan for a time not estimable.
    """

    releases: Releases
    histograms: Floats

    def covariance(self, row: Floats, until: int, *, of_heard: bool = False) -> tuple[Floats, bool]:
        """What is added to the covariance of an estimate, shape (z, z), in entries squared; whether it is a bound.

        row: the weight of each edge in the estimate, shape (E,).
        until: how much is known, up to the nodes that close at that time.
        of_heard: whether the estimate is about those alone who are heard.
        """
        design = self.design(until, of_heard=of_heard)
        if not design.needed:
            z = len(self.releases.survey.answers)
            return np.zeros((z, z)), False
        weights = self._row_weights(design, row)
        return weighed(weights, design, self.products, self.known_histograms), weights.bounded

    def variances(
        self, values: Floats, plus: Indices, minus: Indices, until: Indices
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """The diagonals of `covariance` of many estimates at once, of a survey of which everybody reports everything.

        Then an entry's error is that of its states at two times alone, whatever the weights of nodes.
        values: the estimates, of v_plus - v_minus, in the releases' units, shape (k, z). until: how much is known for
        each, shape (k,). The histograms are needed only where some minus is above 0.
        Returns shape (k, z), in entries squared, and (k,).
        """
        enrolment = self.releases.enrolment
        entries = enrolment.stands_for[until][:, None]
        finite = entries / np.maximum(entries - 1.0, 1.0)
        common = finite * (enrolment.lasting[until] * enrolment.scales[until] ** 2)[:, None]
        apart, bounded = values.copy(), np.zeros(len(plus), np.bool_)
        spans = np.flatnonzero(minus > 0)
        if len(spans):
            end, start, V = plus[spans], minus[spans], self.known_histograms
            ways = self._routes(np.unique(np.concatenate([end, start])))
            apart[spans], exact = self.changed_between(ways, ways.pair(start, end))
            values = values.copy()
            values[spans] = V[end] - V[start]
            bounded[spans] = ~exact & (np.abs(common[spans, 0]) > NOTHING)
        added: Floats = common * (apart - values**2 / entries)
        return added, bounded

    def changed_between(self, ways: Routes, pairs: Indices | None = None) -> tuple[Floats, NDArray[np.bool_]]:
        """The diagonals of Q, or upper limits, between some pairs of times; and which are exact.

        ways: the chains between these times. pairs: the numbers of p of its pairs; None for all.
        Returns shape (p, z) and (p,).
        """
        at = slice(None) if pairs is None else pairs
        hops, V = ways.hops[at], self.known_histograms
        exact = ways.told[at] & ((hops == 1) | ((hops > 1) & self._never_back))
        chained = exact | ((hops > 0) & (ways.expected[at] <= 1))
        changed = ways.chains(pairs) @ np.diagonal(self.products, axis1=1, axis2=2)[self._links.source]
        apart = V[ways.times[ways.first[at]]] + V[ways.times[ways.second[at]]]
        return np.where(chained[:, None], changed, apart), exact

    def joint_covariance(self, rows: Floats, until: int) -> Floats:
        """What is added to the covariances between k estimates, shape (k, k, z, z), in entries squared.

        rows: the weight of each edge in each estimate, shape (k, E).
        until: how much is known.
        Each is made symmetric in the two answers. For a span that is no node a chain of nodes stands in, as if nobody
        came back. That is no bound, as whether a covariance ought to be large or small depends on its use.
        """
        k, z = len(rows), len(self.releases.survey.answers)
        joint, design = np.zeros((k, k, z, z)), self.design(until)
        if not design.needed:
            return joint
        quadratics = [forms(design, row, self.releases.network.periods) for row in rows]
        for i, first in enumerate(quadratics):
            for j, second in enumerate(quadratics[: i + 1]):
                lone = scatter(design, rows[i] * rows[j])
                weights = self._weights(design, first, second, lone, bounding=False)
                joint[i, j] = weighed(weights, design, self.products, self.known_histograms)
                joint[j, i] = joint[i, j]
        return joint

    def weights(self, row: Floats, until: int) -> SamplingWeights:
        """What is added to the covariance of the estimate with these weights, as a sum of what tallies tell."""
        return self._row_weights(self.design(until), row)

    def _row_weights(self, design: Design, row: Floats) -> SamplingWeights:
        quadratic = forms(design, row, self.releases.network.periods)
        return self._weights(design, quadratic, quadratic, scatter(design, row**2), bounding=True)

    def design(self, until: int, *, of_heard: bool = False) -> Design:
        """Who reports on which node, with what chance, and which reports hang together, as known at a time."""
        known, enrolment = self.releases, self.releases.enrolment
        kept, alone = self.drawn
        by_group, enrolled = enrolment.by_group[:, until], enrolment.enrolled(until)
        shares_there = np.where(by_group > 0, by_group / max(enrolled, 1.0), shares(known.survey))
        whole = 1.0 / enrolment.scale(until) if enrolled else 1.0
        missing = enrolment.missing(until)
        heard = whole + (missing.recent if of_heard else missing.lasting)
        return Design(
            start=known.network.start,
            end=known.network.end,
            group=known.group,
            track=known.track,
            expansion=heard / shares_there,
            whole=heard if of_heard else whole,
            kept=kept,
            scatter=alone,
            entries=float(enrolment.stands_for[until]),
            ties=self.ties,
        )

    @cached_property
    def drawn(self) -> tuple[Floats, Floats]:
        """`draws` of the plan's tracks."""
        return draws(self.releases.survey.plan.tracks)

    @cached_property
    def ties(self) -> tuple[Tie, ...]:
        """The plan's joint groups whose reports covary."""
        return ties(self.releases.survey)

    def _weights(
        self, design: Design, first: Forms, second: Forms, single: Scatter, *, bounding: bool
    ) -> SamplingWeights:
        """The weights of Σ_k ω_k Σ_i d_ik d'_ik' and of the scatter, d from the first forms and d' from the second.

        They are made symmetric in the two.
        single: the scatter.
        bounding: whether what tallies do not tell is to make the sum larger.
        """
        omega, c, other = first.omega, first.c, second.c
        active = np.flatnonzero((np.abs(c) + np.abs(other)).max(0, initial=0.0) > NOTHING)
        routes = self._routes(active[active > 0])
        left, right = c[:, routes.times], other[:, routes.times]
        pairs = (omega[:, None] * left).T @ right
        on_pair = -0.5 * (pairs + pairs.T)[routes.first, routes.second]
        on_edge, alone = self._told(routes, on_pair, single.sampled + single.tied, bounding=bounding)
        by_chain, on_times, loose = self._routed(routes, on_pair, bounding=bounding)
        np.add.at(on_edge, self._links.source, by_chain)
        times = np.zeros(c.shape[1])
        times[routes.times] = on_times + 0.5 * ((omega * left.sum(1)) @ right + (omega * right.sum(1)) @ left)
        np.add.at(times, design.end[self.from_nothing], (single.sampled + single.tied)[self.from_nothing])
        level: Floats = 0.5 * ((omega * second.base) @ c + (omega * first.base) @ other)
        np.add.at(level, design.end, single.tied * single.base)
        rows = slice(first.sampled)
        return SamplingWeights(
            edges=on_edge,
            times=times,
            level=level,
            flat=float(omega @ (first.base * second.base) + single.tied @ single.base**2),
            omega=omega[rows],
            means=(c[rows], other[rows]),
            spans=single.sampled,
            bounded=alone or loose,
            entries=design.entries,
        )

    def _told(self, routes: Routes, on_pair: Floats, single: Floats, *, bounding: bool) -> tuple[Floats, bool]:
        """The weights of single change nodes, shape (E,), and whether one of them is a bound.

        Where a tally does not tell Q, the weight goes to the node's span in `on_pair`, if that is a pair of `routes`:
        it is the sum of all that is about one span that makes the error larger or smaller.
        single: the weight of every edge's Σ_i δ_i δ_i', shape (E,).
        """
        on_edge, told = np.zeros(len(single)), self.identified[self.changes]
        on_edge[self.changes[told]] = single[self.changes[told]]
        untold = self.changes[~told]
        untold = untold[np.abs(single[untold]) > NOTHING]
        pair = routes.pair(self.releases.network.start[untold], self.releases.network.end[untold])
        np.add.at(on_pair, pair[pair >= 0], single[untold[pair >= 0]])
        alone = untold[pair < 0]
        on_edge[alone] = np.maximum(single[alone], 0.0) if bounding else single[alone]
        return on_edge, bool(len(alone))

    def _routed(self, routes: Routes, on_pair: Floats, *, bounding: bool) -> tuple[Floats, Floats, bool]:
        """The weights of change nodes and of times that make up Σ_{τ<τ'} on_pair Q_ττ', and whether that is a bound."""
        exact = routes.told & ((routes.hops == 1) | ((routes.hops > 1) & self._never_back))
        used = np.where(bounding & ~exact & (on_pair < 0), 0.0, on_pair)
        by_chain = exact | ((routes.hops > 0) & (routes.expected <= 1))
        apart, F = np.where(by_chain, 0.0, used), len(routes.times)
        on_times = (np.bincount(routes.first, apart, F) + np.bincount(routes.second, apart, F)).astype(np.float64)
        load: Floats = routes.chains().T @ np.where(by_chain, used, 0.0)
        return load, on_times, bool((np.abs(on_pair[~exact]) > NOTHING).any())

    def _routes(self, active: Indices) -> Routes:
        if self.releases.network.periods <= WHOLE:
            return self.all_routes
        return self._routes_between(active)

    @cached_property
    def all_routes(self) -> Routes:
        """The chains between all times from 1 on."""
        return self._routes_between(np.arange(1, self.releases.network.periods + 1, dtype=np.intp))

    def _routes_between(self, times: Indices) -> Routes:
        links, periods = self._links, self.releases.network.periods
        return routes(periods, links.start, links.end, self._link_lengths, links.tells, times)

    @cached_property
    def _link_lengths(self) -> Floats:
        """The share of entries that is expected to change on each link, above 0."""
        links, expected = self._links, self.releases.survey.expected
        spans = zip(links.start.tolist(), links.end.tolist(), strict=True)
        return np.array([max(expected.share_changed(s, e), 1e-6 * (e - s)) for s, e in spans])

    @cached_property
    def _never_back(self) -> bool:
        """Whether no entry can change and come back: each changes at most once after the first period."""
        survey = self.releases.survey
        return survey.closed and isinstance(survey.constraint, AtMost) and survey.constraint.k <= 2

    @cached_property
    def _links(self) -> Links:
        return links(self.releases, self.changes, self.identified)

    @cached_property
    def changes(self) -> Indices:
        """The edges of change nodes that start after time 0: those that may tell who changed between two times.

        First those whose tallies do tell it, so that of several over one span such a one is taken.
        """
        tracks = self.releases.survey.plan.tracks
        changes = np.array([track.reports_changes for track in tracks], dtype=np.bool_)[self.releases.track]
        later = np.flatnonzero(changes & (self.releases.network.start > 0)).astype(np.intp)
        return later[np.argsort(~self.identified[later], kind="stable")]

    @cached_property
    def from_nothing(self) -> Indices:
        """All other edges: those from time 0, whose Σ_i δ_i δ_i' is diag(v_end)."""
        return np.setdiff1d(np.arange(len(self.releases)), self.changes).astype(np.intp)

    @cached_property
    def identified(self) -> NDArray[np.bool_]:
        """Whether each node's tally tells Q, shape (E,)."""
        return ~np.isnan(self.releases.products[:, 0, 0])

    @cached_property
    def products(self) -> Floats:
        """Q̂, shape (E, z, z); where no tally tells it, the lesser of V_start + V_end and how many changed."""
        network, V = self.releases.network, self.known_histograms
        at_most = np.fmin(V[network.start] + V[network.end], self.releases.changed[:, None])
        known = self.releases.products
        return np.where(self.identified[:, None, None], known, at_most[:, :, None] * np.eye(V.shape[1]))

    @cached_property
    def known_histograms(self) -> Floats:
        """v̂ at every time, shape (periods + 1, z); where it is not known, all entries."""
        everybody = self.releases.enrolment.stands_for[:, None]
        return np.where(np.isnan(self.histograms), everybody, self.histograms)

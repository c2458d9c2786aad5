"""What the reports of one entry have in common, as quadratic forms of the entries' histories.

Two things make the errors of different nodes covary: that entries of one track are the same people at all its nodes,
and that a joint response draws an entry's reports together. Knows plans and weights; nothing of tallies or of
anybody's history.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import AtMost, Survey
from numpy.typing import NDArray

from ..estimate import Floats
from .chains import Links, Routes, links, routes
from .entries import correlations, draws, middle
from .network import Indices
from .releases import Releases, shares


@dataclass(frozen=True, slots=True, eq=False)
class Tie:
    """How the reports of an entry hang together in one joint group of J tracks.

    group: its number.
    tracks: the numbers of its tracks, shape (J,).
    rho: ρ between two reports of each pair of tracks, times how much likelier an entry reports two given nodes than if
    it drew each by itself; shape (J, J).
    middle: what the base of each track decodes to, in each answer, shape (J,).
    """

    group: int
    tracks: Indices
    rho: Floats
    middle: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Who reports on which of the E edges of a release graph, with what chance, and which reports hang together.

    start, end: the two times of each edge, shape (E,).
    group, track: the number of each edge's group and track, shape (E,).
    expansion: how many entries each entry of a group that is heard stands for, shape (groups,).
    whole: how many entries of those who are enrolled the histories are of, for each: 1 if nobody is silent.
    kept, scatter: ρ and κ of each track, shape (tracks,), as in `draws`.
    entries: m, how many entries the histories are of.
    ties: the joint groups whose reports covary.
    """

    start: Indices
    end: Indices
    group: Indices
    track: Indices
    expansion: Floats
    whole: float
    kept: Floats
    scatter: Floats
    entries: float
    ties: tuple[Tie, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether there is a sampling error; there is none if everybody reports everything, and nobody is silent."""
        return len(self.expansion) > 1 or bool((self.scatter > 0).any()) or bool(self.expansion[0] > self.whole)

    @property
    def needed(self) -> bool:
        """Whether reports have anything in common: a sampling error, or a joint response."""
        return self.sampled or bool(self.ties)

    @property
    def finite(self) -> float:
        """n/(n - 1), by which the sampling error of ratio estimators is the larger."""
        return self.entries / max(self.entries - 1.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Forms:
    """Σ_k omega[k] Σ_i (d_ik - base[k]·1)(…)', over the entries i, with d_ik = Σ_τ c[k, τ] x_i(τ).

    omega: shape (K,).
    c: the weights of times, shape (K, periods + 1).
    base: what is taken off d_ik in each answer, shape (K,).
    sampled: how many of the rows, the first ones, are the sampling error. It is about the mean of d_ik over the
    entries. Its last row is what is estimated of an entry.
    """

    omega: Floats
    c: Floats
    base: Floats
    sampled: int


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Σ_e sampled[e] Σ_i δ_ie δ_ie' + Σ_e tied[e] Σ_i (δ_ie - base[e]·1)(…)', over the entries i; each shape (E,).

    The first is about the mean of δ_ie over the entries.
    """

    sampled: Floats
    tied: Floats
    base: Floats


def ties(survey: Survey) -> tuple[Tie, ...]:
    """The joint groups of a survey's plan, but for those with one report that tells anything."""
    kept, plan = draws(survey.plan.tracks)[0], survey.plan
    tied = []
    for number, group in enumerate(plan.groups):
        tracks = np.array([track for track, _ in plan.numbered(number)], dtype=np.intp)
        rho = correlations(group).copy()
        rho[np.diag_indices_from(rho)] *= kept[tracks]
        if rho.any():
            tied.append(Tie(number, tracks, rho, np.array([middle(track) for track in group.tracks])))
    return tuple(tied)


def forms(design: Design, row: Floats, periods: int) -> Forms:
    """What reports have in common in the estimate Σ_e K_e·(change on edge e), but for its scatter.

    design: who reports what.
    row: K, shape (E,).
    periods: T.
    An entry is in group g with probability f_g, draws its nodes on each track j of the group, and is else silent. So
    the sampling error is

        Σ_g f_g⁻¹ Σ_i {d_ig d_ig' + Σ_{j∈g} [κ_j Σ_{e∈j} K_e² δ_ie δ_ie' + (ρ_j - 1) d_ij d_ij']} - Σ_i x_i x_i'

    with d_ij = Σ_{e∈j} K_e δ_ie, d_ig = Σ_{j∈g} d_ij, and x_i = Σ_g d_ig, which is what is estimated of entry i. If
    some are silent, f_g is the share that is in the group and heard, and all are 1/whole as many as are estimated. As
    δ_ie = x_i(end) - x_i(start), all of them are sums over times. docs/mathematics.md, "Shares".
    A joint group adds, with δ about what the base decodes to,

        f_g⁻¹ Σ_i {Σ_jj' ρ_jj' d_ij d_ij'' - Σ_j ρ_jj Σ_{e∈j} K_e² δ_ie δ_ie'}

    whose first sum has a square for each eigenvector of ρ. docs/joint.md, "What one entry says twice".
    """
    by_track = _at_times(design, row, design.track, len(design.kept), periods)
    omega, c, base = [np.zeros(0)], [np.zeros((0, periods + 1))], [np.zeros(0)]
    if design.sampled:
        by_group = _at_times(design, row, design.group, len(design.expansion), periods)
        track_expansion = np.zeros(len(design.kept))
        track_expansion[design.track] = design.expansion[design.group]
        drawn = np.flatnonzero((design.scatter > 0) & (track_expansion > 0))
        again = (design.kept - 1)[drawn] * track_expansion[drawn]
        omega.append(np.concatenate([design.expansion, again, [-design.whole]]) * design.finite)
        c.append(np.concatenate([by_group, by_track[drawn], by_group.sum(0, keepdims=True)]))
        base.append(np.zeros(len(omega[-1])))
    sampled = sum(map(len, omega))
    by_weight = np.bincount(design.track, row, len(design.kept))
    for tie in design.ties:
        eigenvalues, vectors = np.linalg.eigh(tie.rho)
        omega.append(design.expansion[tie.group] * eigenvalues)
        c.append(vectors.T @ by_track[tie.tracks])
        base.append(vectors.T @ (tie.middle * by_weight[tie.tracks]))
    return Forms(np.concatenate(omega), np.concatenate(c), np.concatenate(base), sampled)


def scatter(design: Design, products: Floats) -> Scatter:
    """What the entries' single nodes add to the forms.

    products: K_e² of one estimate, or K_e K'_e of two, shape (E,).
    """
    tied, base = np.zeros(len(design.kept)), np.zeros(len(design.kept))
    for tie in design.ties:
        tied[tie.tracks] = -np.diagonal(tie.rho)
        base[tie.tracks] = tie.middle
    expanded = design.expansion[design.group] * products
    sampled = expanded * design.scatter[design.track] * design.finite
    return Scatter(sampled, expanded * tied[design.track], base[design.track])


def _at_times(design: Design, row: Floats, owner: Indices, owners: int, periods: int) -> Floats:
    """The weight of every time in Σ_e row[e]·(x(end) - x(start)), over each owner's edges: (owners, periods + 1)."""
    c = np.zeros((owners, periods + 1))
    np.add.at(c, (owner, design.end), row)
    np.add.at(c, (owner, design.start), -row)
    c[np.abs(c) < 1e-12 * max(1.0, float(np.abs(row).max(initial=0.0)))] = 0.0
    return c


@dataclass(frozen=True, slots=True, eq=False)
class SamplingWeights:
    """A covariance as a weighted sum of what tallies tell.

        Σ_e edges[e] Q̂_e + diag(Σ_t times[t] v̂_t) - m 1' - 1 m' + n·flat·11',      m = Σ_t level[t] v̂_t

    From the sampling error products of means are taken off. The weights depend on the plan and on how many reported,
    never on what was answered.

    edges: the weight of each Q̂_e, shape (E,).
    times: the weight of the histogram at each time, shape (periods + 1,).
    level: the weight of the histogram at each time in m, shape (periods + 1,).
    flat: how often the number of entries n is added to every pair of answers.
    omega: how often each of the K pairs of means is taken off, shape (K,).
    means: the pairs, as weights of histograms, each of shape (K, periods + 1); the last is of what is estimated.
    spans: how often the square of each edge's own mean is taken off, shape (E,).
    bounded: whether the sum is an upper bound.
    entries: n, how many entries the histograms are of.
    """

    edges: Floats
    times: Floats
    level: Floats
    flat: float
    omega: Floats
    means: tuple[Floats, Floats]
    spans: Floats
    bounded: bool
    entries: float


def weighed(weights: SamplingWeights, design: Design, products: Floats, histograms: Floats) -> Floats:
    """The covariance that follows from some weights, shape (..., z, z), in entries squared.

    products: Q̂, shape (..., E, z, z). histograms: v̂, shape (..., periods + 1, z).
    """
    z, n = histograms.shape[-1], weights.entries
    on_answers, level = (np.einsum("t,...tz->...z", on, histograms) for on in (weights.times, weights.level))
    spread: Floats = np.einsum("e,...eyz->...yz", weights.edges, products) + on_answers[..., None] * np.eye(z)
    spread += n * weights.flat - level[..., :, None] - level[..., None, :]
    if len(weights.omega):
        left, right = (mean @ histograms for mean in weights.means)
        moved = histograms[..., design.end, :] - histograms[..., design.start, :]
        centre = np.einsum("k,...ky,...kz->...yz", weights.omega, left, right)
        centre += np.einsum("e,...ey,...ez->...yz", weights.spans, moved, moved)
        spread -= centre / n
    return 0.5 * (spread + np.swapaxes(spread, -1, -2))


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


MOST_BETWEEN = 2**24
"""How many figures there are at most of who changed between two times."""


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """Who changed between any two of the times 0..T, the earlier first; 0 for other pairs, and for time 0.

    changed: Q's diagonals, or upper limits, shape (T+1, T+1, z).
    loose: where they are limits, shape (T+1, T+1).
    least: the least weight that a pair may get, 0 where it has a limit, else -inf; shape (T+1, T+1).
    """

    changed: Floats
    loose: NDArray[np.bool_]
    least: Floats


@dataclass(frozen=True, slots=True, eq=False)
class ManyForms:
    """The quadratic forms of k estimates, as those of `sampling_forms.Forms`, and who they are about.

    omega, base: shape (k, K). c: shape (k, K, T+1). sampled: how many of the K rows are the sampling error.
    scattered, tied, level: the weights of `sampling_forms.Scatter`, shape (k, E) each, and its base, shape (E,).
    entries: shape (k,). needed: which estimates anything is added to, shape (k,).
    """

    omega: Floats
    base: Floats
    c: Floats
    sampled: int
    scattered: Floats
    tied: Floats
    level: Floats
    entries: Floats
    needed: NDArray[np.bool_]


@dataclass(frozen=True)
class ManySampling:
    """`sampling`, for many estimates. `possible` says whether its times are few enough."""

    sampling: Sampling

    @property
    def possible(self) -> bool:
        """Whether this does what `Sampling.covariance` does, in reasonable memory."""
        known = self.sampling.releases
        periods = known.network.periods
        return periods <= WHOLE and (periods + 1) ** 2 * len(known.survey.answers) <= MOST_BETWEEN

    def variances(self, rows: Floats, until: Indices, *, of_heard: bool = False) -> tuple[Floats, NDArray[np.bool_]]:
        """The diagonals of `Sampling.covariance`, shape (k, z), in entries squared; and where they are bounds, (k,).

        rows: the weight of each edge in each estimate, shape (k, E). until: how much is known for each, shape (k,).
        of_heard: as there.
        """
        own, V = self.sampling, self.sampling.known_histograms
        many, network = self._forms(rows, until, of_heard), own.releases.network
        single = many.scattered + many.tied
        between, loose = self._between_times(many, single)
        products = np.diagonal(own.products, axis1=1, axis2=2)
        told, nothing = own.changes[own.identified[own.changes]], own.from_nothing
        on_histograms = many.c @ V
        sums = many.omega * many.c[:, :, 1:].sum(2)
        added = between + single[:, told] @ products[told] + single[:, nothing] @ V[network.end[nothing]]
        added += np.einsum("kf,kfz->kz", sums, on_histograms)
        added -= 2 * np.einsum("kf,kfz->kz", many.omega * many.base, on_histograms)
        added -= 2 * (many.tied * many.level) @ V[network.end]
        flat = np.einsum("kf,kf->k", many.omega, many.base**2) + many.tied @ many.level**2
        moved = V[network.end] - V[network.start]
        means = slice(many.sampled)
        centre = np.einsum("kf,kfz->kz", many.omega[:, means], on_histograms[:, means] ** 2)
        centre += many.scattered @ moved**2
        added += many.entries[:, None] * flat[:, None] - centre / many.entries[:, None]
        return np.where(many.needed[:, None], added, 0.0), loose & many.needed

    def _forms(self, rows: Floats, until: Indices, of_heard: bool) -> ManyForms:
        own, known = self.sampling, self.sampling.releases
        enrolment, plan = known.enrolment, known.survey.plan
        kept, alone = own.drawn
        enrolled, entries = (enrolment.new + enrolment.missed)[until], enrolment.stands_for[until]
        by_group = enrolment.by_group[:, until].T
        there = np.where(by_group > 0, by_group / np.maximum(enrolled, 1.0)[:, None], shares(known.survey))
        whole = np.divide(entries, enrolled, out=np.ones(len(rows)), where=enrolled > 0)
        heard = whole + (enrolment.recent if of_heard else enrolment.lasting)[until]
        expansion = heard[:, None] / there
        if of_heard:
            whole = heard
        finite = entries / np.maximum(entries - 1.0, 1.0)
        by_track, by_weight = self._at_times(rows)
        by_group_c = np.zeros((len(rows), len(plan.groups), by_track.shape[2]))
        group_of = np.array([plan.group_of(track) for track in range(len(plan.tracks))], np.intp)  # type: ignore[arg-type]
        for track, group in enumerate(group_of.tolist()):
            by_group_c[:, group] += by_track[:, track]
        drawn = np.flatnonzero((alone > 0) & np.isin(np.arange(len(alone)), known.track))
        again = (kept - 1)[drawn] * expansion[:, group_of[drawn]]
        omega = [np.concatenate([expansion, again, -whole[:, None]], axis=1) * finite[:, None]]
        c = [by_group_c, by_track[:, drawn], by_group_c.sum(1, keepdims=True)]
        base, sampled = [np.zeros_like(omega[0])], omega[0].shape[1]
        tied, level = np.zeros(len(kept)), np.zeros(len(kept))
        for tie in own.ties:
            tied[tie.tracks], level[tie.tracks] = -np.diagonal(tie.rho), tie.middle
            eigenvalues, vectors = np.linalg.eigh(tie.rho)
            omega.append(expansion[:, [tie.group]] * eigenvalues)
            c.append(vectors.T @ by_track[:, tie.tracks])
            base.append((tie.middle * by_weight[:, tie.tracks]) @ vectors)
        expanded = expansion[:, known.group] * rows**2
        partial = len(plan.groups) > 1 or bool((alone > 0).any())
        return ManyForms(
            omega=np.concatenate(omega, axis=1),
            base=np.concatenate(base, axis=1),
            c=np.concatenate(c, axis=1),
            sampled=sampled,
            scattered=expanded * alone[known.track] * finite[:, None],
            tied=expanded * tied[known.track],
            level=level[known.track],
            entries=entries,
            needed=(expansion[:, 0] > whole) | partial | bool(own.ties),
        )

    def _at_times(self, rows: Floats) -> tuple[Floats, Floats]:
        """The weight of every time over each track's edges, shape (k, tracks, T+1), and their sums, (k, tracks)."""
        known = self.sampling.releases
        start, end, tracks = known.network.start, known.network.end, known.survey.plan.tracks
        c = np.zeros((len(rows), len(tracks), known.network.periods + 1))
        sums = np.zeros((len(rows), len(tracks)))
        for number, track in enumerate(tracks):
            at = np.flatnonzero(known.track == number)
            sums[:, number] = rows[:, at].sum(1)
            c[:, number, end[at]] = rows[:, at]
            if track.reports_changes:
                c[:, number, start[at]] -= rows[:, at]
            else:
                c[:, number, 0] = -sums[:, number]
        least = 1e-12 * np.maximum(1.0, np.abs(rows).max(1, initial=0.0))
        c[np.abs(c) < least[:, None, None]] = 0.0
        return c, sums

    def _between_times(self, many: ManyForms, single: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Σ over pairs of times of their weight times Q, shape (k, z); where a limit stands in for some, shape (k,)."""
        own, between = self.sampling, self._between
        network, z = own.releases.network, between.changed.shape[2]
        untold = own.changes[~own.identified[own.changes]]
        on_node = np.where(np.abs(single[:, untold]) > NOTHING, single[:, untold], 0.0)
        at_start = [np.flatnonzero(network.start[untold] == time) for time in range(network.periods + 1)]
        at_times = np.ascontiguousarray(many.c.transpose(2, 0, 1))[:, :, None, :]
        weighted = -many.omega[:, :, None] * many.c
        last = int(np.flatnonzero(many.c.any((0, 1))).max(initial=0))
        last = max(last, int(network.end[untold[on_node.any(0)]].max(initial=0)))
        total, furthest = np.zeros((len(single), z)), np.zeros(len(single))
        for time in range(1, last):
            later = slice(time + 1, last + 1)
            weights = np.matmul(at_times[time], weighted[:, :, later])[:, 0]
            for at in at_start[time].tolist():
                if network.end[untold[at]] <= last:
                    weights[:, network.end[untold[at]] - time - 1] += on_node[:, at]
            if furthest.min(initial=np.inf) <= NOTHING:
                np.maximum(furthest, (np.abs(weights) * between.loose[time, later]).max(1), out=furthest)
            np.maximum(weights, between.least[time, later], out=weights)
            total += weights @ between.changed[time, later]
        return total, furthest > NOTHING

    @cached_property
    def _between(self) -> Between:
        own = self.sampling
        ways, times = own.all_routes, own.releases.network.periods + 1
        changed, exact = own.changed_between(ways)
        at = ways.times[ways.first], ways.times[ways.second]
        all_changed = np.zeros((times, times, changed.shape[1]))
        all_changed[at] = changed
        loose = np.zeros((times, times), np.bool_)
        loose[at] = ~exact
        return Between(all_changed, loose, np.where(loose, 0.0, -np.inf))

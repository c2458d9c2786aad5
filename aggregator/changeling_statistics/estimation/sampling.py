"""The covariance between the reports of one entry: the part of a covariance that does not add up node by node.

Entries of one track are the same people at all its nodes, so that the error of asking only some of them is common to
the nodes; and a joint response draws an entry's reports together. Both are quadratic forms of the entries' histories
(`Forms`), made of who holds what at a time, which the solution estimates, and of who changed between two times. Reports
cannot be linked, so only a node of changes over just these two times tells that. For another span it lies between 0 and
the sum over a chain of nodes from the one time to the other, as who changes and comes back is counted in the sum. Where
it adds to the error the upper limit is taken, where it takes off from it, as under many joint responses, the lower.
Nodes whose tallies do not tell it, as those of signed subsets over an even number of states, are bounded by how many
changed; one that nobody published by the last one before it on its track. docs/mathematics.md, "Shares".

So the figure is linear in the tallies. It is unbiased if every span that matters is a node, as for one share and
prefix sums, (1/f - 1)·v_t, or for panels. It is unbiased too in a closed cohort where entries change at most once
after the first period, as nobody comes back. Else it is unbiased for an upper bound, and labelled so. A bound holds
for the variance of each answer; for a region it holds to second order in the rate of changes.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from changeling_protocol import AtMost
from numpy.typing import NDArray

from ..estimate import Floats, Indices
from .entries import Forms, SamplingDesign, Tie, draws, forms, known_base, scatter, ties
from .releases import Releases, shares


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The change nodes that chains lead over.

    source: the edge whose tally says who changed, shape (links,). start, end: the times that it links.
    tells: whether that is exact.
    """

    source: Indices
    start: Indices
    end: Indices
    tells: NDArray[np.bool_]


def links(releases: Releases, changes: Indices, identified: NDArray[np.bool_]) -> Links:
    """The change nodes that chains are made of. For one that is lost the last before it on its track stands in.

    changes: the edges of change nodes that start after time 0. identified: of all nodes, those whose tally tells who
    changed, shape (nodes,).
    """
    network = releases.network
    ids = {(used.track, used.number): edge for edge, used in enumerate(releases.nodes)}
    later, last = set(changes.tolist()), int(network.end.max(initial=0))
    source, start, end = [], [], []
    for number in np.unique(releases.track[changes]).tolist():
        track, before = releases.survey.plan.tracks[number], None
        for at in track.node_numbers():
            edge, node = ids.get((number, at)), track.node(at)
            if edge is not None:
                before = edge if edge in later else None
            elif before is not None and node.end <= last:
                source.append(before)
                start.append(node.start)
                end.append(node.end)
    return Links(
        source=np.concatenate([changes, np.array(source, np.intp)]),
        start=np.concatenate([network.start[changes], np.array(start, np.intp)]),
        end=np.concatenate([network.end[changes], np.array(end, np.intp)]),
        tells=np.concatenate([identified[changes], np.zeros(len(source), np.bool_)]),
    )


@dataclass(frozen=True, eq=False)
class Chains:
    """The shortest chains of edges between all P = F(F-1)/2 pairs of some times.

    periods: the last time there may be.
    start, end: the two times of each edge, shape (E,).
    length: the share of entries that is expected to change on each edge, above 0, shape (E,).
    tells: whether each edge's tally tells who changed from what to what, shape (E,).
    times: the F times between which chains are sought, rising, shape (F,).
    """

    periods: int
    start: Indices
    end: Indices
    length: Floats
    tells: NDArray[np.bool_]
    times: Indices

    @cached_property
    def first(self) -> Indices:
        """The earlier time of every pair, as an index into `times`, shape (P,)."""
        return np.triu_indices(len(self.times), 1)[0].astype(np.intp)

    @cached_property
    def second(self) -> Indices:
        """The later time of every pair, as an index into `times`, shape (P,)."""
        return np.triu_indices(len(self.times), 1)[1].astype(np.intp)

    def pair(self, start: Indices, end: Indices) -> Indices:
        """The number of the pair of these two times, start < end, among all pairs; -1 if they are not in `times`."""
        F = len(self.times)
        if F == 0:
            return np.full(len(start), -1, np.intp)
        i, j = (np.minimum(np.searchsorted(self.times, times), F - 1) for times in (start, end))
        number = i * F - i * (i + 1) // 2 + j - i - 1
        return np.where((self.times[i] == start) & (self.times[j] == end), number, -1).astype(np.intp)

    @cached_property
    def expected(self) -> Floats:
        """The length of each pair's chain, shape (P,); inf if there is none."""
        length: Floats = self._shortest[0][self.times[self.second], self.first]
        return length

    @cached_property
    def hops(self) -> NDArray[np.int32]:
        """How many edges each pair's chain has, shape (P,); 0 if there is none."""
        hops: NDArray[np.int32] = self._shortest[1][self.times[self.second], self.first]
        return hops

    @cached_property
    def told(self) -> NDArray[np.bool_]:
        """True if every edge of a pair's chain tells who changed, shape (P,); true if it has none."""
        told: NDArray[np.bool_] = self._shortest[2][self.times[self.second], self.first]
        return told

    def edges(self, pairs: Indices | None = None) -> Any:
        """The edges that make up the chains of p pairs: sparse, shape (p, E). pairs: their numbers; None for all."""
        return self._all_edges if pairs is None else self._edges(pairs)

    @cached_property
    def _all_edges(self) -> Any:
        return self._edges(np.arange(len(self.first), dtype=np.intp))

    def _edges(self, pairs: Indices) -> Any:
        from scipy.sparse import csr_matrix

        last = self._shortest[3]
        at, source = self.times[self.second[pairs]], self.first[pairs]
        going = np.flatnonzero(last[at, source] >= 0)
        rows, columns = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
        while len(going):
            edge = last[at[going], source[going]]
            rows.append(going)
            columns.append(edge)
            at[going] = self.start[edge]
            going = going[at[going] != self.times[source[going]]]
        row, column = np.concatenate(rows), np.concatenate(columns)
        return csr_matrix((np.ones(len(row)), (row, column)), shape=(len(pairs), len(self.start)))

    @cached_property
    def _shortest(self) -> tuple[NDArray[Any], ...]:
        """Length, hops and `told` of the shortest chains, and the last edge of each, -1 if there is none.

        Edge by edge in the order of their ends: what leads to the start of an edge is known by then. Of several over
        one span the first counts.
        """
        shape = self.periods + 1, len(self.times)
        length, told = np.full(shape, np.inf), np.ones(shape, np.bool_)
        hops, last = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        length[self.times, np.arange(shape[1])] = 0.0
        distinct = np.unique(self.end * (self.periods + 1) + self.start, return_index=True)[1]
        earlier = np.searchsorted(self.times, self.start[distinct], side="right")
        for edge, sources in zip(distinct.tolist(), earlier.tolist(), strict=True):
            start, end = self.start[edge], self.end[edge]
            there = length[start, :sources] + self.length[edge]
            better = np.flatnonzero(there < length[end, :sources])
            length[end, better], last[end, better] = there[better], edge
            hops[end, better] = hops[start, better] + 1
            told[end, better] = told[start, better] & self.tells[edge]
        return length, hops, told, last


@lru_cache(maxsize=4)
def _chains(periods: int, start: bytes, end: bytes, length: bytes, tells: bytes, times: bytes) -> Chains:
    """The `Chains` of some links, worked out once for links and times that are the same."""
    first, last, at = (np.frombuffer(each, np.intp) for each in (start, end, times))
    return Chains(periods, first, last, np.frombuffer(length), np.frombuffer(tells, np.bool_), at)


WHOLE = 600
"""With up to so many times, the chains between all of them are kept; with more, only between those that matter."""
MOST_BETWEEN = 2**24
"""How many figures there are at most of who changed between two times."""
NOTHING = 1e-9
"""Weights below this are rounding, not weights."""


def _second_moments(omega: Floats, c: Floats) -> Floats:
    """Σ_j omega[j] c[j] c[j]', shape (F, F); c of shape (J, F), of which the last times often have no weight."""
    moments = np.zeros((c.shape[1],) * 2)
    last = int(np.flatnonzero(c.any(0)).max(initial=-1)) + 1
    known = c[:, :last]
    moments[:last, :last] = (omega[:, None] * known).T @ known
    return moments


@dataclass(frozen=True, eq=False)
class Sampling:
    """The covariance between the reports of one entry, in estimates on one release graph.

    releases: the published nodes.
    histograms: v̂ at the times 0..T, in the releases' units, shape (periods + 1, z); nan for a time not estimable.
    """

    releases: Releases
    histograms: Floats

    def covariance(
        self, row: Floats, until: int, *, of_heard: bool = False, drawn: bool = False
    ) -> tuple[Floats, bool]:
        """The addition to the covariance of an estimate, shape (z, z), in entries squared; whether it is a bound.

        It is a weighted sum of what tallies tell, with weights that never depend on what was answered:

            Σ_e on_edge[e] Q̂_e + diag(Σ_t times[t] v̂_t) - m 1' - 1 m' + n·flat·11' + n·own·I,    m = Σ_t level[t] v̂_t

        From the sampling error products of means are taken off, and of each edge's own mean.
        row: the weight of each edge in the estimate, shape (E,).
        until: how much is known, up to the nodes that close at that time.
        of_heard: whether the estimate is about those alone who are heard.
        drawn: whether the entries themselves count as drawn at random, and the draw as part of the error.
        """
        design = self.design(np.array([until]), of_heard=of_heard, drawn=drawn)
        if not design.needed[0]:
            z = len(self.releases.survey.answers)
            return np.zeros((z, z)), False
        V, network, entries = self.known_histograms, self.releases.network, float(design.entries[0])
        form, lone = forms(design, row[None], network.periods), scatter(design, row[None])
        same, other = known_base(design, row[None], network.periods)
        omega, c, base = form.omega[0], form.c[0], form.base[0]
        sampled, tied = lone.sampled[0], lone.tied[0]
        active = np.flatnonzero(np.abs(c).max(0, initial=0.0) > NOTHING)
        ways = self._chains(active[active > 0])
        c_times = c[:, ways.times]
        on_pair = -_second_moments(omega, c_times)[ways.first, ways.second]
        on_edge, alone = self._on_nodes(ways, on_pair, sampled + tied)
        by_chain, on_times, loose = self._on_chains(ways, on_pair)
        np.add.at(on_edge, self._links.source, by_chain)
        times = np.zeros(c.shape[1])
        times[ways.times] = on_times + (omega * c_times.sum(1)) @ c_times
        np.add.at(times, design.end[self._from_nothing], (sampled + tied)[self._from_nothing])
        level: Floats = (omega * base) @ c
        np.add.at(level, design.end, tied * lone.base)
        flat = float(omega @ base**2 + tied @ lone.base**2 + other[0] / design.entries[0])
        own = float((same[0] - other[0]) / design.entries[0])
        one = np.eye(V.shape[1])
        on_answers, mean = (np.einsum("t,tz->z", on, V) for on in (times, level))
        spread: Floats = np.einsum("e,eyz->yz", on_edge, self.products) + on_answers[:, None] * one
        spread += entries * (flat + own * one) - mean[:, None] - mean[None, :]
        means, moved = c[: form.sampled] @ V, V[network.end] - V[network.start]
        centre = np.einsum("k,ky,kz->yz", omega[: form.sampled], means, means)
        centre += np.einsum("e,ey,ez->yz", sampled, moved, moved)
        spread -= centre / entries
        return 0.5 * (spread + spread.T), alone or loose

    def design(self, until: Indices, *, of_heard: bool = False, drawn: bool = False) -> SamplingDesign:
        """The design of the survey as it is known at some times."""
        known, enrolment, plan = self.releases, self.releases.enrolment, self.releases.survey.plan
        kept, alone = draws(plan.tracks)
        enrolled, entries = enrolment.enrolled[until], enrolment.stands_for[until]
        by_group = enrolment.by_group[:, until].T
        there = np.where(by_group > 0, by_group / np.maximum(enrolled, 1.0)[:, None], shares(known.survey))
        whole = np.divide(entries, enrolled, out=np.ones(len(until)), where=enrolled > 0)
        heard = whole + (enrolment.recent if of_heard else enrolment.lasting)[until]
        if drawn:
            whole = np.zeros(len(until))  # nothing is taken off for those who are all there is
        return SamplingDesign(
            start=known.network.start,
            end=known.network.end,
            group=known.group,
            track=known.track,
            kept=kept,
            scatter=alone,
            group_of=np.repeat(np.arange(len(plan.groups)), [len(group.tracks) for group in plan.groups]),
            expansion=heard[:, None] / there,
            whole=heard if of_heard else whole,
            entries=entries,
            ties=self._ties,
        )

    @cached_property
    def _ties(self) -> tuple[Tie, ...]:
        return ties(self.releases.survey)

    @property
    def takes_many(self) -> bool:
        """True if `variances` takes reasonable memory: whether the times are few enough."""
        periods = self.releases.network.periods
        return periods <= WHOLE and (periods + 1) ** 2 * len(self.releases.survey.answers) <= MOST_BETWEEN

    def variances(self, rows: Floats, until: Indices, *, of_heard: bool = False) -> tuple[Floats, NDArray[np.bool_]]:
        """The diagonals of `covariance` of many estimates, shape (k, z); and where they are bounds, shape (k,).

        rows: the weight of each edge in each estimate, shape (k, E). until: how much is known for each, shape (k,).
        Sums over pairs of times are taken for all estimates together, time by time. So the variances of a whole series
        take a few products of matrices.
        """
        V, network, design = self.known_histograms, self.releases.network, self.design(until, of_heard=of_heard)
        many, lone = forms(design, rows, network.periods), scatter(design, rows)
        single = lone.sampled + lone.tied
        between, loose = self._over_pairs(many, single)
        products = np.diagonal(self.products, axis1=1, axis2=2)
        told, nothing = self._changes[self._identified[self._changes]], self._from_nothing
        on_histograms = many.c @ V
        sums = many.omega * many.c[:, :, 1:].sum(2)
        added = between + single[:, told] @ products[told] + single[:, nothing] @ V[network.end[nothing]]
        added += np.einsum("kf,kfz->kz", sums, on_histograms)
        added -= 2 * np.einsum("kf,kfz->kz", many.omega * many.base, on_histograms)
        added -= 2 * (lone.tied * lone.base) @ V[network.end]
        flat = np.einsum("kf,kf->k", many.omega, many.base**2) + lone.tied @ lone.base**2
        known = known_base(design, rows, network.periods)[0]
        means = slice(many.sampled)
        centre = np.einsum("kf,kfz->kz", many.omega[:, means], on_histograms[:, means] ** 2)
        centre += lone.sampled @ (V[network.end] - V[network.start]) ** 2
        added += (design.entries * flat + known)[:, None] - centre / design.entries[:, None]
        return np.where(design.needed[:, None], added, 0.0), loose & design.needed

    def variances_of_everybody(
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
            ways = self._chains(np.unique(np.concatenate([end, start])))
            apart[spans], exact = self._changed_between(ways, ways.pair(start, end))
            values = values.copy()
            values[spans] = V[end] - V[start]
            bounded[spans] = ~exact & (np.abs(common[spans, 0]) > NOTHING)
        added: Floats = common * (apart - values**2 / entries)
        return added, bounded

    def _on_nodes(self, ways: Chains, on_pair: Floats, single: Floats) -> tuple[Floats, bool]:
        """The weights of single change nodes, shape (E,), and whether one of them is a bound.

        Where a tally does not tell Q, the weight goes to the node's span in `on_pair`, if that is a pair of `ways`:
        it is the sum of all that is about one span that makes the error larger or smaller.
        single: the weight of every edge's Σ_i δ_i δ_i', shape (E,).
        """
        on_edge, told = np.zeros(len(single)), self._identified[self._changes]
        on_edge[self._changes[told]] = single[self._changes[told]]
        untold = self._changes[~told]
        untold = untold[np.abs(single[untold]) > NOTHING]
        pair = ways.pair(self.releases.network.start[untold], self.releases.network.end[untold])
        np.add.at(on_pair, pair[pair >= 0], single[untold[pair >= 0]])
        alone = untold[pair < 0]
        on_edge[alone] = np.maximum(single[alone], 0.0)
        return on_edge, bool(len(alone))

    def _on_chains(self, ways: Chains, on_pair: Floats) -> tuple[Floats, Floats, bool]:
        """The weights of change nodes and of times that make up Σ_{τ<τ'} on_pair Q_ττ', and whether that is a bound."""
        exact = self._exact(ways)
        used = np.where(~exact & (on_pair < 0), 0.0, on_pair)
        by_chain = exact | ((ways.hops > 0) & (ways.expected <= 1))
        apart, F = np.where(by_chain, 0.0, used), len(ways.times)
        on_times = (np.bincount(ways.first, apart, F) + np.bincount(ways.second, apart, F)).astype(np.float64)
        load: Floats = ways.edges().T @ np.where(by_chain, used, 0.0)
        return load, on_times, bool((np.abs(on_pair[~exact]) > NOTHING).any())

    def _over_pairs(self, many: Forms, single: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Σ over pairs of times of their weight times Q, shape (k, z); where a limit stands in for some, shape (k,)."""
        (changed, loose), network = self._between, self.releases.network
        z, least = changed.shape[2], np.where(loose, 0.0, -np.inf)
        untold = self._changes[~self._identified[self._changes]]
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
                np.maximum(furthest, (np.abs(weights) * loose[time, later]).max(1), out=furthest)
            np.maximum(weights, least[time, later], out=weights)
            total += weights @ changed[time, later]
        return total, furthest > NOTHING

    @cached_property
    def _between(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Counts of who changed between any two of the times 1..T, the earlier first; 0 for other pairs.

        Q's diagonals, or upper limits, shape (T+1, T+1, z); and where they are limits, shape (T+1, T+1).
        """
        ways, times = self._all_chains, self.releases.network.periods + 1
        changed, exact = self._changed_between(ways, None)
        at = ways.times[ways.first], ways.times[ways.second]
        all_changed, loose = np.zeros((times, times, changed.shape[1])), np.zeros((times, times), np.bool_)
        all_changed[at], loose[at] = changed, ~exact
        return all_changed, loose

    def _changed_between(self, ways: Chains, pairs: Indices | None) -> tuple[Floats, NDArray[np.bool_]]:
        """The diagonals of Q, or upper limits, between some pairs of times, shape (p, z); and which are exact, (p,).

        ways: the chains between these times. pairs: the numbers of p of its pairs; None for all.
        """
        at = slice(None) if pairs is None else pairs
        exact, V = self._exact(ways)[at], self.known_histograms
        chained = exact | ((ways.hops[at] > 0) & (ways.expected[at] <= 1))
        changed = ways.edges(pairs) @ np.diagonal(self.products, axis1=1, axis2=2)[self._links.source]
        apart = V[ways.times[ways.first[at]]] + V[ways.times[ways.second[at]]]
        return np.where(chained[:, None], changed, apart), exact

    def _exact(self, ways: Chains) -> NDArray[np.bool_]:
        """Between which pairs of times Q is told exactly: over one node, or where nobody changes and comes back."""
        survey = self.releases.survey
        once = survey.closed and isinstance(survey.constraint, AtMost) and survey.constraint.k <= 2
        exact: NDArray[np.bool_] = ways.told & ((ways.hops == 1) | ((ways.hops > 1) & once))
        return exact

    def _chains(self, active: Indices) -> Chains:
        return self._all_chains if self.releases.network.periods <= WHOLE else self._chains_between(active)

    @cached_property
    def _all_chains(self) -> Chains:
        """The chains between all times from 1 on."""
        return self._chains_between(np.arange(1, self.releases.network.periods + 1, dtype=np.intp))

    def _chains_between(self, times: Indices) -> Chains:
        made, expected = self._links, self.releases.survey.expected
        spans = zip(made.start.tolist(), made.end.tolist(), strict=True)
        lengths = np.array([max(expected.share_changed(s, e), 1e-6 * (e - s)) for s, e in spans])
        known = (each.tobytes() for each in (made.start, made.end, lengths, made.tells, times))
        return _chains(self.releases.network.periods, *known)

    @cached_property
    def _links(self) -> Links:
        return links(self.releases, self._changes, self._identified)

    @cached_property
    def _changes(self) -> Indices:
        """The edges of change nodes that start after time 0: those that may tell who changed between two times.

        First those whose tallies do tell it, so that of several over one span such a one is taken.
        """
        tracks = self.releases.survey.plan.tracks
        changes = np.array([track.reports_changes for track in tracks], dtype=np.bool_)[self.releases.track]
        later = np.flatnonzero(changes & (self.releases.network.start > 0)).astype(np.intp)
        return later[np.argsort(~self._identified[later], kind="stable")]

    @cached_property
    def _from_nothing(self) -> Indices:
        """All other edges: those from time 0, whose Σ_i δ_i δ_i' is diag(v_end)."""
        return np.setdiff1d(np.arange(len(self.releases)), self._changes).astype(np.intp)

    @cached_property
    def _identified(self) -> NDArray[np.bool_]:
        """True if each node's tally tells Q, shape (E,)."""
        return ~np.isnan(self.releases.products[:, 0, 0])

    @cached_property
    def products(self) -> Floats:
        """Q̂, shape (E, z, z); where no tally tells it, the lesser of V_start + V_end and how many changed."""
        network, V = self.releases.network, self.known_histograms
        at_most = np.fmin(V[network.start] + V[network.end], self.releases.changed[:, None])
        return np.where(
            self._identified[:, None, None], self.releases.products, at_most[:, :, None] * np.eye(V.shape[1])
        )

    @cached_property
    def known_histograms(self) -> Floats:
        """v̂ at every time, shape (periods + 1, z); where it is not known, all entries."""
        everybody = self.releases.enrolment.stands_for[:, None]
        return np.where(np.isnan(self.histograms), everybody, self.histograms)

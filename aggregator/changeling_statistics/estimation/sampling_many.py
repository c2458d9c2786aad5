"""What the reports of one entry have in common, in the variances of many estimates at once.

The diagonals of `Sampling.covariance`, whose sums over pairs of times are taken for all estimates together, time by
time. So the variances of a whole series take a few products of matrices, and no loop over its estimates.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from .network import Indices
from .releases import shares
from .sampling import NOTHING, WHOLE, Sampling

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

"""The solution of a release graph: the weights of nodes, the estimates, and their covariance.

    v̂_t = Σ_e K_te y_e        Cov(v̂_t) = Σ_e K_te² C_e + what reports of one entry have in common

y_e is the change measured on edge e. The weights K follow from planned variances, and C_e from the node's own tally;
so the covariance is that of the very sum that is published, whatever its weights are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..estimate import Estimate, Floats, VarianceCurve
from .gaps import not_estimable
from .network import Indices, Network, online_rows
from .releases import Releases, UsedNode
from .sampling import Sampling
from .variance_curves import Weighed, figure_variances, variance_curves
from .weights import BestWeights, best_weights, hangs_together

NOTHING = 1e-9
"""Weights below this share of the largest are rounding, not weights."""
MOST_AT_ONCE = 2**17
"""How many weights are worked on at a time, so that they stay in the cache; eight times as many take twice as long."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The estimates on one release graph.

    releases: the published nodes.
    retrospective: whether to use all of them; if not, an estimate uses those that have closed by its time.
    """

    releases: Releases
    retrospective: bool = False

    @property
    def network(self) -> Network:
        """The nodes as edges."""
        return self.releases.network

    def reaches(self, plus: int, minus: int = 0) -> bool:
        """True if v_plus - v_minus can be estimated: whether edges connect the two times."""
        return self._used_for(plus).connected(plus, minus)

    def row(self, plus: int, minus: int = 0) -> Floats:
        """The weight of each node in the estimate of v_plus - v_minus, shape (E,).

        plus, minus: two times. Raises NotEstimable if no edges connect them.
        """
        network, until = self._used_for(plus), self.known_until(plus)
        if not network.connected(plus, minus):
            raise not_estimable(self.releases, plus, until, minus)
        row = np.zeros(len(self.network.start))
        if self._best is not None:
            row = self._best.row(plus, minus, until)
        else:
            row[self.network.end <= until] = network.row(plus, minus)
        scaled: Floats = self.releases.enrolment.scales[until] * row
        return scaled

    def histogram_rows(self, until: int) -> Iterator[tuple[int, Floats]]:
        """(t, K) of the histogram at each time t from 1 to `until` that can be estimated, faster than one by one.

        Each row is only good until the next is asked for.
        """
        if self.retrospective:
            yield from self._retrospective_rows([(time, 0) for time in range(1, until + 1)])
        elif self._best is not None:
            yield from self._scaled(self._best.online if len(self.releases) else [], until)
        else:
            yield from self._scaled(((time, row) for time, row, _ in online_rows(self.network, until)), until)

    def window_rows(self, width: int, until: int) -> Iterator[tuple[int, Floats]]:
        """(t, K) of the change over each window (t - width, t] up to `until` that can be estimated, likewise."""
        if self.retrospective:
            yield from self._retrospective_rows([(end, end - width) for end in range(width, until + 1)])
        elif self._best is None:
            yield from self._scaled(((end, row) for end, _, row in online_rows(self.network, until, width)), until)
        else:
            try:
                rows = self._best.windows(width) if len(self.releases) else []
            except np.linalg.LinAlgError:  # some time is reached late, or never
                ends = [end for end in range(width, until + 1) if self.reaches(end, end - width)]
                yield from ((end, self.row(end, end - width)) for end in ends)
            else:
                yield from self._scaled(rows, until)

    def used(self, plus: int, minus: int = 0) -> tuple[UsedNode, ...]:
        """The nodes that have a weight in the estimate of v_plus - v_minus. Raises NotEstimable."""
        weights = np.abs(self.row(plus, minus))
        return tuple(self.releases.nodes[e] for e in np.flatnonzero(weights > NOTHING * weights.max(initial=0.0)))

    def estimate(self, plus: int, minus: int = 0) -> Estimate:
        """The estimate of v_plus - v_minus with its covariance. Raises NotEstimable if no edges connect the times."""
        return self._weighed(self.row(plus, minus), plus, minus)

    def shares(self, period: int, *, since: int = 0, drawn: bool = False) -> Estimate:
        """The share of those heard that holds each answer at a period's end; or by how much it changed since another's.

            p̂_t = v̂_t / n_t        p̂_t - p̂_s = (v̂_t - (m_t / m_s) v̂_s) / n_t

        since: s, the period at whose end the change starts; 0 for the share itself.
        drawn: whether the entries count as drawn at random from a population that the share is about, as an
        experiment's arm is; its variance is then larger by that of the draw.
        Raises NotEstimable if no edges connect the times.
        """
        enrolment, until = self.releases.enrolment, self.known_until(period)
        m, n = enrolment.stands_for, enrolment.scales[until] * enrolment.stands_for[period]
        row = self.row(period, since)
        if since and m[since] != m[period]:
            whole = self.row(period)
            row = whole - (whole - row) * m[period] / m[since]
        return self._weighed(row, period, since, drawn=drawn).times(1 / n)

    def all_shares(self, until: int, *, since: int = 0, drawn: bool = False) -> dict[int, Estimate]:
        """`shares` of the periods since + 1 to `until`, by period, but for those that are not estimable."""
        if since:
            there = [period for period in range(since + 1, until + 1) if self.reaches(period, since)]
            return {period: self.shares(period, since=since, drawn=drawn) for period in there}
        heard = self.releases.enrolment.scales * self.releases.enrolment.stands_for
        return {
            time: self._weighed(row.copy(), time, 0, drawn=drawn).times(1 / heard[self.known_until(time)])
            for time, row in self.histogram_rows(until)
        }

    def all_figures(self, until: int, figures: Floats) -> dict[int, tuple[Floats, Floats]]:
        """Figures w'p̂ of the shares at the ends of the periods 1 to `until`, by period, where they are estimable.

        figures: w of q figures, shape (q, z): the levels of a number, for its mean, or 1 for all answers above one.
        Returns the values and their variances, shape (q,) each.
        """
        enrolment, found = self.releases.enrolment, {}
        for period, row in self.histogram_rows(until):
            known_until = self.known_until(period)
            n = enrolment.scales[known_until] * enrolment.stands_for[period]
            shares = row @ self.releases.changes / n
            sampling = self.sampling if self.needs_sampling(np.array([known_until])) else None
            near = np.clip(shares, 0.0, 1.0)
            variances = figure_variances(self.releases, row, known_until, sampling, figures, near, drawn=False)
            found[period] = figures @ shares, variances / n**2
        return found

    def estimates(self, until: int) -> list[Estimate | None]:
        """The histograms at the times 1 to `until`; None for one that is not estimable."""
        estimates: list[Estimate | None] = [None] * until
        for time, row in self.histogram_rows(until):
            estimates[time - 1] = self._weighed(row, time, 0)
        return estimates

    def values(self, until: int) -> Floats:
        """The histograms at the times 1 to `until` without their covariances, which take longer; shape (until, z).

        nan for a time that is not estimable.
        """
        values = np.full((until, len(self.releases.survey.answers)), np.nan)
        if self.retrospective and self._best is None:
            reached = self.network.components[1 : until + 1] == self.network.components[0]
            scale = self.releases.enrolment.scales[self.network.periods]
            values[reached] = scale * self.network.fit(self.releases.changes)[1 : until + 1][reached]
            return values
        for time, row in self.histogram_rows(until):
            values[time - 1] = row @ self.releases.changes
        return values

    @cached_property
    def sampling(self) -> Sampling:
        """The covariance between the reports of one entry, in these estimates."""
        known = self.releases
        last = int(known.network.end.max(initial=0))
        histories = np.full((known.network.periods + 1, len(known.survey.answers)), np.nan)
        histories[0] = 0.0
        until = np.arange(1, last + 1) if not self.retrospective else np.full(last, self.network.periods)
        scales = known.enrolment.scales[until][:, None]
        histories[1 : last + 1] = np.divide(self.values(last), scales, out=histories[1 : last + 1], where=scales > 0)
        return Sampling(known, histories)

    def needs_sampling(self, until: Indices, *, of_heard: bool = False) -> bool:
        """True if `sampling` adds anything to some estimates. until: what is known for each; at least one."""
        if hangs_together(self.releases.survey):
            return True
        return not of_heard and bool((self.releases.enrolment.lasting[until] > 0).any())

    def known_until(self, time: int) -> int:
        """The time up to which nodes are used in an estimate at a time."""
        return self.network.periods if self.retrospective else time

    @property
    def everybody_reports(self) -> bool:
        """True if everybody reports everything, so that what entries have in common does not hang on weights."""
        return not hangs_together(self.releases.survey)

    def _weighed(self, row: Floats, plus: int, minus: int, *, drawn: bool = False) -> Estimate:
        """The estimate of v_plus - v_minus with these weights, and its covariance. drawn: as for `shares`."""
        known, until = self.releases, self.known_until(plus)
        values, covariance = row @ known.changes, np.tensordot(row**2, known.covariances, axes=1)
        responses, sampling, is_bound = np.diag(covariance).copy(), None, False
        everybody = self.everybody_reports and not drawn
        if drawn or self.needs_sampling(np.array([until])):
            if everybody and minus == 0:
                covariance += self._missed_by_all(values, until)
            else:
                sampling = self.sampling
                common, is_bound = sampling.covariance(row, until, drawn=drawn)
                covariance = covariance + common

        def law() -> VarianceCurve:
            weighed = Weighed(
                row[None],
                np.array([plus]),
                np.array([minus]),
                np.array([until]),
                known.enrolment.enrolled[[until]],
                values[None],
                responses[None],
                (np.diag(covariance) - responses)[None],
                np.array([is_bound or everybody]),
                drawn=drawn,
            )
            curve = variance_curves(known, weighed, sampling, everybody=everybody)
            return VarianceCurve(*(part[0] for part in curve.parts))

        return Estimate(values, covariance, is_bound or known.bounded(until), law)

    def _missed_by_all(self, values: Floats, until: int) -> Floats:
        """The addition to the covariance of a histogram as all nodes miss the same silent entries, shape (z, z)."""
        enrolment = self.releases.enrolment
        m, scale = float(enrolment.stands_for[until]), float(enrolment.scales[until])
        spread = scale * np.diag(values) - np.outer(values, values) / m
        missed: Floats = enrolment.lasting[until] * m / max(m - 1.0, 1.0) * spread
        return missed

    @cached_property
    def _best(self) -> BestWeights | None:
        known = self.releases
        return best_weights(known.survey, self.network, known.group, known.track)

    def _used_for(self, time: int) -> Network:
        return self.network if self.retrospective else self.network.closed_by(time)

    def _scaled(
        self, rows: Iterator[tuple[int, Floats | None]] | Sequence[tuple[int, Floats]], until: int
    ) -> Iterator[tuple[int, Floats]]:
        """Online weights, taken from units m to entries."""
        scales = self.releases.enrolment.scales
        for time, row in rows:
            if time <= until and row is not None:
                yield time, scales[time] * row

    def _retrospective_rows(self, spans: list[tuple[int, int]]) -> Iterator[tuple[int, Floats]]:
        """(plus, K) of v_plus - v_minus for those of these pairs of times that edges connect, some solved at once."""
        network, scale = self.network, self.releases.enrolment.scales[self.network.periods]
        linked = [span for span in spans if network.connected(*span)]
        block = max(1, MOST_AT_ONCE // max(1, len(self.releases)))
        for at in range(0, len(linked), block):
            plus, minus = zip(*linked[at : at + block], strict=True)
            if self._best is None:
                rows = network.rows_between(plus, minus)
            else:
                rows = self._best.retrospective[list(plus)] - self._best.retrospective[list(minus)]
            for time, row in zip(plus, rows, strict=True):
                yield time, scale * row

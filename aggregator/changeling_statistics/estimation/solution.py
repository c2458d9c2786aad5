"""The solution of a release graph: the weights of nodes, the estimates, and their covariance.

    v̂_t = Σ_e K_te y_e        Cov(v̂_t) = Σ_e K_te² C_e + what reports of one entry have in common

y_e is the change measured on edge e. The weights K follow from planned variances, and C_e from the node's own tally;
so the covariance is that of the very sum that is published, whatever its weights are. A time that the published nodes
do not reach is a gap, which names the node that is missing.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from changeling_protocol import Node, Survey

from ..errors import NotEstimable
from ..estimate import Estimate, Floats, VarianceCurve
from .network import Indices, Network, online_rows
from .releases import Releases, UsedNode, plan_nodes
from .sampling import Sampling
from .variance_curves import Weighed, figure_variances, variance_curves
from .weights import BestWeights, best_weights, hangs_together


class Missing(NamedTuple):
    """A node of the plan that is not published.

    track: the number of its track. node: its span.
    """

    track: int
    node: Node


@dataclass(frozen=True, slots=True)
class Gap:
    """A histogram, or the change of one, that the published nodes do not identify.

    span: the times that are not connected, (start, end]; for a histogram the start is 0.
    missing: the node that is missing, of those without which the two are not connected the first; None if no nodes
    of the plan lead there by then.
    """

    span: Node
    missing: Missing | None


def check_period(survey: Survey, period: int) -> None:
    """Raises ValueError for a period outside the calendar; 0 is its start."""
    if not 0 <= period <= survey.calendar.periods:
        raise ValueError(f"periods are numbered 0 to {survey.calendar.periods}, got {period}")


def not_estimable(releases: Releases, time: int, until: int, origin: int = 0) -> NotEstimable:
    """The error that names a missing node: the first one on the way from `origin` to `time` where fewest are missing.

    until: only nodes that close by this period count.
    """
    asked = f"period {time}" if origin == 0 else f"the window ({origin}, {time}]"
    missing = missing_on_the_way(releases, Node(origin, time), until)
    if missing is None:
        return NotEstimable(f"{asked} is not estimable: no nodes of the plan that close by period {until} lead to it")
    track, node = missing
    return NotEstimable(
        f"{asked} is not estimable: it needs the node ({node.start}, {node.end}] of track {track}, "
        "which has too few reports, or is not shown before late ones are in"
    )


def missing_on_the_way(releases: Releases, span: Node, until: int) -> Missing | None:
    """The first missing node on the way from one time to another where fewest are missing; None if there is no way.

    until: only nodes that close by this period count.
    """
    ways = _Ways(span.start)
    links = _links(releases)
    for time in range(1, until + 1):
        ways.join(links[time])
    return ways.missing(span.end)


def first_missing(releases: Releases, until: int, *, retrospective: bool) -> list[Missing | None]:
    """`missing_on_the_way` from time 0 to each time 1 to `until`.

    retrospective: whether all nodes count; if not, those that close by the time in question.
    """
    ways, links, periods = _Ways(0), _links(releases), releases.survey.calendar.periods
    online: list[Missing | None] = []
    for time in range(1, periods + 1):
        ways.join(links[time])
        online.append(ways.missing(time))
    return [ways.missing(time) for time in range(1, until + 1)] if retrospective else online[:until]


_Link: TypeAlias = tuple[int, int, Missing | None]
"""Two times, and the node between them if it is missing."""


class _Ways:
    """The ways from one time to all others on which fewest nodes are missing, as more nodes close.

    A way is known by how many are missing, and by the first of them to close.
    """

    def __init__(self, origin: int) -> None:
        self._best: dict[int, tuple[int, Missing | None]] = {origin: (0, None)}
        self._links: defaultdict[int, list[tuple[int, Missing | None]]] = defaultdict(list)

    def missing(self, time: int) -> Missing | None:
        """The first missing node on the way to a time; None if none is missing, or there is no way."""
        return self._best.get(time, (0, None))[1]

    def join(self, links: Sequence[_Link]) -> None:
        """More links; ways only get better."""
        for start, end, missing in links:
            self._links[start].append((end, missing))
            self._links[end].append((start, missing))
        waiting = deque(time for start, end, _ in links for time in (start, end) if time in self._best)
        while waiting:
            at = waiting.popleft()
            count, first = self._best[at]
            for other, missing in self._links[at]:
                reached = (count, first) if missing is None else (count + 1, _earlier(first, missing))
                if other not in self._best or reached[0] < self._best[other][0]:
                    self._best[other] = reached
                    waiting.append(other)


def _earlier(first: Missing | None, second: Missing) -> Missing:
    return (
        second if first is None else min(first, second, key=lambda each: (each.node.end, each.node.start, each.track))
    )


def _links(releases: Releases) -> defaultdict[int, list[_Link]]:
    """The nodes of the plan by the period with which they close."""
    published = {(used.track, used.number) for used in releases.nodes}
    planned = plan_nodes(releases.survey.plan)
    links: defaultdict[int, list[_Link]] = defaultdict(list)
    for key, span, start in zip(planned.keys, planned.spans, planned.start.tolist(), strict=True):
        links[span.end].append((start, span.end, None if key in published else Missing(key[0], span)))
    return links


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

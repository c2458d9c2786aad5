"""The solution of a release graph: the weights of nodes, the estimates, and their covariance; and smoothed histograms.

    v̂_t = Σ_e K_te y_e        Cov(v̂_t) = Σ_e K_te² C_e + what reports of one entry have in common

y_e is the change measured on edge e. The weights K follow from planned variances, and C_e from the node's own tally;
so the covariance is that of the very sum that is published, whatever its weights are. A time that the published nodes
do not reach is a gap, which names the node that is missing.

Smoothed histograms have less noise and some bias, by the belief that the share of each answer does a random walk, whose
steps are weighed by likelihood; they are never the default. Their errors hold noise and squared bias together, mean
over all drifts of that size, about the entries that are asked and not about all the people these might stand for.
docs/mathematics.md, "The smoother".
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from changeling_protocol import Node, Survey
from numpy.typing import NDArray

from ..errors import NotEstimable
from ..estimate import Estimate, Floats, Indices, VarianceCurve
from .entries import change_variances, expected_moments
from .network import BestWeights, Network, best_weights, hangs_together, online_rows
from .releases import Releases, UsedNode, plan_nodes
from .sampling import Sampling
from .variance_curves import Weighed, figure_variances, variance_curves


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
                reached = (count, first)
                if missing is not None:
                    earlier = min(
                        first or missing, missing, key=lambda each: (each.node.end, each.node.start, each.track)
                    )
                    reached = (count + 1, earlier)
                if other not in self._best or reached[0] < self._best[other][0]:
                    self._best[other] = reached
                    waiting.append(other)


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
MOST_AT_ONCE = 2**19
"""How many weights are worked on at a time: more take more memory, and hardly less time."""


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
        """(t, K) of the histogram at each time t from 1 to `until` that can be estimated, faster than one by one."""
        return self.window_rows(0, until)

    def window_rows(self, width: int, until: int) -> Iterator[tuple[int, Floats]]:
        """(t, K) of the change over each window (t - width, t] up to `until` that can be estimated, likewise.

        width: 0 for the histograms.
        """
        if self.retrospective:
            ends = range(max(1, width), until + 1)
            yield from self._retrospective_rows([(end, end - width if width else 0) for end in ends])
            return
        if self._best is None:
            rows: Iterable[tuple[int, Floats]] = online_rows(self.network, until, width)
        else:
            rows = self._best.windows(width) if width else self._best.online
        for time, row in rows:
            if time <= until:
                yield time, self.releases.enrolment.scales[time] * row

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

        return Estimate(values, covariance, is_bound or bool(known.bounded_by(np.array(until))), law)

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


DRIFTS: Floats = 4.0 ** np.arange(-6.0, 11.0)
"""The τ² that are weighed, as multiples of what independent changes of the expected rate make."""
BELIEF = np.log(10.0)
"""A standard deviation of the belief about ln τ²: people change their minds together."""
MOST_TIMES = 1200
"""Smoothing takes matrices over all times."""


@dataclass(frozen=True, slots=True, eq=False)
class _Noise:
    """The planned noise of the unbiased shares at m times, and what depends on it alone.

    times: shape (m,). drifts: the J values of τ² that are weighed, rising, shape (J,).
    eigenvalues: λ, shape (m - 1,). along: U'D, shape (m - 1, m). back: G, shape (m, m - 1).
    errors, biases: of each τ², E (p̃ - p)² and the part of it that is bias, shape (J, m).
    """

    times: Indices
    drifts: Floats
    eigenvalues: Floats
    along: Floats
    back: Floats
    errors: Floats
    biases: Floats

    @classmethod
    def of(cls, noise: Floats, times: Indices, drifts: Floats) -> "_Noise":
        """The noise of a covariance N, shape (m, m)."""
        differences = np.diff(np.eye(len(times)), axis=0) / np.sqrt(np.diff(times))[:, None]
        eigenvalues, axes = np.linalg.eigh(differences @ noise @ differences.T)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        along, back = axes.T @ differences, noise @ differences.T @ axes
        less = 1 / (eigenvalues + drifts[:, None])
        biases = drifts[:, None] * (less**2 @ (back**2).T)
        return cls(times, drifts, eigenvalues, along, back, np.diag(noise) - less @ (back**2).T, biases)

    def smoother(self, at: int) -> Floats:
        """The weights of all times in each smoothed share, for one τ², shape (m, m)."""
        taken = (self.back / (self.eigenvalues + self.drifts[at])) @ self.along
        smoother: Floats = np.eye(len(self.times)) - taken
        return smoother

    def likelihoods(self, shares: Floats) -> Floats:
        """ln Pr(D p̂ | τ²) of each answer, but for a constant, shape (J, z). shares: p̂, shape (m, z)."""
        scatter = self.eigenvalues + self.drifts[:, None]
        misfit = (1 / scatter) @ (self.along @ shares) ** 2
        likelihoods: Floats = -0.5 * (np.log(scatter).sum(1)[:, None] + misfit)
        return likelihoods


@dataclass(frozen=True, eq=False)
class Smoothing(Solution):
    """The retrospective solution, and smoothed histograms that are made of it.

    drift: τ², in shares squared a period, of all answers; if not given, that of each is weighed.
    Raises ValueError for a drift of 0 or less, for fewer than two times that can be estimated, and for more than
    MOST_TIMES.
    """

    retrospective: bool = True
    drift: float | None = None

    def __post_init__(self) -> None:
        if self.drift is not None and not self.drift > 0:
            raise ValueError(f"a drift is above 0, got {self.drift}")
        if len(self.times) < 2:
            raise ValueError("a drift takes at least two periods that have closed")
        if len(self.times) > MOST_TIMES:
            raise ValueError(
                f"smoothing takes matrices over all periods, at most {MOST_TIMES:,}, got {len(self.times):,}: "
                "ask for the retrospective estimates, or choose wider periods"
            )

    @cached_property
    def times(self) -> Indices:
        """The times whose histograms can be estimated, shape (m,)."""
        there = self.network.components == self.network.components[0]
        there[int(self.network.end.max(initial=0)) + 1 :] = False
        return np.flatnonzero(there)[1:]

    @property
    def everybody_reports(self) -> bool:
        """False: what entries have in common hangs on the weights of smoothed histograms."""
        return False

    @cached_property
    def drifts(self) -> Floats:
        """τ² of each answer, as it is used, in shares squared a period, shape (z,)."""
        drifts: Floats = self._noise.drifts[self._used_drift]
        return drifts

    @cached_property
    def errors(self) -> Floats:
        """The mean squared error of each smoothed histogram beyond its noise, shape (m, z), in entries squared.

        It is the expected square of the bias, and how far the histogram hangs on which τ² is right.
        """
        noise, weights, shares = self._noise, self._weights, self._shares
        error, mean, square = np.zeros_like(shares), np.zeros_like(shares), np.zeros_like(shares)
        moved = noise.along @ shares
        for weight, errors, drift in zip(weights, noise.errors, noise.drifts, strict=True):
            smoothed = noise.back @ (moved / (noise.eigenvalues + drift)[:, None])
            error += errors[:, None] * weight
            mean += smoothed * weight
            square += smoothed**2 * weight
        used = (noise.errors - noise.biases)[self._used_drift].T
        least = noise.biases[self._used_drift].T
        beyond: Floats = np.maximum(error - used, least) + np.maximum(square - mean**2, 0.0)
        return beyond * self._entries[:, None] ** 2

    def parts(self, times: Indices) -> list[tuple[NDArray[np.bool_], Floats]]:
        """The weights of nodes in the smoothed histograms at some of the times, shape (k, E), by τ².

        Beside them of which answers they are, shape (z,).
        """
        at, entries = np.searchsorted(self.times, times), self._entries
        listed = []
        for used in np.unique(self._used_drift).tolist():
            weights = self._noise.smoother(used)[at] * (entries[at][:, None] / entries)
            listed.append((self._used_drift == used, weights @ self._rows))
        return listed

    def used(self, plus: int, minus: int = 0) -> tuple[UsedNode, ...]:
        """All nodes: each has a weight in every smoothed histogram. Raises NotEstimable as `row` does."""
        self.row(plus, minus)
        return self.releases.nodes

    def estimate(self, plus: int, minus: int = 0) -> Estimate:
        """The smoothed histogram at a time, with the covariance of its noise and, on the diagonal, of its bias.

        Raises NotEstimable as the unbiased one does, ValueError for a change over a window.
        """
        if minus:
            raise ValueError("changes are not smoothed")
        self.row(plus)  # raises NotEstimable
        parts = [(answers, rows[0]) for answers, rows in self.parts(np.array([plus]))]
        alone = [self._weighed(row, plus, 0) for _, row in parts]
        values, covariance = np.empty_like(alone[0].values), np.empty_like(alone[0].covariance)
        for (answers, row), one in zip(parts, alone, strict=True):
            values[answers] = one.values[answers]
            for others, other in parts:
                between = one.covariance
                if other is not row:  # of a quadratic form the product
                    half, off = (self._weighed(each / 2, plus, 0).covariance for each in (row + other, row - other))
                    between = half - off
                covariance[np.ix_(answers, others)] = between[np.ix_(answers, others)]
        beyond = self.errors[np.searchsorted(self.times, plus)]
        columns = [answers for answers, _ in parts]

        def law() -> VarianceCurve:
            return joined([one.curve() for one in alone], columns).plus(beyond)

        return Estimate(values, covariance + np.diag(beyond), any(one.upper_bound for one in alone), law)

    def estimates(self, until: int) -> list[Estimate | None]:
        """The smoothed histograms at the times 1 to `until`; None for one that is not estimable."""
        there = set(self.times.tolist())
        return [self.estimate(time) if time in there else None for time in range(1, until + 1)]

    @cached_property
    def _rows(self) -> Floats:
        """The weights of nodes in the unbiased histograms at all times, shape (m, E)."""
        return np.array([row.copy() for _, row in self.histogram_rows(int(self.times[-1]))])

    @cached_property
    def _entries(self) -> Floats:
        """How many entries a share is of at each time, shape (m,)."""
        enrolment = self.releases.enrolment
        entries: Floats = enrolment.scales[self.network.periods] * enrolment.stands_for[self.times]
        return entries

    @cached_property
    def _shares(self) -> Floats:
        """p̂, shape (m, z)."""
        shares: Floats = self._rows @ self.releases.changes / self._entries[:, None]
        return shares

    @cached_property
    def _expected(self) -> float:
        """τ² if entries change independently, as often as the designer expects."""
        survey, periods = self.releases.survey, np.arange(1, max(2, self.network.periods), dtype=np.intp)
        each = change_variances(len(survey.answers), survey.expected, periods, periods + 1).mean()
        return max(float(each) / float(self.releases.enrolment.stands_for[-1]), 1e-12)

    @cached_property
    def _noise(self) -> _Noise:
        at, enrolment, survey = np.ix_(self.times, self.times), self.releases.enrolment, self.releases.survey
        m = enrolment.stands_for[self.times]
        if self._best is None:
            sources = np.eye(self.network.periods + 1)
            noise = self.network.potentials(sources)[at] / np.outer(m, m)
        else:
            heard = float(np.median(enrolment.heard[enrolment.heard > 0]))
            variety = expected_moments(len(survey.answers), survey.expected, survey.calendar.periods).centred
            noise = self._best.planned[at] / heard - variety[at] / m[-1]
        drifts: Floats = self._expected * DRIFTS if self.drift is None else np.array([self.drift])
        return _Noise.of(noise, self.times, drifts)

    @cached_property
    def _weights(self) -> Floats:
        """How probable each τ² is for each answer, shape (J, z)."""
        noise = self._noise
        believed = -0.5 * (np.log(noise.drifts / self._expected) / BELIEF) ** 2
        weighed = noise.likelihoods(self._shares) + believed[:, None]
        weights = np.exp(weighed - weighed.max(0))
        normed: Floats = weights / weights.sum(0)
        return normed

    @cached_property
    def _used_drift(self) -> Indices:
        """The τ² that is used for each answer, the mean of its logarithm, shape (z,)."""
        return np.rint(np.arange(len(self._weights)) @ self._weights).astype(np.intp)


def joined(curves: list[VarianceCurve], columns: list[NDArray[np.bool_]]) -> VarianceCurve:
    """One curve whose answers are of several; columns: the answers of each, shape (z,)."""
    first = [part.copy() for part in curves[0].parts]
    for curve, mine in zip(curves, columns, strict=True):
        for part, other in zip(first, curve.parts, strict=True):
            part[..., mine] = other[..., mine]
    return VarianceCurve(*first)

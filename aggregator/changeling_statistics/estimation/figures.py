"""Histograms one by one with their covariances, and the figures of many estimates of one survey at once without these.

Each is a least-squares solution of the release graph, unbiased. Online, which is the default, an estimate uses the
nodes that have closed by the period it is about; retrospective, it uses all. They are about the entries that are
enrolled by then; those who are silent are taken to be like those who are heard. docs/mathematics.md, "The release
graph" and "Who is missing".

Figures are values, variances, who is silent and what holds whatever they are like, and how far false entries can move
them. As all of these are linear in the weights of nodes, or in their squares, those of many times take a few products
of matrices; nothing grows with the square of the number of answers.

Bounds: of an edge's entries each that was not heard as its node closed adds something between the least and the most
that its weight times a change can be. Influence: an entry that says what it likes has one report on each node of its
group, which moves the estimate by the largest value that decodes from it, times expansion and weight.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from changeling_protocol import Node, Survey
from numpy.typing import NDArray

from ..estimate import Estimate, Floats, Indices, Tallies, VarianceCurve, half_width
from .releases import Releases, UsedNode, releases
from .sampling import Sampling
from .solution import MOST_AT_ONCE, Gap, Smoothing, Solution, check_period, first_missing, joined, missing_on_the_way
from .variance_curves import Weighed, largest_values, variance_curves

LEVEL = 0.95
"""The level of the bounds that hold whatever the silent are like."""
PERCENTAGE_POINT = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Estimates of v_end - v_start over k spans (start, end]; where a span starts at 0, of the histogram at its end.

    spans: k of them.
    values: unbiased, shape (k, z), in entries.
    variances: shape (k, z), in entries squared, of `Estimate.covariance` the diagonal.
    curve: the variances at every value that may be true, shape (k, z).
    upper_bound: whether those are upper bounds, shape (k,).
    bounds: ends that hold whatever the silent are like, shape (k, z, 2). They cover what those who are heard hold with
    the probability LEVEL.
    influence: by how much one more entry, with any reports on all nodes of its group, can move each value at most,
    shape (k, z), in entries.
    known_until: the last closing that each hangs on, shape (k,).
    enrolled, heard: how many entries enrolled by then, and how many of them were heard at the last closing, shape (k,).
    entries: how many entries the figures are about: all who ever enrolled, or those heard, shape (k,).
    summed: how many entries a histogram's values and those who have no answer add up to, shape (k,).
    """

    spans: tuple[Node, ...]
    values: Floats
    variances: Floats
    curve: VarianceCurve
    upper_bound: NDArray[np.bool_]
    bounds: Floats
    influence: Floats
    known_until: Indices
    enrolled: Floats
    heard: Floats
    entries: Floats
    summed: Floats

    def of_heard(self) -> "Figures":
        """The same about those alone who were heard at the last closing up to each time.

        Their shares are the same, as those who are silent are taken to be like them. Intervals are not narrower, though
        less is unknown. Bounds become what share holds of all who ever enrolled, of that number of entries.
        """
        factor = np.divide(self.heard, self.summed, out=np.zeros_like(self.heard), where=self.summed > 0)[:, None]
        of_all = np.divide(self.heard, self.enrolled, out=np.zeros_like(self.heard), where=self.enrolled > 0)
        return replace(
            self,
            values=self.values * factor,
            variances=self.variances * factor**2,
            curve=self.curve.times(factor),
            bounds=self.bounds * of_all[:, None, None],
            influence=self.influence * factor,
            entries=self.heard,
            summed=self.heard,
        )

    @property
    def standard_errors(self) -> Floats:
        """The root of each variance, shape (k, z), in entries; nan for a variance that came out below zero."""
        return np.sqrt(np.where(self.variances >= 0, self.variances, np.nan))

    def intervals(self, level: float = LEVEL, *, together: bool = False) -> Floats:
        """Confidence intervals, shape (k, z, 2), in entries.

        level: the probability with which each covers; or, if `together`, all of them at once, at least.
        """
        if together:
            return self.curve.far_ends(self.values, half_width(level, max(1, self.values.size)))
        return self.curve.ends(self.values, half_width(level))


def histogram_figures(solution: Solution, until: int) -> tuple[Figures, list[Gap]]:
    """The figures of the histograms at the ends of the periods 1 to `until`; and of the others, why they have none.

    The same values and variances as `series`, within rounding. Raises ValueError outside the calendar.
    """
    check_period(solution.releases.survey, until)
    if isinstance(solution, Smoothing):
        figures = _smoothed(solution, solution.times[solution.times <= until])
    else:
        figures = _figures(solution, ((Node(0, time), row) for time, row in solution.histogram_rows(until)))
    there = {span.end for span in figures.spans}
    if len(there) == until:
        return figures, []
    missing = first_missing(solution.releases, until, retrospective=solution.retrospective)
    lost = [period for period in range(1, until + 1) if period not in there]
    return figures, [Gap(Node(0, period), missing[period - 1]) for period in lost]


def window_figures(solution: Solution, width: int, until: int) -> tuple[Figures, list[Gap]]:
    """The figures of the changes over the windows (t - width, t] for t = width to `until` (SWCR); and of the others,
    why they have none.

    The same values and variances as `Solution.estimate`, within rounding. Raises ValueError for a width below 1, or
    outside the calendar.
    """
    check_period(solution.releases.survey, until)
    if width < 1:
        raise ValueError(f"a window must be at least one period wide, got {width}")
    rows = ((Node(end - width, end), row) for end, row in solution.window_rows(width, until))
    figures = _figures(solution, rows)
    lost = {Node(end - width, end) for end in range(width, until + 1)} - set(figures.spans)
    return figures, [
        Gap(window, missing_on_the_way(solution.releases, window, solution.known_until(window.end)))
        for window in sorted(lost, key=lambda window: window.end)
    ]


def span_figures(solution: Solution, span: Node) -> tuple[Figures, tuple[UsedNode, ...]]:
    """The figures of one span, and the nodes they are made of. Raises NotEstimable."""
    row, used = solution.row(span.end, span.start), solution.used(span.end, span.start)
    if isinstance(solution, Smoothing) and not span.start:
        return _smoothed(solution, np.array([span.end])), used
    return _figures(solution, [(span, row)]), used


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The basis of the histogram at a time: nodes, and those of the entries that were heard."""

    solution: Solution
    plus: int

    @property
    def nodes(self) -> tuple[UsedNode, ...]:
        """The nodes that it is made of, by the time of their end."""
        return self.solution.used(self.plus)

    @property
    def enrolled(self) -> int:
        """How many entries were heard of by then; a histogram is about so many."""
        return round(float(self.solution.releases.enrolment.enrolled[self.solution.known_until(self.plus)]))

    @property
    def figures(self) -> Figures:
        """Of this one span: who is silent, and what holds whatever they are like."""
        return span_figures(self.solution, Node(0, self.plus))[0]


def _times(solution: Solution, spans: Sequence[Node]) -> tuple[Indices, Indices, Indices]:
    """The two times of each span, the later first, and how much is known for it, shape (k,) each."""
    plus, minus = (np.array([getattr(span, name) for span in spans], np.intp) for name in ("end", "start"))
    return plus, minus, np.full_like(plus, solution.network.periods) if solution.retrospective else plus


def _figures(solution: Solution, rows: Iterable[tuple[Node, Floats]]) -> Figures:
    """Block by block, so that there is never a weight for each time and node in memory."""
    known, enrolment = solution.releases, solution.releases.enrolment
    spans: list[Node] = []
    parts: list[tuple[NDArray[Any], ...]] = []
    weights, here = np.empty((max(1, MOST_AT_ONCE // max(1, len(known))), len(known))), 0
    for span, row in rows:
        weights[here] = row
        spans.append(span)
        here += 1
        if here == len(weights):
            parts.append(_of_block(solution, spans[-here:], weights))
            here = 0
    parts.append(_of_block(solution, spans[len(spans) - here :], weights[:here]))
    values, variances, bounds, influence, bounded, *curve = (np.concatenate(each) for each in zip(*parts, strict=True))
    plus, minus, until = _times(solution, spans)
    if solution.everybody_reports and len(spans) and solution.needs_sampling(until):
        of_values = values / enrolment.scales[until][:, None]
        sampling = solution.sampling if minus.any() else Sampling(known, of_values)
        common, bounded = sampling.variances_of_everybody(of_values, plus, minus, until)
        variances = variances + common
    last = np.flatnonzero(enrolment.heard).max(initial=0)
    return Figures(
        tuple(spans),
        values,
        variances,
        VarianceCurve(*curve),
        bounded.astype(np.bool_) | known.bounded_by(until),
        bounds,
        influence,
        known_until=np.full(len(spans), last) if solution.retrospective else plus,
        enrolled=np.round(enrolment.enrolled[until]),
        heard=np.round(enrolment.latest[plus]),
        entries=np.round(enrolment.enrolled[until]),
        summed=enrolment.scales[until] * enrolment.stands_for[plus],
    )


def _smoothed(solution: Smoothing, times: Indices) -> Figures:
    """The figures of smoothed histograms: those of each answer by its own drift, and beside their noise the bias."""
    spans, parts = [Node(0, time) for time in times.tolist()], solution.parts(times)
    alone = [_figures(solution, zip(spans, rows, strict=True)) for _, rows in parts]
    columns, beyond = [answers for answers, _ in parts], solution.errors[np.searchsorted(solution.times, times)]
    values, variances, bounds, influence = (
        np.empty_like(getattr(alone[0], name)) for name in ("values", "variances", "bounds", "influence")
    )
    for answers, each in zip(columns, alone, strict=True):
        values[:, answers], variances[:, answers] = each.values[:, answers], each.variances[:, answers]
        bounds[:, answers], influence[:, answers] = each.bounds[:, answers], each.influence[:, answers]
    return replace(
        alone[0],
        values=values,
        variances=variances + beyond,
        curve=joined([each.curve for each in alone], columns).plus(beyond),
        upper_bound=np.any([each.upper_bound for each in alone], axis=0),
        bounds=bounds,
        influence=influence,
    )


def _of_block(solution: Solution, spans: Sequence[Node], weights: Floats) -> tuple[NDArray[Any], ...]:
    """Values, variances, bounds and influence; where a variance is an upper bound; and the parts of the curve."""
    known, (plus, minus, until) = solution.releases, _times(solution, spans)
    values, responses = weights @ known.changes, weights**2 @ known.variances
    common, sampling = np.zeros_like(responses), None
    bounded = np.full(len(weights), False)
    if len(weights) and solution.needs_sampling(until):
        sampling = solution.sampling if minus.any() or not solution.everybody_reports else None
        if not solution.everybody_reports:
            common, bounded = _sampled(solution, weights, until)
    of_all = known.enrolment.enrolled[until]
    weighed = Weighed(
        weights, plus, minus, until, of_all, values, responses, common, bounded | solution.everybody_reports
    )
    curve = variance_curves(known, weighed, sampling, everybody=solution.everybody_reports)
    bounds, influence = _bounds(solution, spans, weights), influences(known, np.abs(weights))
    return values, responses + common, bounds, influence, bounded, *curve.parts


def _sampled(
    solution: Solution, weights: Floats, until: Indices, *, of_heard: bool = False
) -> tuple[Floats, NDArray[np.bool_]]:
    """The diagonals of `Sampling.covariance` for each estimate, shape (k, z); and where it is a bound, shape (k,)."""
    if solution.sampling.takes_many and len(weights) > 1:
        return solution.sampling.variances(weights, until, of_heard=of_heard)
    told = [
        solution.sampling.covariance(row, time, of_heard=of_heard)
        for row, time in zip(weights, until.tolist(), strict=True)
    ]
    return np.array([np.diag(covariance) for covariance, _ in told]), np.array([bounded for _, bounded in told])


def _bounds(solution: Solution, spans: Sequence[Node], weights: Floats) -> Floats:
    """The ends that hold whatever the silent are like, shape (k, z, 2)."""
    known, enrolment = solution.releases, solution.releases.enrolment
    end, (plus, minus, until) = known.network.end, _times(solution, spans)
    scale = enrolment.scales[until][:, None]
    below, above = (each / scale for each in _moved_by_silent(solution, weights, until))
    told = enrolment.heard[end] / enrolment.stands_for[end]
    rows, heard = weights * told / scale, enrolment.latest[plus]
    values, responses = rows @ known.changes, rows**2 @ known.response_variances
    common, bounded, sampling = np.zeros_like(responses), np.zeros(len(rows), np.bool_), None
    if len(until) and solution.needs_sampling(until, of_heard=True):
        sampling = solution.sampling
        common, bounded = _sampled(solution, rows, until, of_heard=True)
    weighed = Weighed(rows, plus, minus, until, heard, values, responses, common, bounded, of_heard=True)
    ends = variance_curves(known, weighed, sampling, everybody=False).ends(values, half_width(LEVEL))
    ends += np.stack([below, above], axis=-1)
    enrolled = np.round(enrolment.enrolled[until])
    lowest = np.where(minus == 0, 0.0, -enrolled)[:, None, None]
    clipped: Floats = np.clip(ends, lowest, enrolled[:, None, None])
    return clipped


def _moved_by_silent(solution: Solution, weights: Floats, until: Indices) -> tuple[Floats, Floats]:
    """How far the silent can move each estimate down and up, times its scale, shape (k, 1) each.

    Of s = K·silent, per node, it is the sum of all that is below 0, and of what is above on a node where δ may be -1.
    """
    enrolment, network = solution.releases.enrolment, solution.releases.network
    below, above = np.empty((len(until), 1)), np.empty((len(until), 1))
    missed = enrolment.missed[until]
    for number in np.unique(missed).tolist():
        silent = np.maximum((enrolment.new - enrolment.heard)[network.end] + number, 0.0)
        each = np.stack([silent, np.where(network.start > 0, silent, 0.0)], axis=1)
        at = missed == number
        signed, unsigned = weights[at] @ each, np.abs(weights[at]) @ each
        (up, up_falling), (down, down_falling) = ((unsigned + signed).T / 2, (signed - unsigned).T / 2)
        below[at, 0], above[at, 0] = down - up_falling, up - down_falling
    return below, above


def influences(releases: Releases, magnitudes: Floats) -> Floats:
    """The most by which one more entry can move each value of some estimates, shape (k, z), in entries.

    magnitudes: of the weight of each node in each estimate, shape (k, E).
    An entry is of the group that moves a value most.
    """
    tracks = releases.survey.plan.tracks
    largest = np.array([largest_values(track.randomizer) for track in tracks])[releases.track]
    largest = largest.reshape(len(releases), len(releases.survey.answers)) * releases.expansion[:, None]
    moved = [
        magnitudes @ np.where(releases.group[:, None] == group, largest, 0.0)
        for group in range(len(releases.survey.plan.groups))
    ]
    furthest: Floats = np.max(moved, axis=0)
    return furthest


def false_entries(influence: Floats, enrolled: Floats) -> Floats:
    """How many false entries it takes at least to move one of the fractions by one percentage point, shape (k,).

    With n entries and f false ones, a fraction moves by at most f (I + 1) / (n + f).
    influence: I, shape (k, z). enrolled: n, shape (k,).
    """
    needed: Floats = np.ceil(PERCENTAGE_POINT * enrolled / (influence.max(-1, initial=0.0) + 1.0))
    return needed


@dataclass(frozen=True, slots=True)
class Histogram:
    """The histogram at the end of a period.

    period: its number, 1 to T.
    estimate: the entries that hold each answer 1..z, with their covariance. It is unbiased for what entries report; one
    that has used up the changes its survey allows goes on reporting its last answer (docs/reading.md, "Freezing").
    basis: the nodes that the estimate is made of, who of the entries was heard, and what holds whatever the others are
    like.
    """

    period: int
    estimate: Estimate
    basis: Basis


def series(survey: Survey, tallies: Tallies, until: int, *, retrospective: bool = False) -> list[Histogram | Gap]:
    """Estimates the histograms at the ends of periods 1 to `until`.

    tallies: those that may be published, by track and node.
    until: 0 to T.
    retrospective: whether to use every tally; if not, each estimate uses those of nodes that have closed by its period.
    Returns one for each period; a gap for a period that the nodes do not identify.
    """
    check_period(survey, until)
    solution = Solution(known := releases(survey, tallies), retrospective)
    estimates = solution.estimates(until)
    missing = first_missing(known, until, retrospective=retrospective) if None in estimates else [None] * until
    return [
        Gap(Node(0, period), missing[period - 1])
        if estimate is None
        else Histogram(period, estimate, Basis(solution, period))
        for period, estimate in enumerate(estimates, 1)
    ]

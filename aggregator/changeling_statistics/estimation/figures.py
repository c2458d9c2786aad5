"""The figures of many estimates of one survey at once, without the covariances between answers.

They are what `histogram`, `change`, `series` and `sliding` give one by one: values, variances, and who is silent. As
all of them are linear in the weights of nodes, or in their squares, those of many times take a few products of
matrices; nothing grows with the square of the number of answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from changeling_protocol import Node
from numpy.typing import NDArray

from ..estimate import Floats
from .histograms import Gap
from .influence import influences
from .network import Indices
from .online_rows import online_rows
from .reach import check_period, first_missing, missing_on_the_way
from .regions import NORMAL
from .releases import Releases, UsedNode
from .sampling import Sampling
from .solution import Solution
from .weights import hangs_together

MOST_AT_ONCE = 2**21
"""How many weights are in memory at a time."""
LEVEL = 0.95
"""The level of the bounds that hold whatever the silent are like."""


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Estimates of v_end - v_start over k spans (start, end]; where a span starts at 0, of the histogram at its end.

    spans: k of them.
    values: unbiased, shape (k, z), in entries.
    variances: shape (k, z), in entries squared, of `Estimate.covariance` the diagonal.
    upper_bound: whether those are upper bounds, shape (k,).
    bounds: ends that hold whatever the silent are like, as those of `Silence`, shape (k, z, 2).
    influence: by how much one more entry, with any reports on all nodes of its group, can move each value at most,
    shape (k, z), in entries.
    known_until: the last closing that each hangs on, shape (k,).
    enrolled, heard: of how many entries each is, and how many were heard, shape (k,).
    """

    spans: tuple[Node, ...]
    values: Floats
    variances: Floats
    upper_bound: NDArray[np.bool_]
    bounds: Floats
    influence: Floats
    known_until: Indices
    enrolled: Floats
    heard: Floats

    @property
    def standard_errors(self) -> Floats:
        """The root of each variance, shape (k, z), in entries; nan for a variance that came out below zero."""
        return np.sqrt(np.where(self.variances >= 0, self.variances, np.nan))


def histogram_figures(solution: Solution, until: int) -> tuple[Figures, list[Gap]]:
    """The figures of the histograms at the ends of the periods 1 to `until`; and of the others, why they have none.

    The same values and variances as `series`, within rounding. Raises ValueError outside the calendar.
    """
    survey = solution.releases.survey
    check_period(survey, until)
    figures = _figures(solution, _series_rows(solution, until))
    there = {span.end for span in figures.spans}
    if len(there) == until:
        return figures, []
    missing = first_missing(solution.releases, until, retrospective=solution.retrospective)
    lost = [period for period in range(1, until + 1) if period not in there]
    return figures, [Gap(Node(0, period), missing[period - 1]) for period in lost]


def window_figures(solution: Solution, width: int, until: int) -> tuple[Figures, list[Gap]]:
    """The figures of the changes over the windows (t - width, t] for t = width to `until`; and of the others, why not.

    The same values and variances as `sliding`, within rounding. Raises ValueError as that does.
    """
    survey = solution.releases.survey
    check_period(survey, until)
    if width < 1:
        raise ValueError(f"a window must be at least one period wide, got {width}")
    figures = _figures(solution, _window_rows(solution, width, until))
    there = {span.end for span in figures.spans}
    gaps = []
    for end in range(width, until + 1):
        if end not in there:
            known = survey.calendar.periods if solution.retrospective else end
            window = Node(end - width, end)
            gaps.append(Gap(window, missing_on_the_way(solution.releases, window, known)))
    return figures, gaps


def span_figures(solution: Solution, span: Node) -> tuple[Figures, tuple[UsedNode, ...]]:
    """The figures of one span, and the nodes they are made of. Raises NotEstimable."""
    row = solution.row(span.end, span.start)
    return _figures(solution, iter([(span, row)])), solution.weighing(row)


def _series_rows(solution: Solution, until: int) -> Iterator[tuple[Node, Floats]]:
    """The weights of each histogram that can be estimated."""
    known = solution.releases
    if solution.retrospective:
        times = [time for time in range(1, until + 1) if solution.reaches(time)]
        yield from _by_blocks(solution, times, [])
    elif solution.weighs_groups:
        for time, row in solution.best_rows(until):
            yield Node(0, time), row
    else:
        for time, alone, _ in online_rows(solution.network, until):
            if alone is not None:
                yield Node(0, time), known.enrolment.scale(time) * alone[: len(known)]


def _window_rows(solution: Solution, width: int, until: int) -> Iterator[tuple[Node, Floats]]:
    """The weights of each window that can be estimated."""
    known = solution.releases
    if solution.retrospective or solution.weighs_groups:
        ends = [end for end in range(width, until + 1) if solution.reaches(end, end - width)]
        if solution.retrospective and all(solution.reaches(end) for end in ends):
            yield from _by_blocks(solution, ends, [end - width for end in ends])
            return
        for end in ends:
            yield Node(end - width, end), solution.row(end, end - width)
    else:
        for time, _, over in online_rows(solution.network, until, width):
            if over is not None:
                yield Node(time - width, time), known.enrolment.scale(time) * over[: len(known)]


def _by_blocks(solution: Solution, ends: list[int], starts: list[int]) -> Iterator[tuple[Node, Floats]]:
    """Retrospective weights, solved for several times at once. starts: empty for 0 everywhere."""
    block = _block(solution.releases)
    for at in range(0, len(ends), block):
        here, before = ends[at : at + block], starts[at : at + block] or [0] * len(ends[at : at + block])
        rows = solution.rows(here)
        if any(before):
            rows = rows - solution.rows(before)
        for start, end, row in zip(before, here, rows, strict=True):
            yield Node(start, end), row


def _block(known: Releases) -> int:
    return max(1, MOST_AT_ONCE // max(1, len(known)))


def _figures(solution: Solution, rows: Iterator[tuple[Node, Floats]]) -> Figures:
    """Block by block, so that there is never a weight for each time and node in memory."""
    spans: list[Node] = []
    parts: list[tuple[NDArray[Any], ...]] = []
    block, here, weights = _block(solution.releases), 0, np.empty((0, 0))
    for span, row in rows:
        if here == 0:
            weights = np.empty((block, len(solution.releases)))
        weights[here] = row
        spans.append(span)
        here += 1
        if here == block:
            parts.append(_of_block(solution, spans[-here:], weights))
            here = 0
    parts.append(_of_block(solution, spans[len(spans) - here :], weights[:here].reshape(here, len(solution.releases))))
    values, variances, bounds, influence, bounded, known, enrolled, heard = (
        np.concatenate(each) for each in zip(*parts, strict=True)
    )
    return Figures(
        tuple(spans),
        values,
        variances,
        bounded.astype(np.bool_),
        bounds,
        influence,
        known.astype(np.intp),
        enrolled,
        heard,
    )


def _of_block(solution: Solution, spans: list[Node], weights: Floats) -> tuple[NDArray[Any], ...]:
    known, enrolment = solution.releases, solution.releases.enrolment
    plus = np.array([span.end for span in spans], np.intp)
    minus = np.array([span.start for span in spans], np.intp)
    until = np.full_like(plus, solution.network.periods) if solution.retrospective else plus
    values = weights @ known.changes
    variances = weights**2 @ known.variances
    scale = enrolment.scales[until]
    common, bounded = _in_common(solution, weights, values / scale[:, None], plus, minus, until)
    bounded |= known.bounded_by(until)
    enrolled = np.round((enrolment.new + enrolment.missed)[until])
    heard = np.round(enrolment.latest[plus])
    last = np.flatnonzero(enrolment.heard).max(initial=0)
    return (
        values,
        variances + common,
        _bounds(solution, weights / scale[:, None], minus, until, enrolled),
        influences(known, weights),
        bounded,
        np.full(len(plus), last) if solution.retrospective else plus,
        enrolled.astype(np.float64),
        heard.astype(np.float64),
    )


def _in_common(
    solution: Solution, weights: Floats, values: Floats, plus: Indices, minus: Indices, until: Indices
) -> tuple[Floats, NDArray[np.bool_]]:
    """What reports of one entry add to the variances, shape (k, z); and where that is a bound, shape (k,).

    values: in the releases' units, shape (k, z).
    """
    known = solution.releases
    added, bounded = np.zeros((len(weights), len(known.survey.answers))), np.zeros(len(weights), np.bool_)
    if not len(weights) or not solution.needs_sampling(until):
        return added, bounded
    if not hangs_together(known.survey) and solution.drift is None:
        sampling = solution.sampling if minus.any() else Sampling(known, values)
        return sampling.variances(values, plus, minus, until)
    for at, (row, time) in enumerate(zip(weights, until.tolist(), strict=True)):
        covariance, bounded[at] = solution.sampling.covariance(row, time)
        added[at] = np.diag(covariance)
    return added, bounded


def _bounds(solution: Solution, rows: Floats, minus: Indices, until: Indices, enrolled: Floats) -> Floats:
    """As `Silence.bounds`. rows: the weights in the releases' units, shape (k, E)."""
    known, enrolment = solution.releases, solution.releases.enrolment
    z, end, may_fall = len(known.survey.answers), solution.releases.network.end, solution.releases.network.start > 0
    least_silent = enrolment.new[end] - enrolment.heard[end]
    silent = np.maximum(least_silent + enrolment.missed[until][:, None], 0.0) * rows
    least, most = np.minimum(silent, 0.0), np.maximum(silent, 0.0)
    below = least.sum(1) - most[:, may_fall].sum(1)
    above = most.sum(1) - least[:, may_fall].sum(1)
    told = rows * (enrolment.heard[end] / enrolment.stands_for[end])
    variances = told**2 @ known.response_variances
    if len(rows) and solution.needs_sampling(until, of_heard=True):
        for at, (row, time) in enumerate(zip(told, until.tolist(), strict=True)):
            variances[at] += np.diag(solution.sampling.covariance(row, time, of_heard=True)[0])
    half = NORMAL.inv_cdf(0.5 + LEVEL / 2) * np.sqrt(np.where(variances >= 0, variances, np.nan))
    values = told @ known.changes
    ends = np.stack([values - half + below[:, None], values + half + above[:, None]], axis=-1)
    lowest = np.where(minus == 0, 0.0, -enrolled)[:, None, None]
    clipped: Floats = np.clip(ends, lowest, enrolled[:, None, None]).reshape(len(rows), z, 2)
    return clipped

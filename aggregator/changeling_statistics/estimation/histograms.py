"""Histograms, and their changes over windows, from all published nodes of a survey.

Each is a least-squares solution of the release graph, unbiased and with its covariance. Online, which is the default,
an estimate uses the nodes that have closed by the period it is about; retrospective, it uses all.
docs/mathematics.md, "The release graph".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from changeling_protocol import Node, Survey

from ..estimate import Estimate
from ..tallies import Tallies
from .reach import check_period, not_estimable
from .releases import Releases, UsedNode, releases
from .solution import Solution


class Nodes(Sequence[UsedNode]):
    """The nodes that an estimate is made of, by the time of their end; worked out when first asked for."""

    __slots__ = ("_minus", "_plus", "_solution", "_used")

    def __init__(self, solution: Solution, plus: int, minus: int) -> None:
        self._solution, self._plus, self._minus = solution, plus, minus
        self._used: tuple[UsedNode, ...] | None = None

    @overload
    def __getitem__(self, at: int) -> UsedNode: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[UsedNode]: ...
    def __getitem__(self, at: int | slice) -> UsedNode | Sequence[UsedNode]:
        return self._nodes[at]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[UsedNode]:
        return iter(self._nodes)

    @property
    def _nodes(self) -> tuple[UsedNode, ...]:
        if self._used is None:
            self._used = self._solution.used(self._plus, self._minus)
        return self._used


@dataclass(frozen=True, slots=True)
class Histogram:
    """The histogram at the end of a period.

    period: its number, 0 to T.
    estimate: the entries that hold each answer 1..z, with their covariance.
    nodes: the nodes that the estimate is made of, by the time of their end.
    """

    period: int
    estimate: Estimate
    nodes: Sequence[UsedNode]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of the histogram over a window of periods.

    span: the window (start, end].
    estimate: by how many entries each answer 1..z changed, with their covariance.
    nodes: the nodes that the estimate is made of, by the time of their end.
    """

    span: Node
    estimate: Estimate
    nodes: Sequence[UsedNode]


def histogram(survey: Survey, tallies: Tallies, period: int, *, retrospective: bool = False) -> Histogram:
    """Estimates the histogram at the end of a period.

    tallies: those that may be published, by track and node.
    period: 0 to T; at 0 nobody has an answer.
    retrospective: whether to use every tally; if not, only those of nodes that have closed by the period.
    Raises NotEstimable, which names the node that is missing, if the tallies do not connect the period with the
    start of the calendar; ValueError outside 0..T.
    """
    check_period(survey, period)
    solution = Solution(releases(survey, tallies), retrospective)
    if period == 0:
        z = len(survey.answers)
        return Histogram(0, Estimate(np.zeros(z), np.zeros((z, z))), ())
    return Histogram(period, solution.estimate(period), Nodes(solution, period, 0))


def series(
    survey: Survey, tallies: Tallies, until: int, *, retrospective: bool = False, skip: bool = False
) -> list[Histogram]:
    """Estimates the histograms at the ends of periods 1 to `until`, faster than one by one.

    tallies, retrospective: as for `histogram`.
    until: 0 to T.
    skip: whether to leave out periods that are not estimable; if not, they raise as `histogram` does.
    """
    check_period(survey, until)
    known = releases(survey, tallies)
    solution = Solution(known, retrospective)
    histograms: list[Histogram] = []
    for period, estimate in enumerate(solution.estimates(until), 1):
        if estimate is not None:
            histograms.append(Histogram(period, estimate, Nodes(solution, period, 0)))
        elif not skip:
            raise _not_estimable(known, period, 0, retrospective)
    return histograms


def change(survey: Survey, tallies: Tallies, window: Node, *, retrospective: bool = False) -> Change:
    """Estimates the change of the histogram over a window (l, r] of periods: v̂_r - v̂_l.

    tallies: as for `histogram`.
    window: (l, r].
    retrospective: whether to use every tally; if not, only those of nodes that have closed by r.
    Raises NotEstimable, which names the node that is missing, if the tallies do not connect l and r (they need not
    reach back to the start); ValueError outside the calendar.
    """
    check_period(survey, window.end)
    solution = Solution(releases(survey, tallies), retrospective)
    estimate = solution.estimate(window.end, window.start)
    return Change(window, estimate, Nodes(solution, window.end, window.start))


def sliding(
    survey: Survey, tallies: Tallies, width: int, until: int, *, retrospective: bool = False, skip: bool = False
) -> list[Change]:
    """Estimates the changes over the windows (t - width, t] for t = width to `until` (SWCR).

    width: of a window, in periods, at least 1.
    until: the end of the last window, at most T.
    tallies, retrospective: as for `change`; if not retrospective, each window takes a solve of its own.
    skip: whether to leave out windows that are not estimable; if not, they raise as `change` does.
    Raises ValueError for a width below 1, or an `until` outside the calendar.
    """
    check_period(survey, until)
    if width < 1:
        raise ValueError(f"a window must be at least one period wide, got {width}")
    known = releases(survey, tallies)
    solution = Solution(known, retrospective)
    changes: list[Change] = []
    for end in range(width, until + 1):
        window = Node(end - width, end)
        if solution.reaches(end, window.start):
            estimate = solution.estimate(end, window.start)
            changes.append(Change(window, estimate, Nodes(solution, end, window.start)))
        elif not skip:
            raise _not_estimable(known, end, window.start, retrospective)
    return changes


def _not_estimable(known: Releases, end: int, start: int, retrospective: bool) -> Exception:
    return not_estimable(known, end, known.network.periods if retrospective else end, start)

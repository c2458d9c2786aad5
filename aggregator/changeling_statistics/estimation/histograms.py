"""Histograms, and their changes over windows, from all published nodes of a survey.

Each is a least-squares solution of the release graph, unbiased and with its covariance. Online, which is the default,
an estimate uses the nodes that have closed by the period it is about; retrospective, it uses all. They are about the
entries that are enrolled by then; those who are silent are taken to be like those who are heard, and `basis` says
what holds whatever they are like. docs/mathematics.md, "The release graph" and "Who is missing".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Node, Survey

from ..estimate import Estimate, Tallies
from .figures import Basis
from .releases import UsedNode, releases
from .solution import Gap, Solution, check_period, first_missing


@dataclass(frozen=True, slots=True)
class Histogram:
    """The histogram at the end of a period.

    period: its number, 0 to T.
    estimate: the entries that hold each answer 1..z, with their covariance. It is unbiased for what entries report; one
    that has used up the changes its survey allows goes on reporting its last answer (docs/reading.md, "Freezing").
    basis: the nodes that the estimate is made of, who of the entries was heard, and what holds whatever the others are
    like.
    """

    period: int
    estimate: Estimate
    basis: Basis

    @property
    def nodes(self) -> Sequence[UsedNode]:
        """The nodes that the estimate is made of, by the time of their end."""
        return self.basis.nodes


@dataclass(frozen=True, slots=True)
class Change:
    """The change of the histogram over a window of periods.

    span: the window (start, end].
    estimate: by how many entries each answer 1..z changed, with their covariance.
    basis: as of a histogram.
    """

    span: Node
    estimate: Estimate
    basis: Basis

    @property
    def nodes(self) -> Sequence[UsedNode]:
        """The nodes that the estimate is made of, by the time of their end."""
        return self.basis.nodes


def histogram(survey: Survey, tallies: Tallies, period: int, *, retrospective: bool = False) -> Histogram:
    """Estimates the histogram at the end of a period.

    tallies: those that may be published, by track and node.
    period: 0 to T; at 0 nobody has an answer.
    retrospective: whether to use every tally; if not, only those of nodes that have closed by the period.
    Raises NotEstimable, which names the node that is missing, if the tallies do not connect the period with the
    start of the calendar; ValueError outside 0..T.
    """
    check_period(survey, period)
    solution, z = Solution(releases(survey, tallies), retrospective), len(survey.answers)
    estimate = solution.estimate(period) if period else Estimate(np.zeros(z), np.zeros((z, z)))
    return Histogram(period, estimate, Basis(solution, period))


def series(survey: Survey, tallies: Tallies, until: int, *, retrospective: bool = False) -> list[Histogram | Gap]:
    """Estimates the histograms at the ends of periods 1 to `until`, faster than one by one.

    tallies, retrospective: as for `histogram`.
    until: 0 to T.
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
    return Change(window, solution.estimate(window.end, window.start), Basis(solution, window.end, window.start))

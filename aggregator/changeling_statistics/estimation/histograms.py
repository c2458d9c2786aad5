"""Histograms, and their changes over windows, from all published nodes of a survey.

Each is a least-squares solution of the release graph, unbiased and with its covariance. Online, which is the default,
an estimate uses the nodes that have closed by the period it is about; retrospective, it uses all. They are about the
entries that are enrolled by then; those who are silent are taken to be like those who are heard, and `basis` says
what holds whatever they are like. docs/mathematics.md, "The release graph" and "Who is missing".
"""

from collections.abc import Sequence
from dataclasses import dataclass

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

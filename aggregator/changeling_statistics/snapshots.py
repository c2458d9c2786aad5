"""What is shown of a closing before it is sealed: snapshots that no single report moves.

A lot is what the entries of one group and stratum say at one closing: how many were heard is one cell, and on each node
that ends there is another, of so many reports. A snapshot freezes a lot as it is, reports and attendance together. Of a
lot's snapshots each cell has as many as in the one before, or at least the survey's minimum more. Knows no clock: the
caller says what is counted by now, and whether the closing is sealed. docs/mathematics.md, "Snapshots".
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from changeling_protocol import Survey

from .tallies import PlanNode

Lot: TypeAlias = Hashable
"""Names a group and a stratum, at one closing."""
Cell: TypeAlias = PlanNode | None
"""A node, or None for those who were heard."""
Counts: TypeAlias = Mapping[Lot, Mapping[Cell, int]]
"""How many each cell of each lot of a closing has, reports or members; lots and cells without any may be left out."""

MINIMUMS = 10
"""A cell is shown before it is sealed only if it has so many times as much as may be left out of it, which is less than
the survey's minimum; so at most one report in as many is left out for good where that is missing as it is sealed."""


def lots_to_show(shown: Counts, counted: Counts, minimum: int, *, sealed: bool) -> frozenset[Lot]:
    """The lots of a closing of which a snapshot is to be taken now; all others stay as they are shown.

    shown: the lots that are shown, each as of its last snapshot.
    counted: all lots as they are counted by now; no cell has fewer than it is shown with.
    minimum: the survey's, at least 1.
    sealed: whether nothing more will be counted.
    A closing is first shown when each cell that has any has `enough`, or else when it is sealed. A lot that is heard of
    later waits for that, too, and has the minimum in each cell then or is never shown.
    """
    lots = {lot for lot, cells in counted.items() if any(cells.values())}
    if not shown:
        large = all(_moves({}, counted[lot], enough(minimum)) for lot in lots)
        return frozenset(lots if large or sealed else ())
    return frozenset(
        lot
        for lot in lots
        if (lot in shown or sealed)
        and counted[lot] != shown.get(lot)
        and _moves(shown.get(lot, {}), counted[lot], minimum)
    )


def enough(minimum: int) -> int:
    """How many a cell needs to be shown before it is sealed. minimum: the survey's, at least 1."""
    return max(minimum, MINIMUMS * (minimum - 1))


@dataclass(frozen=True, slots=True)
class SnapshotCost:
    """What it costs that a closing is shown in snapshots.

    delay: how long after a closing its first snapshot may have to wait, in seconds.
    left_out: the largest share of the reports of a cell that may never be shown, if it is the one that has fewer than
    the minimum more when the closing is sealed.
    """

    delay: int
    left_out: Fraction


def snapshot_cost(survey: Survey, reports: int) -> SnapshotCost:
    """What snapshots cost a closing.

    reports: how many its smallest cell will have. With `enough` it is shown as soon as all devices that run have
    answered, and may lose fewer than the minimum; with fewer it waits until it is sealed, and loses none.
    """
    if reports < enough(survey.minimum):
        return SnapshotCost(survey.grace, Fraction(0))
    return SnapshotCost(survey.skew + survey.spread, Fraction(survey.minimum - 1, reports))


def _moves(before: Mapping[Cell, int], after: Mapping[Cell, int], least: int) -> bool:
    """Whether each cell has as many as before, or at least so many more."""
    return all((more := count - before.get(cell, 0)) == 0 or more >= least for cell, count in after.items())

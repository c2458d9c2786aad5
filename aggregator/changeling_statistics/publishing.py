"""Tallies that may be shown: snapshots of closings that are not sealed yet, and unions of strata.

A batch is what the entries of one group and stratum say at one closing: how many were heard is one cell, and on each
node that ends there is another, of so many reports. A snapshot freezes a batch as it is, reports and attendance
together. Of a batch's snapshots each cell has as many as in the one before, or at least the survey's minimum more; so
no single report moves what is shown. Knows no clock: the caller says what is counted by now, and whether the closing is
sealed. docs/mathematics.md, "Snapshots".

Unions of strata are sums of whole numbers: they equal the tallies that would have been counted for the union directly.
Of each, every published part has enough reports. Attendance is of who takes part, which is public, and is given whole.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from changeling_protocol import Breakdown, NodeNumber, StratumNumber, TrackNumber, count_strata
from numpy.typing import NDArray

from .estimate import Attendance, Counts, NodeTally, PlanNode, Tallies

Batch: TypeAlias = Hashable
"""Names a group and a stratum, at one closing."""
Cell: TypeAlias = PlanNode | None
"""A node, or None for those who were heard."""
CellCounts: TypeAlias = Mapping[Batch, Mapping[Cell, int]]
"""How many each cell of each batch of a closing has, reports or members; what has none may be left out."""

MINIMUMS = 10
"""A cell is shown before it is sealed only if it has so many times as much as may be left out of it, which is less than
the survey's minimum; so at most one report in as many is left out for good where that is missing as it is sealed."""


def batches_to_show(shown: CellCounts, counted: CellCounts, minimum: int, *, sealed: bool) -> frozenset[Batch]:
    """The batches of a closing of which a snapshot is to be taken now; all others stay as they are shown.

    shown: the batches that are shown, each as of its last snapshot.
    counted: all batches as they are counted by now; no cell has fewer than it is shown with.
    minimum: the survey's, at least 1.
    sealed: whether nothing more will be counted.
    A closing is first shown when each cell that has any has `enough`, or else when it is sealed. A batch that is heard
    of later waits for that, too, and has the minimum in each cell then or is never shown.
    """
    batches = {batch for batch, cells in counted.items() if any(cells.values())}
    if not shown:
        large = all(_moves({}, counted[batch], enough(minimum)) for batch in batches)
        return frozenset(batches if large or sealed else ())
    return frozenset(
        batch
        for batch in batches
        if (batch in shown or sealed)
        and counted[batch] != shown.get(batch)
        and _moves(shown.get(batch, {}), counted[batch], minimum)
    )


def enough(minimum: int) -> int:
    """How many a cell needs to be shown before it is sealed. minimum: the survey's, at least 1."""
    return max(minimum, MINIMUMS * (minimum - 1))


def _moves(before: Mapping[Cell, int], after: Mapping[Cell, int], least: int) -> bool:
    """True if each cell has as many as before, or at least so many more."""
    return all((more := count - before.get(cell, 0)) == 0 or more >= least for cell, count in after.items())


Flags: TypeAlias = NDArray[np.bool_]
NodeCell: TypeAlias = tuple[TrackNumber, NodeNumber, StratumNumber]
"""A node of a survey's plan, and the stratum of the entries that reported on it."""
ClosingCell: TypeAlias = tuple[int, int, StratumNumber]
"""A group, a period at which a node ends, and the stratum of the entries that were heard there."""


def select(breakdowns: Sequence[Breakdown], told: Mapping[str, Collection[str]]) -> list[StratumNumber]:
    """The strata that have one of the values told for each of the breakdowns told, rising.

    breakdowns: those that the survey declares.
    told: values by the name of their breakdown; a breakdown that is not named may have any value.
    Raises ValueError, which names what is not declared; and if no value is told for a name.

    >>> system, channel = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))
    >>> select([system, channel], {"channel": ["beta"]})
    [1, 3]
    """
    declared = {each.name: each.values for each in breakdowns}
    if unknown := sorted(told.keys() - declared):
        raise ValueError(f"the survey declares the breakdowns {sorted(declared)}, not {unknown}")
    for name, values in told.items():
        if not values or not set(values) <= set(declared[name]):
            raise ValueError(f"{name!r} is one or more of {list(declared[name])}, got {sorted(values)}")
    chosen = [
        [place for place, value in enumerate(each.values) if each.name not in told or value in told[each.name]]
        for each in breakdowns
    ]
    numbers = np.arange(count_strata(breakdowns)).reshape([len(each.values) for each in breakdowns] or [1])
    return [StratumNumber(number) for number in (numbers[np.ix_(*chosen)] if chosen else numbers).ravel().tolist()]


def withheld(reports: Counts, minimum: int) -> Flags:
    """Mask of the cells of a node that may be shown only along with all the others, shape (cells,).

    reports: of each cell, shape (cells,).
    minimum: the fewest reports, at least 1, that anything published may be about.
    These are the cells with fewer reports than the minimum, but for those without any. If they have fewer all together,
    the smallest of the others is withheld with them: else the whole less all the others would show them.
    """
    small: Flags = (reports > 0) & (reports < minimum)
    others = np.flatnonzero(reports >= minimum)
    if len(others) and 0 < reports[small].sum() < minimum:
        small[others[np.argmin(reports[others])]] = True
    return small


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Whole numbers by cell; the cells of one node, or of one closing, lie side by side.

    keys: the nodes or closings, N of them.
    starts: where the cells of each begin, shape (N,).
    stratum: of each cell, shape (cells,).
    counts: of each cell, shape (cells, what is counted).
    """

    keys: tuple[tuple[int, int], ...]
    starts: NDArray[np.intp]
    stratum: NDArray[np.intp]
    counts: Counts

    def any_of(self, cells: Flags) -> Flags:
        """Mask of the nodes or closings that have one of these cells, shape (N,)."""
        return np.logical_or.reduceat(cells, self.starts)

    def sums(self, cells: Flags, keys: Flags) -> tuple[list[tuple[int, int]], Counts]:
        """The sums over these cells for these nodes or closings, each of which has one of the cells."""
        sizes = np.diff(self.starts, append=len(self.stratum))
        rows = np.flatnonzero(cells & np.repeat(keys, sizes))
        number = np.repeat(np.arange(len(self.keys)), sizes)[rows]
        begins = np.flatnonzero(np.diff(number, prepend=-1))
        total: Counts = np.add.reduceat(self.counts[rows], begins, axis=0) if len(rows) else self.counts[:0]
        return [self.keys[at] for at in np.flatnonzero(keys)], total


class StratifiedTallies:
    """All tallies of a survey by stratum.

    nodes: the tally of each cell that has reports.
    attendance: of each group, closing and stratum that somebody was heard of.
    minimum: the fewest reports that anything published may be about; 1 to publish everything.
    """

    def __init__(
        self, nodes: Mapping[NodeCell, NodeTally], attendance: Mapping[ClosingCell, Attendance], minimum: int
    ) -> None:
        self._minimum = max(1, minimum)
        self._attendance = _rows({key: [each.heard, each.new, each.missed] for key, each in attendance.items()})
        by_track = groupby(sorted(nodes), key=itemgetter(0))
        self._tracks = [
            _rows({cell: [nodes[cell].reports, *nodes[cell].slots.tolist()] for cell in cells}) for _, cells in by_track
        ]
        self._withheld = [_withheld(rows, self._minimum) for rows in self._tracks]

    def union(self, strata: Collection[StratumNumber]) -> Tallies:
        """The tallies of the entries of these strata, which may be published.

        A node is there if it has at least the minimum of reports, and none of its cells is withheld; or the union
        leaves out no cell with reports. So whatever is made of unions, by adding and subtracting them, is about at
        least so many reports, or none. docs/mathematics.md, "Unions of strata".
        """
        nodes: dict[tuple[TrackNumber, NodeNumber], NodeTally] = {}
        for rows, hidden in zip(self._tracks, self._withheld, strict=True):
            chosen = _chosen(rows, strata)
            shown = rows.any_of(chosen) & ~(rows.any_of(chosen & hidden) & rows.any_of(~chosen))
            keys, sums = rows.sums(chosen, shown)
            for (track, node), total in zip(keys, sums, strict=True):
                if (reports := int(total[0])) >= self._minimum:
                    nodes[TrackNumber(track), NodeNumber(node)] = NodeTally(reports, total[1:])
        chosen = _chosen(self._attendance, strata)
        closings, sums = self._attendance.sums(chosen, self._attendance.any_of(chosen))
        return Tallies(nodes, {key: Attendance(*row) for key, row in zip(closings, sums.tolist(), strict=True)})


def _rows(counts: Mapping[tuple[int, int, StratumNumber], Sequence[int]]) -> _Rows:
    cells = sorted(counts)
    keys = [cell[:2] for cell in cells]
    starts = [at for at, key in enumerate(keys) if at == 0 or key != keys[at - 1]]
    return _Rows(
        tuple(keys[at] for at in starts),
        np.array(starts, np.intp),
        np.array([cell[2] for cell in cells], np.intp),
        np.array([counts[cell] for cell in cells], np.int64).reshape(len(cells), -1 if cells else 0),
    )


def _withheld(rows: _Rows, minimum: int) -> Flags:
    nodes = np.split(rows.counts[:, 0], rows.starts[1:])
    return np.concatenate([withheld(reports, minimum) for reports in nodes])


def _chosen(rows: _Rows, strata: Collection[StratumNumber]) -> Flags:
    return np.isin(rows.stratum, np.array(sorted(strata), np.intp))

"""Linear queries: what each answer counts for, f, clipped, and how far one entry can move their change.

The change over a node is Σ f(new) - f(old) over its mutations. Of one entry the sum telescopes to f(last) - f(first),
whatever happened between. Since f(NULL) = 0, one entry moves a scalar by at most max(hi, 0) - min(lo, 0): the
paper's |hi - lo| is too small for an insertion where 0 is outside [lo, hi] (Pan 2023, section 4.4.1).
Neighbours: databases of which one lacks an entry of the other, with all its mutations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import floor

import numpy as np
from changeling_protocol import AtMostWithin, Calendar, Constraint, Hybrid, TimeBounded
from changeling_statistics import Counts

from .noise import JointShifts

Corner = tuple[int, ...]
"""What an entry counts for, a number for each column of a query."""
COUNTED: tuple[Corner, ...] = ((0,), (1,))
"""The corners of an entry that is counted or not."""
NEAR = 1e-9
"""Of the rounding of a share of a corner, and of what shares then do not add up to, relative."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How far an entry moves a query in one node. appears: from nobody to an answer, or back. moves: anyhow.

    Sums of sizes over the columns first, sums of squares second, in units and units squared.
    """

    appears: tuple[int, int]
    moves: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reach:
    """periods: in how many periods an entry's mutations lie at most. span: from the first of these to the last."""

    periods: int
    span: int


def reaches(constraint: Constraint, calendar: Calendar) -> tuple[Reach, ...]:
    """The reach of an entry of each class of the constraint; of most constraints there is but one class."""
    bounds = range(0, (calendar.periods + 1) * calendar.period, calendar.period)
    span = calendar.periods - 1
    match constraint:
        case Hybrid(classes):
            return tuple(reach for each in classes for reach in reaches(each, calendar))
        case TimeBounded(seconds) | AtMostWithin(_, seconds):
            span = TimeBounded(seconds).most_nodes(bounds) - 1
    return (Reach(constraint.most_nodes(bounds), span),)


MOST_UNITS = 2**53
MOST_COMPARED = 2**22
"""Numbers that are compared at once, and so held in memory."""
MOST_PAIRS = 2**30
MOST_NUMBERS = 2**22
"""Numbers of noise that a release holds in memory, for all columns together."""


@dataclass(frozen=True, slots=True)
class LinearQuery:
    """w integer functions of an entry's state, in multiples of `unit`, summed over all entries.

    names: of the w columns. table: f, a row for each state 0..z, row 0 (NULL) all zero.
    appearing: by how much one entry, NULL as a node began, shifts the columns of that node at most, one number for each
    column that it shifts. moving: the same of an entry that was there. unit: what 1 in the table is worth.
    fixed: no entry ever holds two different answers. corners: of a simplex that every row lies in, where an entry
    cannot shift all columns by their most together; () if nothing is known of that. cells: the table as an array,
    shape (z + 1, w).
    ValueError for a table in which an entry could shift more than is stated.
    """

    names: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]
    appearing: tuple[int, ...]
    moving: tuple[int, ...]
    unit: Fraction = Fraction(1)
    fixed: bool = False
    corners: tuple[Corner, ...] = ()
    cells: Counts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.names or any(len(row) != len(self.names) for row in self.table):
            raise ValueError(f"a query's table has {len(self.names)} columns, at least one, in every row")
        if not self.table or any(self.table[0]):
            raise ValueError("f(NULL) is 0")
        if self.unit <= 0:
            raise ValueError(f"a query's unit is above 0, got {self.unit}")
        if max((abs(f) for row in (*self.table, self.appearing, self.moving) for f in row), default=0) > MOST_UNITS:
            raise ValueError("an entry counts at most 2^53 units, as floats tell no more apart: take a larger unit")
        cells = np.array(self.table, np.int64)
        cells.flags.writeable = False
        object.__setattr__(self, "cells", cells)
        f = np.unique(cells, axis=0)
        if self.corners:
            check_within(f, self.corners)
        _check_shifts(np.abs(f), self.appearing, "appears")
        if self.fixed:
            _check_shifts(np.abs(f), self.moving, "moves")
        elif len(self.names) == 1:
            _check_shifts(np.ptp(f, axis=0, keepdims=True), self.moving, "moves")
        elif not _surely_within(f, self.moving):
            for first in range(0, len(f), step := max(1, MOST_COMPARED // f.size)):
                pairs = np.abs(f[first : first + step, None] - f[None])
                _check_shifts(pairs.reshape(-1, f.shape[1]), self.moving, "moves")

    @property
    def width(self) -> int:
        """How many columns there are, w."""
        return len(self.names)

    @property
    def extent(self) -> Extent:
        """How far one entry moves all columns together in one node."""
        if self.corners:
            return extent_of(self.corners, self.fixed)
        appears, moves = ((_sum(sizes), _squares(sizes)) for sizes in (self.appearing, self.moving))
        return Extent(appears, moves)

    @property
    def ends(self) -> tuple[Corner, ...]:
        """The corners of all that one entry may count for; () for a histogram, or where they are not known."""
        if self.fixed:
            return (0,), (self.extent.appears[0],)  # as far as sums of sizes go
        if self.width > 1:
            return self.corners
        most, range_ = max(*self.appearing, 0), max(*self.moving, 0)
        return (most,), (min(0, most - range_),)

    def shifts(self, nodes: int) -> JointShifts:
        """How many draws of one cadence an entry shifts by how much, if at most `nodes` of its nodes hold a mutation.

        In the first of them the entry was NULL as the node began.
        """
        return self.shifts_of(min(nodes, 1), max(nodes - 1, 0))

    def shifts_of(self, appearances: int, moves: int) -> JointShifts:
        """How many draws are shifted by how much, if an entry appears in so many nodes and moves in so many others."""
        counts: dict[int, int] = {}
        for worst, times in ((self.appearing, appearances), (self.moving, moves)):
            for shift in worst:
                if shift and times:
                    counts[shift] = counts.get(shift, 0) + times
        first, later = self.extent.appears, self.extent.moves
        total, squares = (appearances * one + moves * other for one, other in zip(first, later, strict=True))
        return JointShifts(counts, total, squares)


def corners_of(query: LinearQuery, mutations: int) -> tuple[float, tuple[Corner, ...]]:
    """The corners of what an entry counts for, each to be multiplied by the root of the factor; () if not known."""
    if query.fixed:
        return float(query.extent.appears[1]), COUNTED
    if query.corners:
        return 1.0, query.corners
    if query.width == 1:
        most, range_ = max(*query.appearing, 0), max(*query.moving, 0)
        return (float(most**2), COUNTED) if range_ <= most else (1.0, ((most,), (most - range_,)))
    if sum(query.appearing) == 1 and len(query.moving) <= 2 and max(query.moving, default=0) <= 1:
        return 1.0, unit_corners(min(query.width, mutations))
    return 1.0, ()


@lru_cache(maxsize=64)
def unit_corners(width: int) -> tuple[Corner, ...]:
    """Nobody, and one in each column."""
    return tuple(tuple(int(column == at) for column in range(width)) for at in range(-1, width))


def _check_shifts(rows: Counts, bound: Sequence[int], what: str) -> None:
    """ValueError where a row's sizes, largest first, are not within the bound's."""
    worst = np.sort(np.array(bound, np.int64))[::-1]
    if len(worst) < rows.shape[1] and np.any(np.count_nonzero(rows, axis=1) > len(worst)):
        raise ValueError(f"an entry that {what} shifts more columns than the {len(worst)} stated")
    largest = -np.sort(-rows, axis=1)[:, : len(worst)]
    if np.any(largest > worst[: largest.shape[1]]):
        raise ValueError(f"an entry that {what} shifts a column by more than the {tuple(bound)} stated")


def _surely_within(f: Counts, bound: Sequence[int]) -> bool:
    """True if no pair of rows can differ by more, from the columns' ranges and how many columns a row counts in.

    ValueError where it is not known and there are too many pairs to look at.
    """
    ranges = np.sort(f.max(axis=0) - f.min(axis=0))[::-1]
    touched = ranges[: 2 * int(np.count_nonzero(f, axis=1).max())]
    worst = np.zeros(f.shape[1], np.int64)
    stated = np.sort(np.array(bound, np.int64))[::-1][: len(worst)]
    worst[: len(stated)] = stated
    if np.all(touched <= worst[: len(touched)]):
        return True
    if len(f) * f.size > MOST_PAIRS:
        raise ValueError(
            f"{len(f)} different rows of {f.shape[1]} columns are too many to compare in pairs: state as `moving` how "
            "far each column reaches, for twice as many columns as a row counts in"
        )
    return False


def counting(answers: Sequence[str], chosen: Sequence[str], name: str, fixed: bool = False) -> LinearQuery:
    """The query of how many entries hold one of the chosen answers.

    answers: of the changelog, states 1..z; they may come from the data, as those not chosen all count 0.
    chosen: those that count. name: of the column. fixed: no entry ever holds two different answers.
    """
    counted = frozenset(chosen)
    table = ((0,), *((int(answer in counted),) for answer in answers))
    return LinearQuery((name,), table, (1,), (1,), fixed=fixed)


OTHER = "other"
"""The column of all answers that a histogram does not show."""


def histogram_query(
    answers: Sequence[str], shown: Sequence[str], fixed: bool = False, other: bool = False
) -> LinearQuery:
    """The query of how many entries hold each of the shown answers.

    answers: of the changelog, states 1..z. shown: a column each; they must not come from the data. fixed: no entry ever
    holds two different answers. other: whether a last column, `OTHER`, counts those that hold any other answer.
    One entry appears in one column, and moves between two, so its move costs twice its appearance.
    """
    if len(set(shown)) != len(shown) or not shown:
        raise ValueError(f"the shown answers are distinct, and at least one, got {', '.join(shown) or 'none'}")
    if other and OTHER in shown:
        raise ValueError(f"{OTHER!r} is one of the answers shown, and cannot be the column of all others as well")
    names = (*shown, OTHER) if other else tuple(shown)
    place = {name: column for column, name in enumerate(shown)}
    rows = [tuple(int(column == held) for column in range(len(names))) for held in range(-1, len(names))]
    rest = len(shown) if other else -1
    table = (rows[0], *(rows[1 + place.get(answer, rest)] for answer in answers))
    moving = (1,) if fixed or len(names) == 1 else (1, 1)
    return LinearQuery(names, table, (1,), moving, fixed=fixed)


def clipped_sum(
    values: Mapping[str, float],
    answers: Sequence[str],
    low: float,
    high: float,
    unit: Fraction = Fraction(1),
    name: str = "sum",
    fixed: bool = False,
) -> LinearQuery:
    """The query of the sum of numeric answers, each clipped to [low, high] and rounded to a multiple of `unit`.

    values: the number that each answer stands for; an answer without one counts 0. answers: of the changelog, states
    1..z. low, high, unit: public. name: of the column. fixed: no entry ever holds two different answers.
    Sensitivity max(high, 0) - min(low, 0), both rounded outwards to units; where answers
    are fixed, max(|low|, |high|). ValueError where low > high.
    """
    if not low <= high:
        raise ValueError(f"clipping needs low <= high, got [{low}, {high}]")
    lowest, highest = floor(Fraction(low) / unit), -floor(-Fraction(high) / unit)
    rounded = [
        round(Fraction(min(max(values[answer], low), high)) / unit) if answer in values else 0 for answer in answers
    ]
    largest = max(abs(lowest), abs(highest))
    moving = largest if fixed else max(highest, 0) - min(lowest, 0)
    return LinearQuery(((name),), ((0,), *((f,) for f in rounded)), (largest,), (moving,), unit, fixed)


def extent_of(corners: Sequence[Corner], fixed: bool) -> Extent:
    """The extent of entries that count for anything between these corners. fixed: no entry holds two answers."""
    appears = _most(corners, _sum), _most(corners, _squares)
    between = [] if fixed else [tuple(a - b for a, b in zip(*pair, strict=True)) for pair in combinations(corners, 2)]
    return Extent(appears, (_most([*corners, *between], _sum), _most([*corners, *between], _squares)))


def check_within(rows: Counts, corners: Sequence[Corner]) -> None:
    """ValueError for a row, of shape (rows, w), that is no mixture of the corners, or for corners of no simplex."""
    scale = max(1, _most(corners, _sum))
    system = np.concatenate([np.array(corners, np.float64) / scale, np.ones((len(corners), 1))], 1).T
    if np.linalg.matrix_rank(system) < len(corners):
        raise ValueError(f"the corners of what an entry counts for span a simplex, got {list(corners)}")
    sought = np.concatenate([rows / scale, np.ones((len(rows), 1))], 1).T
    shares = np.linalg.lstsq(system, sought, rcond=None)[0]
    off = np.abs(system @ shares - sought) > NEAR
    if np.any(shares < -NEAR) or off.any() or np.any(np.abs(rows).sum(1) > _most(corners, _sum)):
        raise ValueError(f"an entry counts for something that is not between {list(corners)}")


def _most(moved: Sequence[Corner], norm: Callable[[Sequence[int]], int]) -> int:
    return max((norm(each) for each in moved), default=0)


def _sum(sizes: Sequence[int]) -> int:
    return sum(abs(size) for size in sizes)


def _squares(sizes: Sequence[int]) -> int:
    return sum(size**2 for size in sizes)

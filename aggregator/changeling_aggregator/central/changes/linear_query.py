"""Linear queries: what each answer counts for, f, clipped, and how far one entry can move their change.

The change over a node is Σ f(new) - f(old) over its mutations. Of one entry the sum telescopes to f(last) - f(first),
whatever happened between. Since f(NULL) = 0, one entry moves a scalar by at most max(hi, 0) - min(lo, 0): the
paper's |hi - lo| is too small for an insertion where 0 is outside [lo, hi] (Pan 2023, section 4.4.1).
Neighbours: databases of which one lacks an entry of the other, with all its mutations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from ...changelog import Mutations
from ...tallies import Counts


@dataclass(frozen=True, slots=True)
class LinearQuery:
    """w integer functions of the state, in multiples of `unit`.

    names: of the w columns. table: f, a row for each state 0..z, row 0 (NULL) all zero. appearing, moving: by how
    much one entry shifts the columns of one node, at most: when it was NULL as the node began, and otherwise;
    the columns it leaves as they are need no mention. fixed: no entry ever holds two different answers.
    """

    names: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]
    appearing: tuple[int, ...]
    moving: tuple[int, ...]
    unit: Fraction = Fraction(1)
    fixed: bool = False

    def __post_init__(self) -> None:
        if not self.names or any(len(row) != len(self.names) for row in self.table):
            raise ValueError(f"a query's table has {len(self.names)} columns, at least one, in every row")
        if not self.table or any(self.table[0]):
            raise ValueError("f(NULL) is 0")
        if self.unit <= 0:
            raise ValueError(f"a query's unit is above 0, got {self.unit}")
        f = np.unique(np.array(self.table, np.int64), axis=0)
        pairs = np.abs(f) if self.fixed else np.abs(f[:, None] - f[None]).reshape(-1, len(self.names))
        for rows, bound, what in ((np.abs(f), self.appearing, "appears"), (pairs, self.moving, "moves")):
            worst = np.sort(np.array(bound, np.int64))[::-1]
            shifts = -np.sort(-rows, axis=1)[:, : max(1, len(worst))]
            if len(worst) < len(self.names) and np.any(np.count_nonzero(rows, axis=1) > len(worst)):
                raise ValueError(f"an entry that {what} shifts more columns than the {len(worst)} stated")
            if np.any(shifts > worst[: shifts.shape[1]]):
                raise ValueError(f"an entry that {what} shifts a column by more than the {bound} stated")

    @property
    def width(self) -> int:
        return len(self.names)

    def node_changes(self, mutations: Mutations, bounds: Sequence[int]) -> Counts:
        """Σ f(new) - f(old) over each node (bounds[i], bounds[i+1]], Unix seconds: shape (nodes, w), in units."""
        states = mutations.histogram_changes(len(self.table) - 1, bounds)
        changes: Counts = states @ np.array(self.table, np.int64)
        return changes

    def shifts(self, nodes: int) -> dict[int, int]:
        """How many draws of one cadence an entry shifts by how much, if at most `nodes` of its nodes hold a mutation.

        In the first of them the entry was NULL as the node began.
        """
        found: dict[int, int] = {}
        for worst, times in ((self.appearing, min(nodes, 1)), (self.moving, max(nodes - 1, 0))):
            for shift in worst:
                if shift and times:
                    found[shift] = found.get(shift, 0) + times
        return found


def counting(answers: Sequence[str], chosen: Sequence[str], name: str, fixed: bool = False) -> LinearQuery:
    """How many entries hold one of the chosen answers; the others may come from the data, as they all count 0."""
    table = ((0,), *((int(answer in chosen),) for answer in answers))
    return LinearQuery((name,), table, (1,), (1,), fixed=fixed)


def histogram_query(answers: Sequence[str], shown: Sequence[str], fixed: bool = False) -> LinearQuery:
    """How many entries hold each of the shown answers: these must not come from the data.

    One entry appears in one column, and moves between two, so its move costs twice its appearance.
    """
    if len(set(shown)) != len(shown) or not shown:
        raise ValueError(f"the shown answers are distinct, and at least one, got {', '.join(shown) or 'none'}")
    table = ((0,) * len(shown), *(tuple(int(answer == one) for one in shown) for answer in answers))
    moving = (1,) if fixed or len(shown) == 1 else (1, 1)
    return LinearQuery(tuple(shown), table, (1,), moving, fixed=fixed)


def clipped_sum(
    values: Mapping[str, float],
    answers: Sequence[str],
    low: float,
    high: float,
    unit: Fraction = Fraction(1),
    name: str = "sum",
    fixed: bool = False,
) -> LinearQuery:
    """The sum of f over entries, f = values[answer] clipped to [low, high] and rounded to a multiple of `unit`.

    low, high, unit: public. Sensitivity max(high, 0) - min(low, 0), both rounded outwards to units; where answers
    are fixed, max(|low|, |high|). ValueError where low > high.
    """
    if not low <= high:
        raise ValueError(f"clipping needs low <= high, got [{low}, {high}]")
    lowest, highest = floor(Fraction(low) / unit), -floor(-Fraction(high) / unit)
    rounded = [round(Fraction(min(max(values[answer], low), high)) / unit) for answer in answers]
    largest = max(abs(lowest), abs(highest))
    moving = largest if fixed else max(highest, 0) - min(lowest, 0)
    return LinearQuery(((name),), ((0,), *((f,) for f in rounded)), (largest,), (moving,), unit, fixed)

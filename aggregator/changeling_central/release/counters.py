"""Counters of streams as methods of a release: one for each column of the query.

Guarantee: epsilon in all. A counter promises ε₁ for one item at one step; an entry that keeps to the constraint shifts
the columns by at most S items over all steps (`LinearQuery.shifts`), so ε₁ = epsilon / S (group privacy, and
composition over columns). The dynamic mechanism protects an entry's insertion and deletion at once, so an entry with
two mutations costs one ε₁ in each column that it touches. Neighbours: as for DCR. Source: each mechanism's own.
The pan-private counter keeps its promise about outputs; that of a seized memory it cannot keep here, where the
changelog lies beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import nan
from typing import Any

import numpy as np
from changeling_protocol import AtMost, Calendar, Constraint

from ..changes.dcr import NEIGHBOURS
from ..changes.hdcr import layer_bounds
from ..changes.linear_query import LinearQuery
from ..changes.release_graph import Level
from ..counters.binary import cum
from ..counters.infinite import InfiniteMechanism
from ..counters.pan_private import PanPrivateCounter
from ..dynamic.fully_dynamic import Protects, Update, fully_dynamic
from ..dynamic.insertion_deletion import insertion_minus_deletion
from ..mechanism import Guarantee
from ..node_noise import total
from ..noise import Noise
from ..static import BasicCounting
from .methods import PeriodChange

COUNTERS = ("counter", "pan-private", "infinite", "partitioning", "dynamic")


@dataclass(frozen=True, slots=True)
class CounterMethod:
    """One mechanism for every column. kind: of COUNTERS. each: ε₁, what a column's mechanism costs an item."""

    kind: str
    mechanism: Any
    each: Fraction
    width: int
    guarantee: Guarantee

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        items = _items(self.kind, query, calendar, constraint)
        return query.width == self.width and self.each * items <= self.guarantee.epsilon

    def named(self) -> dict[str, Any]:
        return {"kind": self.kind, "each": str(self.each), "width": self.width}

    def inputs(self, change: PeriodChange) -> list[Any]:
        """What each column's mechanism is given for a period."""
        return _INPUTS[self.kind](change)

    def start(self) -> dict[str, Any]:
        return {"period": 0, "columns": [self.mechanism.start().as_fields() for _ in range(self.width)]}

    def step(self, state: dict[str, Any], change: PeriodChange, noise: Noise) -> tuple[dict[str, Any], Level]:
        period, inputs = int(state["period"]) + 1, self.inputs(change)
        after, values = [], []
        for column, fields in enumerate(state["columns"]):
            stepped, answer = self.mechanism.step(self.mechanism.resumed(fields), inputs[column], noise)
            after.append(stepped.as_fields())
            values.append(float(answer))
        stated = self.mechanism.variance(period) if hasattr(self.mechanism, "variance") else None
        return {"period": period, "columns": after}, Level(np.array(values), nan if stated is None else float(stated))


def counter_method(
    kind: str, query: LinearQuery, calendar: Calendar, constraint: Constraint, epsilon: Fraction
) -> CounterMethod:
    """The method of this kind that costs an entry at most epsilon in all.

    ValueError for a kind that does not take the query or the constraint: partitioning and dynamic count entries (f is 0
    or 1) that mutate at most k times, dynamic at most twice.
    """
    if kind not in COUNTERS:
        raise ValueError(f"there is no counter {kind!r}: choose {', '.join(COUNTERS)}")
    T, one = calendar.periods, BasicCounting()
    each = epsilon / _items(kind, query, calendar, constraint)
    mechanism: Any
    match kind:
        case "counter":
            mechanism = cum(T, each)
        case "pan-private":
            mechanism = PanPrivateCounter(T, each)
        case "infinite":
            mechanism = InfiniteMechanism(one, each)
        case "partitioning":
            mechanism = insertion_minus_deletion(one, each, periods=T)
        case _:
            mechanism = fully_dynamic(one, each, periods=T, protects=Protects.ENTRY)
    guarantee = Guarantee(epsilon, Fraction(0), NEIGHBOURS, f"{mechanism.guarantee.source}, for entries")
    return CounterMethod(kind, mechanism, each, query.width, guarantee)


def _items(kind: str, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> Fraction:
    """How often ε₁ an entry costs."""
    if kind in ("partitioning", "dynamic"):
        return _gross_items(kind, query, constraint)
    return total(query.shifts(constraint.most_nodes(layer_bounds(calendar, 1))))


def _gross_items(kind: str, query: LinearQuery, constraint: Constraint) -> Fraction:
    """How much of ε₁ an entry costs where insertions and deletions are counted apart, several in a period included."""
    if not isinstance(constraint, AtMost):
        raise ValueError(f"{kind} needs entries that mutate at most k times: --at-most")
    if any(shift > 1 for shift in (*query.appearing, *query.moving)):  # of any answer, not of those that came
        raise ValueError(f"{kind} counts entries: no sums")
    if any(f < 0 for row in query.table for f in row):
        raise ValueError(f"{kind} counts entries: none less than once")
    if kind == "partitioning":
        return total(query.shifts(constraint.k))
    if constraint.k > 2:
        raise ValueError(f"dynamic needs entries that come once and go once: --at-most 2, got {constraint.k}")
    return Fraction(_columns_touched(query, constraint.k))


def _columns_touched(query: LinearQuery, k: int) -> int:
    """The most columns that an entry of one or two mutations changes: |A ∪ B| = (|A| + |B| + |A xor B|) / 2, A and B
    the columns that count its two answers."""
    one, between = sum(query.appearing), sum(query.moving)
    return one if k == 1 or query.fixed else one + between // 2


def _net(change: PeriodChange) -> list[Any]:
    return [int(value) for value in change.gained - change.lost]


def _both(change: PeriodChange) -> list[Any]:
    """Insertions and deletions of each column; a mutation that leaves a column as it is is neither."""
    table = np.array(change.query.table, np.int64)
    steps = table[change.mutations.new] - table[change.mutations.old]
    return [(int((column > 0).sum()), int((column < 0).sum())) for column in steps.T]


def _updates(change: PeriodChange) -> list[Any]:
    table = np.array(change.query.table, np.int64)
    steps = table[change.mutations.new] - table[change.mutations.old]
    names = change.changelog.entries
    found: list[Any] = []
    for column in steps.T:
        moved = np.flatnonzero(column)
        found.append(
            [Update(names[change.mutations.entry[at]], 0 if column[at] > 0 else None) for at in moved.tolist()]
        )
    return found


_INPUTS: dict[str, Callable[[PeriodChange], list[Any]]] = {
    "counter": _net,
    "pan-private": _net,
    "infinite": _net,
    "partitioning": _both,
    "dynamic": _updates,
}

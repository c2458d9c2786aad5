"""Counters of streams in a release: one for each column of the query.

Guarantee: epsilon in all. A counter promises ε₁ for one item at one step; an entry that keeps to the constraint shifts
the columns by at most S items over all steps (`LinearQuery.shifts`), so ε₁ = epsilon / S (group privacy, and
composition over columns). The dynamic mechanism protects an entry's insertion and deletion at once, so an entry with
two mutations costs one ε₁ in each column that it touches. Neighbours: as for DCR. Source: each mechanism's own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import nan
from typing import Any, Generic, TypeVar

import changeling_central
import numpy as np
from changeling_central import (
    NEIGHBOURS,
    Asked,
    BadState,
    Guarantee,
    Level,
    LinearQuery,
    Made,
    Mechanism,
    Noise,
    Offer,
    PeriodChange,
    ReleaseMechanism,
    State,
    read_state,
    total,
    written_state,
)
from changeling_protocol import MOST_PERIODS, AtMost, AtMostWithin, Calendar, Constraint

from .counters import InfiniteMechanism, cum
from .dynamic import FullyDynamic, Protects, Update, fully_dynamic, least_variance
from .hierarchy import DCR, HDCR, layer_bounds
from .partitioning import insertion_minus_deletion
from .static import BasicCounting

Input = TypeVar("Input")


@dataclass(frozen=True, slots=True)
class Counter(Generic[State, Input]):
    """A counter as it serves a release.

    name: as it is offered. made: the counter of one column, from the number of periods and ε₁. items: how many times
    ε₁ an entry costs over all columns; ValueError for a query or a constraint that the counter does not take. inputs:
    what each column's counter is given for a period.
    """

    name: str
    made: Callable[[int, Fraction], Mechanism[State, Input, int]]
    items: Callable[[LinearQuery, Calendar, Constraint], Fraction]
    inputs: Callable[[PeriodChange], list[Input]]

    def release(self, asked: Asked) -> "CounterRelease[State, Input]":
        """The release that costs an entry at most epsilon in all."""
        each = asked.epsilon / self.items(asked.query, asked.calendar, asked.constraint)
        return CounterRelease(self, self.made(asked.calendar.periods, each), each, asked.query.width, asked.epsilon)


@dataclass(frozen=True, slots=True)
class CounterState(Generic[State]):
    """period: how many have been taken in. columns: the state of each column's counter."""

    period: int
    columns: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class SavedColumns:
    """A release's state as it is saved: each column's as bytes."""

    period: int
    columns: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CounterRelease(ReleaseMechanism[CounterState[State]], Generic[State, Input]):
    """One `mechanism` for every column. each: ε₁, what a column's costs an item. width: how many columns there are."""

    counter: Counter[State, Input]
    mechanism: Mechanism[State, Input, int]
    each: Fraction
    width: int
    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all columns and periods together, for an entry that keeps to the constraint."""
        return Guarantee(self.epsilon, Fraction(0), NEIGHBOURS, f"{self.mechanism.guarantee.source}, for entries")

    def made_with(self) -> Made:
        """The counter, ε₁ and the number of columns."""
        return {"kind": self.counter.name, "each": str(self.each), "width": self.width}

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """True if an entry that keeps to the constraint costs at most epsilon at this ε₁."""
        items = self.counter.items(query, calendar, constraint)
        return query.width == self.width and self.each * items <= self.epsilon

    def start(self) -> CounterState[State]:
        """Before the first period, each column's counter at its start."""
        return CounterState(0, tuple(self.mechanism.start() for _ in range(self.width)))

    def step(self, state: CounterState[State], value: PeriodChange, noise: Noise) -> tuple[CounterState[State], Level]:
        """value: one more period. Returns what the columns' counters say at its end."""
        inputs = self.counter.inputs(value)
        steps = [self.mechanism.step(column, taken, noise) for column, taken in zip(state.columns, inputs, strict=True)]
        after = CounterState(state.period + 1, tuple(column for column, _ in steps))
        variance = self.variance(after.period)
        values = np.array([float(answer) for _, answer in steps])
        return after, Level(values, nan if variance is None else variance)

    def check(self, state: CounterState[State]) -> None:
        """Raises BadState for another number of columns, or for a column that is not its counter's."""
        if not 0 <= state.period <= MOST_PERIODS or len(state.columns) != self.width:
            raise BadState(f"the state is of {state.period} periods and {len(state.columns)} columns, not {self.width}")
        for column in state.columns:
            self.mechanism.check(column)

    def variance(self, step: int) -> float | None:
        """Variance of each column, in units squared; None where the counter states none."""
        return self.mechanism.variance(step)

    def expected_variance(self, step: int, updates: float) -> float | None:
        """As `variance`; of a dynamic count as if a segment ended whenever its updates reach the threshold."""
        if isinstance(self.mechanism, FullyDynamic):
            threshold = self.mechanism.partitioning.threshold(1, step)
            return least_variance(self.mechanism, min(step, round(updates / threshold)))
        return self.variance(step)

    def saved(self, state: CounterState[State]) -> bytes:
        """The state as bytes, each column's as its counter saves it."""
        columns = tuple(self.mechanism.saved(column) for column in state.columns)
        return written_state(self.identity(), SavedColumns(state.period, columns))

    def resumed(self, saved: bytes) -> CounterState[State]:
        """The state that `saved` wrote. Raises BadState for any other."""
        plain = read_state(saved, self.identity(), SavedColumns)
        state = CounterState(plain.period, tuple(self.mechanism.resumed(column) for column in plain.columns))
        self.check(state)
        return state


def _net_items(query: LinearQuery, calendar: Calendar, constraint: Constraint) -> Fraction:
    """Items of a counter that is given each period's net change."""
    return total(query.shifts(constraint.most_nodes(layer_bounds(calendar, 1))))


def _both_items(query: LinearQuery, calendar: Calendar, constraint: Constraint) -> Fraction:  # noqa: ARG001
    """Items where insertions and deletions are counted apart, several in a period included."""
    return total(query.shifts(_most_mutations("partitioning", query, constraint)))


def _entry_items(query: LinearQuery, calendar: Calendar, constraint: Constraint) -> Fraction:  # noqa: ARG001
    """Items where an entry is protected as a whole: the most columns that it changes by one or two mutations.

    |A ∪ B| = (|A| + |B| + |A xor B|) / 2, A and B the columns that count its two answers.
    """
    k = _most_mutations("dynamic", query, constraint)
    if k > 2:
        raise ValueError(f"dynamic needs entries that come once and go once: --at-most 2, got {k}")
    appearing, moving = sum(query.appearing), sum(query.moving)
    return Fraction(appearing if k == 1 or query.fixed else appearing + moving // 2)


def _most_mutations(name: str, query: LinearQuery, constraint: Constraint) -> int:
    """k, for a counter that needs at-most-k entries and columns that count entries."""
    if not isinstance(constraint, AtMost | AtMostWithin):
        raise ValueError(f"{name} needs entries that mutate at most k times: --at-most")
    if any(shift > 1 for shift in (*query.appearing, *query.moving)):  # of any answer, not of those that came
        raise ValueError(f"{name} counts entries: no sums")
    if any(f < 0 for row in query.table for f in row):
        raise ValueError(f"{name} counts entries: none less than once")
    return constraint.k


def _net(change: PeriodChange) -> list[int]:
    return [int(value) for value in change.net]


def _both(change: PeriodChange) -> list[tuple[int, int]]:
    """Insertions and deletions of each column; a mutation that leaves a column as it is is neither."""
    return [(int((column > 0).sum()), int((column < 0).sum())) for column in change.moves.T]


def _updates(change: PeriodChange) -> list[Sequence[Update]]:
    """The insertions and deletions of each column, in their order, by the names of their entries."""
    names, entries = change.changelog.entries, change.mutations.entry
    return [
        [Update(names[entries[at]], 0 if column[at] > 0 else None) for at in np.flatnonzero(column).tolist()]
        for column in change.moves.T
    ]


COUNTER = Offer(
    "counter",
    "The binary counter, over a calendar of known length.",
    Counter("counter", cum, _net_items, _net).release,
)
INFINITE = Offer(
    "infinite",
    "A counter that does not need to know when the calendar ends.",
    Counter("infinite", lambda _, each: InfiniteMechanism(BasicCounting(), each), _net_items, _net).release,
    good_for="a count that nobody can say the end of",
)
PARTITIONING = Offer(
    "partitioning",
    "Insertions less deletions, released when enough came: few mutations.",
    Counter(
        "partitioning",
        lambda periods, each: insertion_minus_deletion(BasicCounting(), each, periods=periods),
        _both_items,
        _both,
    ).release,
    good_for="mutations that are rare over a very long time",
)
DYNAMIC = Offer(
    "dynamic",
    "Its error follows how many are there, not how many came: --at-most 2.",
    Counter(
        "dynamic",
        lambda periods, each: fully_dynamic(BasicCounting(), each, periods=periods, protects=Protects.ENTRY),
        _entry_items,
        _updates,
    ).release,
    good_for="many queries at once of a database that far more entries came to and left than it holds, and never for "
    "a plain count",
)


def register() -> None:
    """Offer the hierarchies and the counters to `changeling release`."""
    offers: tuple[Offer[Any], ...] = (HDCR, DCR, COUNTER, INFINITE, PARTITIONING, DYNAMIC)
    for offer in offers:
        changeling_central.register(offer)

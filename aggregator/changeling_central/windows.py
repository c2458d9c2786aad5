"""Changes over nodes of the calendar, each released directly as it ends: sliding windows (SWCR), good for short ones.

A window is (t - W, t], one every P. The layers of a hierarchy are nodes as well (`changeling_papers.hierarchy`).

Guarantee: (epsilon, delta) for all windows together. A mutation lies in at most ⌈W/P⌉ of them, so an at-most-k entry
reaches k⌈W/P⌉, the ⌈W/P⌉ that hold its insertion at the cost of an appearance; a B-time-bounded one ⌈(B+W)/P⌉.
Neighbours: changelogs of which one lacks an entry of the other, with all its mutations; the entry keeps to the
constraint. The state holds true changes. Source: Pan 2023, theorems 4.5 and 4.6.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Generic

import numpy as np
from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint, Hybrid, Node, TimeBounded
from changeling_statistics import Counts

from .errors import BadState
from .files import over_window
from .linear_query import LinearQuery
from .mechanism import (
    NEIGHBOURS,
    Change,
    Guarantee,
    Level,
    Made,
    Mechanism,
    NodeRelease,
    PeriodChange,
    ReleaseMechanism,
    State,
    check_counts,
    check_left,
    checked_change,
)
from .noise import JointShifts, Law, NodeNoise, Noise, calibrated
from .noise import total as total_shift


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `length` seconds, one every `every` seconds, `count` of them, the first beginning at `start`."""

    start: int
    length: int
    every: int
    count: int

    def __post_init__(self) -> None:
        if self.start < 0 or min(self.length, self.every, self.count) < 1:
            raise ValueError(f"windows have a start >= 0 and a length, an interval and a number >= 1, got {self}")

    @property
    def calendar(self) -> Calendar:
        """Periods of ΔT = gcd(W, P), of which every window is made."""
        step = gcd(self.length, self.every)
        return Calendar(self.start, step, (self.length + (self.count - 1) * self.every) // step)

    @property
    def periods(self) -> int:
        """How many periods a window has."""
        return self.length // gcd(self.length, self.every)

    @property
    def stride(self) -> int:
        """How many periods lie between two windows' ends."""
        return self.every // gcd(self.length, self.every)

    def reached(self, constraint: Constraint) -> int:
        """The most windows that the mutations of one entry lie in."""
        match constraint:
            case AtMost(k):
                most = k * -(-self.length // self.every)
            case TimeBounded(seconds):
                most = -(-(seconds + self.length) // self.every)
            case AtMostWithin(k, seconds):
                most = min(self.reached(AtMost(k)), self.reached(TimeBounded(seconds)))
            case Hybrid(classes):
                most = max(self.reached(each_class) for each_class in classes)
            case _:
                raise TypeError(f"no count of windows for a {type(constraint).__name__}")
        return min(most, self.count)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSums:
    """period: how many have been taken in. sums: the true changes of the nodes that are open, (slots, w)."""

    period: int
    sums: Counts


@dataclass(frozen=True, slots=True)
class NodeChanges(Mechanism[NodeSums, Change, tuple[NodeRelease, ...]]):
    """Noisy changes over nodes, each released as it ends: windows, or layers of a hierarchy. Nothing is added up.

    layers: how many periods a node has and after how many the next one begins, of each layer; the first begins with the
    calendar. noise: of every node. epsilon, delta: what this costs an entry over all nodes. source: where it is proved.
    """

    neighbours = NEIGHBOURS
    query: LinearQuery
    calendar: Calendar
    layers: tuple[tuple[int, int], ...]
    noise: NodeNoise
    source: str
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the layers' nodes, in periods."""
        return tuple(width for width, _ in self.layers)

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of each column of every node's change, in units squared."""
        return self.noise.variance

    @property
    def _slots(self) -> tuple[int, ...]:
        """How many nodes of each layer are open at once, at most."""
        return tuple(-(-width // every) for width, every in self.layers)

    def start(self) -> NodeSums:
        """Before the first period; every node is empty."""
        return NodeSums(0, np.zeros((sum(self._slots), self.query.width), np.int64))

    def step(self, state: NodeSums, value: Change, noise: Noise) -> tuple[NodeSums, tuple[NodeRelease, ...]]:
        """One more period. Returns the nodes that end with it.

        Raises BudgetExhausted after the calendar's last period, ValueError for a change that is not of the query,
        and BadState for a state of other nodes.
        """
        width, change = self.query.width, checked_change(value, self.query.width)
        check_counts(state.sums, (sum(self._slots), width))
        check_left(state.period, self.calendar.periods, "periods")
        sums, period, before, ends = state.sums.copy(), state.period + 1, 0, dict[int, int]()
        for (length, every), slots in zip(self.layers, self._slots, strict=True):
            first, last = max(0, -(-(period - length) // every)), (period - 1) // every
            sums[before + np.arange(first, last + 1) % slots] += change
            if period >= length and (period - length) % every == 0:
                ends[before + first % slots] = length
            before += slots
        if not ends:
            return NodeSums(period, sums), ()
        noisy = sums[[*ends]] + self.noise.draw(noise, len(ends) * width).reshape(-1, width)
        sums[[*ends]] = 0
        released = zip(ends.values(), noisy, strict=True)
        nodes = [NodeRelease(Node(period - length, period), values, self.noise.variance) for length, values in released]
        return NodeSums(period, sums), tuple(nodes)

    def check(self, state: NodeSums) -> None:
        """Raises BadState for more periods than the calendar has, or for other nodes or columns."""
        if not 0 <= state.period <= self.calendar.periods:
            raise BadState(f"the state is of {state.period} periods, and the calendar has {self.calendar.periods}")
        check_counts(state.sums, (sum(self._slots), self.query.width))


def sliding_windows(
    query: LinearQuery,
    windows: Windows,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    law: Law = Law.LAPLACE,
) -> NodeChanges:
    """The direct SWCR that costs an entry at most (epsilon, delta) in all, of whichever class of the constraint it is.

    law: of the noise; Gaussian noise needs a delta above 0 (ValueError).
    """
    classes = constraint.classes if isinstance(constraint, Hybrid) else (constraint,)
    each = [calibrated(window_shifts(query, windows, each_class), epsilon, delta, law) for each_class in classes]
    drawn = max(each, key=lambda noise: noise.scale)
    layers = ((windows.periods, windows.stride),)
    return NodeChanges(query, windows.calendar, layers, drawn, "Pan 2023, theorems 4.5 and 4.6", epsilon, delta)


def window_shifts(query: LinearQuery, windows: Windows, constraint: Constraint) -> JointShifts:
    """How many draws one entry shifts by how much over all windows.

    The windows with its insertion begin before it, so they see an appearance; that is counted for at-most-k alone,
    where each mutation's windows are counted apart. Of a hybrid constraint: the class that costs most at pure epsilon,
    and at pure epsilon alone, as fewer and larger shifts may cost more with a delta.
    """
    if isinstance(constraint, Hybrid):
        return max((window_shifts(query, windows, each_class) for each_class in constraint.classes), key=total_shift)
    reached, appearing = windows.reached(constraint), 0
    if isinstance(constraint, AtMost):
        each = -(-windows.length // windows.every)
        appearing = min(each, max(0, windows.count - (constraint.k - 1) * each))
    return query.shifts_of(appearing, reached - appearing)


@dataclass(frozen=True, slots=True)
class ReleaseOfNodes(ReleaseMechanism[State], Generic[State]):
    """A release that is read off the noisy changes over nodes of `mechanism`."""

    mechanism: NodeChanges

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the nodes."""
        return self.mechanism.guarantee

    @property
    def law(self) -> Law:
        """The noise of the nodes."""
        return self.mechanism.noise.law

    @property
    @abstractmethod
    def shape(self) -> Made:
        """What kind of nodes there are, and how wide they are, in periods."""

    def made_with(self) -> Made:
        """The nodes, and their noise to the last bit."""
        return {**self.shape, "law": str(self.law), "scale": self.mechanism.noise.scale.hex()}

    @abstractmethod
    def enough_for(self, constraint: Constraint) -> bool:
        """True if an entry that keeps to the constraint costs at most (epsilon, delta) under this noise."""

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """As of any release."""
        return (self.mechanism.query, self.mechanism.calendar) == (query, calendar) and self.enough_for(constraint)


@dataclass(frozen=True, slots=True)
class WindowRelease(ReleaseOfNodes[NodeSums]):
    """The windows of `mechanism`, one that ends with every period."""

    @property
    def shows(self) -> str:
        """The ending that says that changes are published."""
        return over_window(self.mechanism.widths[0])

    @property
    def shape(self) -> Made:
        """How many periods a window has."""
        return {"kind": "windows", "window": self.mechanism.widths[0]}

    def enough_for(self, constraint: Constraint) -> bool:
        """By the noise that is calibrated for this constraint."""
        m = self.mechanism
        windows = windows_of(m.calendar, m.widths[0])
        enough = sliding_windows(m.query, windows, constraint, m.epsilon, m.delta, m.noise.law)
        return enough.noise.scale <= m.noise.scale

    def start(self) -> NodeSums:
        """Before the first period."""
        return self.mechanism.start()

    def step(self, state: NodeSums, value: PeriodChange, noise: Noise) -> tuple[NodeSums, Level]:
        """value: one more period. Returns the change over the window that ends with it, no values where none does."""
        after, windows = self.mechanism.step(state, value, noise)
        if not windows:
            return after, Level(np.zeros(0), float("nan"))
        return after, Level(windows[0].values.astype(np.float64), windows[0].variance)

    def check(self, state: NodeSums) -> None:
        """Checks the state, as the windows do."""
        self.mechanism.check(state)

    def variance(self, step: int) -> float:
        """Variance of each window's change, in units squared."""
        return self.mechanism.variance(step)


def windows_of(calendar: Calendar, periods: int) -> Windows:
    """The windows of so many periods, one that ends with every period of the calendar. ValueError for none."""
    if not 1 <= periods <= calendar.periods:
        raise ValueError(f"a window has 1 to {calendar.periods} periods, the calendar's, got {periods}")
    return Windows(calendar.start, periods * calendar.period, calendar.period, calendar.periods - periods + 1)

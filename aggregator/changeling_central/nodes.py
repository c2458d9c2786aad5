"""Noisy changes of a query over nodes of the calendar, and the best estimates that follow from them.

    Hdcr    hierarchies of widths W, cW, c²W, …, of one layer a disjoint continual release (DCR)
    Swcr    sliding windows (t - W, t], one every P

Guarantee: (epsilon, delta) for all nodes together, composed from the nodes that an entry reaches: κ_i = min(k, nodes)
of layer i for at-most-k entries, so at most hk, and κ_i = MostSpan(ends of layer i, B) for B-time-bounded ones; the
first costs an appearance, the others a move. The paper's Σ((1/cⁱ)⌈B/W⌉ + 1) is too small (B = W, c = 2: 1.5 at layer 1,
where 2 nodes are reached). A mutation lies in at most ⌈W/P⌉ windows, so an at-most-k entry reaches k⌈W/P⌉, the ⌈W/P⌉
that hold its insertion at the cost of an appearance; a B-time-bounded one ⌈(B+W)/P⌉. Neighbours: changelogs of which
one lacks an entry of the other, with all its mutations; the entry keeps to the constraint. An entry that is in both and
mutates otherwise is told apart by up to twice as much. Source: Pan 2023, theorems 4.1 to 4.6; Chan, Shi, Song 2011;
Dwork, Naor, Pitassi, Rothblum 2010.

A node (s, e] of noise variance σ² is a resistor σ² between s and e; the variance of the best estimate at t is the
effective resistance between 0 and t (docs/mathematics.md, "Central releases"). Estimates are post-processing and cost
nothing. States hold true sums of what is open, so keep them where the changelog is kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import ClassVar, Generic

import numpy as np
from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint, Hybrid, Node, TimeBounded, cover
from changeling_statistics import ClosingEdges, Counts, Floats, Frontier, Indices, Network, advance

from .errors import BadState, BudgetExhausted
from .linear_query import LinearQuery
from .mechanism import (
    NEIGHBOURS,
    Guarantee,
    Level,
    Mechanism,
    NodeRelease,
    Result,
    State,
    check_counts,
    checked_change,
)
from .noise import JointShifts, Law, NodeNoise, Noise, added, calibrated
from .noise import total as total_shift


class _OfNodes(Mechanism[State, Counts, Result], Generic[State, Result]):
    """A mechanism that draws the same noise for every node, so that all of them together cost (epsilon, delta)."""

    __slots__ = ()
    source: ClassVar[str]
    noise: NodeNoise
    epsilon: Fraction
    delta: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for all nodes together."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, self.source)

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of each column of every node's change, in units squared."""
        return self.noise.variance


@dataclass(frozen=True, slots=True, eq=False)
class HdcrState:
    """period: how many have been taken in. sums: true changes since each layer's last node ended, (layers, w)."""

    period: int
    sums: Counts


@dataclass(frozen=True, slots=True)
class Hdcr(_OfNodes[HdcrState, tuple[NodeRelease, ...]]):
    """Made by `hierarchy`. widths: of the layers' nodes, in periods, each dividing the next.

    noise: of every node. epsilon, delta: what this noise costs an entry over all layers. Only whole nodes are released.
    """

    source = "Pan 2023, theorem 4.3, mended"
    query: LinearQuery
    calendar: Calendar
    widths: tuple[int, ...]
    noise: NodeNoise
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def start(self) -> HdcrState:
        """Before the first period; every layer's open node is empty."""
        return HdcrState(0, np.zeros((len(self.widths), self.query.width), np.int64))

    def step(self, state: HdcrState, value: Counts, noise: Noise) -> tuple[HdcrState, tuple[NodeRelease, ...]]:
        """value: the true change over the next period, shape (w,), in units. Returns the nodes that end with it.

        Raises BudgetExhausted after the calendar's last period, ValueError for a change that is not of the query,
        and BadState for a state of another hierarchy.
        """
        width = self.query.width
        check_counts(state.sums, (len(self.widths), width))
        if state.period >= self.calendar.periods:
            raise BudgetExhausted(f"the guarantee covers {self.calendar.periods} periods, and all of them are released")
        sums, period = state.sums + checked_change(value, width), state.period + 1
        closing = [layer for layer, w in enumerate(self.widths) if period % w == 0]
        noisy = sums[closing] + self.noise.draw(noise, len(closing) * width).reshape(-1, width)
        nodes = tuple(
            NodeRelease(Node(period - self.widths[layer], period), values, self.noise.variance)
            for layer, values in zip(closing, noisy, strict=True)
        )
        sums[closing] = 0
        return HdcrState(period, sums), nodes

    def check(self, state: HdcrState) -> None:
        """Raises BadState for more periods than the calendar has, or for other layers or columns."""
        if not 0 <= state.period <= self.calendar.periods:
            raise BadState(f"the state is of {state.period} periods, and the calendar has {self.calendar.periods}")
        check_counts(state.sums, (len(self.widths), self.query.width))


def hierarchy(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    shape: tuple[int, int] = (2, 1),
    law: Law = Law.LAPLACE,
) -> Hdcr:
    """The HDCR that costs an entry which keeps to the constraint at most (epsilon, delta) in all.

    calendar: its periods are the nodes of the first layer. shape: how many nodes of a layer make one of the next, 2 or
    more, and how many layers there are. law: of the noise, equal on every node.
    ValueError where a layer would be wider than the calendar.
    """
    widths = layer_widths(*shape)
    if widths[-1] > calendar.periods:
        raise ValueError(
            f"the widest of {len(widths)} layers has {widths[-1]} periods, of {calendar.periods}: fewer layers"
        )
    drawn = calibrated(hierarchy_shifts(query, calendar, constraint, widths), epsilon, delta, law)
    return Hdcr(query, calendar, widths, drawn, epsilon, delta)


def hierarchy_shifts(
    query: LinearQuery, calendar: Calendar, constraint: Constraint, widths: Sequence[int]
) -> dict[int, int]:
    """How many draws one entry shifts by how much over all layers: κ nodes of each, added up."""
    return added(query.shifts(constraint.most_nodes(layer_bounds(calendar, width))) for width in widths)


def layer_bounds(calendar: Calendar, width: int) -> list[int]:
    """The times that bound the whole nodes of a layer, Unix seconds."""
    return [calendar.start + period * calendar.period for period in range(0, calendar.periods + 1, width)]


def layer_widths(branching: int, layers: int) -> tuple[int, ...]:
    """1, c, c², …, as many as there are layers."""
    if branching < 2 or layers < 1:
        raise ValueError(f"a hierarchy has branching >= 2 and layers >= 1, got {branching} and {layers}")
    return tuple(branching**layer for layer in range(layers))


TIMES_AT_ONCE = 128
"""Times whose weights are held in memory together."""
BRANCHINGS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True)
class HierarchyChoice:
    """A hierarchy's shape. mean_variance: of the online estimate over the calendar, in the query's units squared."""

    branching: int
    layers: int
    mean_variance: float


def best_hierarchy(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    law: Law = Law.LAPLACE,
    shape: tuple[int | None, int | None] = (None, None),
) -> HierarchyChoice:
    """The hierarchy of the least mean variance, of those with a branching in BRANCHINGS, a single cadence included.

    Arguments as of `hierarchy`; with a branching or layers given, the best of those that have them.
    ValueError where none fits the calendar.
    """
    branching, layers = shape
    layer_widths(2 if branching is None else branching, 1 if layers is None else min(layers, 1))
    if layers is not None and layers > calendar.periods.bit_length():
        raise ValueError(f"{layers} layers are too many for {calendar.periods} periods")
    choices, variances = [], {}
    for c in BRANCHINGS if branching is None else (branching,):
        for h in range(1, calendar.periods.bit_length() + 1) if layers is None else (layers,):
            widths = layer_widths(c, h)
            if widths[-1] > calendar.periods:
                break
            shifts = hierarchy_shifts(query, calendar, constraint, widths)
            key = tuple(sorted(shifts.items()))
            if key not in variances:
                variances[key] = calibrated(shifts, epsilon, delta, law).variance
            mean = float(online_variance(c, h, calendar.periods).mean()) * variances[key]
            choices.append(HierarchyChoice(c, h, mean))
    if not choices:
        raise ValueError(f"{layers} layers with a branching of {branching} are wider than {calendar.periods} periods")
    return min(choices, key=lambda choice: choice.mean_variance)


@dataclass(frozen=True, slots=True)
class BestEstimates:
    """Online estimates, one period after another, from the nodes of the widths that have closed."""

    periods: int
    widths: tuple[int, ...]
    columns: int

    def start(self) -> Frontier:
        """Before the first period, where the query is 0."""
        return Frontier.before(self.columns)

    def step(self, frontier: Frontier, nodes: Sequence[NodeRelease]) -> tuple[Frontier, Level]:
        """One more period: the query at its end."""
        closing = ClosingEdges(
            np.array([release.node.start for release in nodes], np.intp),
            np.array([release.variance for release in nodes]),
            np.array([release.values for release in nodes], np.float64).reshape(len(nodes), self.columns),
        )
        after, online = advance(frontier, closing, _last_uses(self.periods, self.widths))
        if online is None:
            raise ValueError(f"no node ends at period {after.period}: a hierarchy's first layer has width 1")
        return after, Level(online.values.copy(), online.planned)


def cover_sum(nodes: Iterable[NodeRelease], start: int, end: int, widths: Sequence[int]) -> Level:
    """The change over (start, end] as the sum over the fewest nodes that cover it.

    nodes: those released. start, end: in periods. widths: of the layers, in periods. KeyError where a node is missing.
    """
    by_node = {release.node: release for release in nodes}
    used = [by_node[node] for node in cover(Node(start, end), widths)]
    return Level(
        np.sum([release.values for release in used], axis=0, dtype=np.float64),
        float(sum(release.variance for release in used)),
    )


def retrospective(nodes: Sequence[NodeRelease], periods: int, window: int | None = None) -> tuple[Floats, Floats]:
    """The best estimates of the query at the times 0 to `periods` from all nodes, also those that closed later.

    window: in periods; with one, of the query's change over the window that ends at each time, nan where none does.
    Returns the values, shape (periods + 1, w), in units, and their variances, shape (periods + 1,), in units squared.
    """
    network = Network(
        periods,
        np.array([release.node.start for release in nodes], np.intp),
        np.array([release.node.end for release in nodes], np.intp),
        np.array([release.variance for release in nodes]),
    )
    values = network.fit(np.array([release.values for release in nodes], np.float64))
    variances = np.zeros(periods + 1)
    if window is not None:
        values = np.concatenate(
            [np.full((min(window, len(values)), values.shape[1]), np.nan), values[window:] - values[:-window]]
        )
        variances[:window] = np.nan
    for first in range(window or 1, periods + 1, TIMES_AT_ONCE):
        times = np.arange(first, min(first + TIMES_AT_ONCE, periods + 1))
        sources = np.zeros((periods + 1, len(times)))
        sources[times, np.arange(len(times))] = 1.0
        sources[0 if window is None else times - window, np.arange(len(times))] -= 1.0
        variances[times] = network.rows(sources) ** 2 @ network.variance
    return values, variances


def online_variance(branching: int, layers: int, periods: int) -> Floats:
    """The variance of the best online estimate at t = 1..periods, in variances of one node; shape (periods,)."""
    return online_variances(branching, layers, np.arange(1, periods + 1))


def online_variances(branching: int, layers: int, t: Indices) -> Floats:
    """The same at the ends of these periods.

        Σ_i d_i(t) v_i,   v_0 = 1,  v_i = c·v_{i-1} / (c·v_{i-1} + 1)

    d_i: the digits of t to base c, the last being all that is left. What has closed by t is a forest of whole
    trees, one for each node of the cover of (0, t], and a tree of c trees beside its root is two resistors in parallel.
    """
    variance, v = np.zeros(len(t)), 1.0
    for layer in range(layers):
        digit = t % branching if layer < layers - 1 else t
        variance += digit * v
        v = branching * v / (branching * v + 1)
        t = t // branching
    return variance


@lru_cache(maxsize=16)
def _last_uses(periods: int, widths: tuple[int, ...]) -> Indices:
    last = np.zeros(periods + 1, np.intp)
    for width in widths:
        starts = np.arange(0, periods - width + 1, width)
        last[starts] = np.maximum(last[starts], starts + width)
    return last


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

    def ends_at(self, period: int) -> bool:
        """Whether a window ends with this period. period: from 1 on."""
        return period >= self.periods and (period - self.periods) % self.stride == 0

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
class SwcrState:
    """period: how many have been taken in. recent: true changes of the last window's periods, (periods, w)."""

    period: int
    recent: Counts


@dataclass(frozen=True, slots=True)
class Swcr(_OfNodes[SwcrState, NodeRelease | None]):
    """Made by `sliding_windows`. Every window is one release; nothing is added up from others.

    noise: of every window. epsilon, delta: what this noise costs an entry over all windows.
    """

    source = "Pan 2023, theorems 4.5 and 4.6"
    query: LinearQuery
    windows: Windows
    noise: NodeNoise
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def start(self) -> SwcrState:
        """Before the first period."""
        return SwcrState(0, np.zeros((self.windows.periods, self.query.width), np.int64))

    def step(self, state: SwcrState, value: Counts, noise: Noise) -> tuple[SwcrState, NodeRelease | None]:
        """value: the true change over the next period, shape (w,), in units. The window that ends with it, if one does.

        Raises BudgetExhausted after the last window, ValueError and BadState as for a hierarchy.
        """
        check_counts(state.recent, (self.windows.periods, self.query.width))
        if state.period >= self.windows.calendar.periods:
            raise BudgetExhausted(f"the guarantee covers {self.windows.count} windows, and all of them are released")
        change, period = checked_change(value, self.query.width), state.period + 1
        after = SwcrState(period, np.concatenate([state.recent[1:], change[None]]))
        if not self.windows.ends_at(period):
            return after, None
        noisy = after.recent.sum(0) + self.noise.draw(noise, self.query.width)
        return after, NodeRelease(Node(period - self.windows.periods, period), noisy, self.noise.variance)

    def check(self, state: SwcrState) -> None:
        """Raises BadState for more periods than the windows have, or for other windows or columns."""
        if not 0 <= state.period <= self.windows.calendar.periods:
            raise BadState(f"the state is of {state.period} periods, not of 0 to {self.windows.calendar.periods}")
        check_counts(state.recent, (self.windows.periods, self.query.width))


def sliding_windows(
    query: LinearQuery,
    windows: Windows,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    law: Law = Law.LAPLACE,
) -> Swcr:
    """The direct SWCR that costs an entry at most (epsilon, delta) in all, of whichever class of the constraint it is.

    law: of the noise; Gaussian noise needs a delta above 0 (ValueError).
    """
    classes = constraint.classes if isinstance(constraint, Hybrid) else (constraint,)
    each = [calibrated(window_shifts(query, windows, each_class), epsilon, delta, law) for each_class in classes]
    drawn = max(each, key=lambda noise: noise.scale)
    return Swcr(query, windows, drawn, epsilon, delta)


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

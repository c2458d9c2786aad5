"""Fresh levels: each with noise of its own, and one draw that all have in common; and changes over windows.

Guarantee: epsilon, (epsilon, delta) or rho-zCDP for all periods together, whatever an entry does: no bound on mutations
is needed. Neighbours: as for DCR. An entry that is counted or not moves a level by 0 or 1. With one draw v in common,
the levels v + z_t of "counted" are told apart from those of "nobody" as if v moved by 1/2 and each z_t by 1/2 to one
side or the other, which costs half as much, a quarter in squares: over T periods the mean squared error of a count is

    (1 + T^(2/3))³ / 2ε² in place of 2 T²/ε²         ((1 + √T)/2)² / 2ρ in place of T / 2ρ

(docs/mathematics.md, "Central releases"). Where the centre is of no use, as at a pure epsilon for entries that go from
one column of a histogram to another, nothing is drawn in common.

Gaussian noise is drawn on a lattice of 2^-bits units, as for the square root; a level is the true one and whole lattice
steps. The state holds the true level and the common draw, so keep it where the changelog is kept. Source: Dwork,
McSherry, Nissim, Smith 2006, level by level; matrix mechanisms: Li, Hay, Rastogi, Miklau, McGregor 2010.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd, ldexp, sqrt
from typing import Generic

import numpy as np
from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint, Hybrid, Node, TimeBounded
from changeling_statistics import Counts, Floats

from .errors import BadState
from .files import over_window
from .linear_query import LinearQuery
from .mechanism import (
    NEIGHBOURS,
    Change,
    Guarantee,
    Level,
    LevelMechanism,
    LevelState,
    Made,
    Mechanism,
    NodeRelease,
    PeriodChange,
    ReleaseMechanism,
    State,
    check_counted,
    check_counts,
    check_left,
    checked_change,
)
from .noise import ABOVE, JointShifts, Law, NodeNoise, Noise, calibrated, float_above
from .square_root import lattice_bits


@dataclass(frozen=True, slots=True, eq=False)
class FreshState(LevelState):
    """common: the draw of all levels, on the lattice."""

    common: Counts


@dataclass(frozen=True, slots=True)
class FreshLevels(LevelMechanism[FreshState]):
    """Made by `laplace_levels` or `gaussian_levels`.

    own, common: the scales of a level's own draw and of the common one, which is 0 where there is none, on the lattice
    of 2^-bits units.
    """

    kind = "fresh"
    source = "Dwork, McSherry, Nissim, Smith 2006, level by level; Li, Hay, Rastogi, Miklau, McGregor 2010"
    query: LinearQuery
    calendar: Calendar
    law: Law = field()
    bits: int
    own: float
    common: float
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    @property
    def noise_in_words(self) -> str:
        """The law, and the scales in the query's units."""
        common = f", and {ldexp(self.common, -self.bits):.6g} once for all of them" if self.common else ""
        return f"fresh; law {self.law}, scale {ldexp(self.own, -self.bits):.6g} a level{common}"

    def costs_at_most(self, length: float, constraint: Constraint) -> bool:  # noqa: ARG002
        """Check that no entry, whatever it does, costs more than epsilon, or moves the levels by more than `length`."""
        if self.law is Law.GAUSSIAN:
            ratio = self.common / self.own
            return _lattice_shift(self.query, self.calendar.periods, ratio, self.bits) <= length * self.own
        plain, centred = _sizes(self.query)
        if not self.common:
            return plain * self.calendar.periods <= self.epsilon * Fraction(self.own)
        own, common = Fraction(self.own), Fraction(self.common)
        return centred is not None and centred * (self.calendar.periods / own + 1 / common) <= self.epsilon

    def start(self) -> FreshState:
        """Before the first period; nothing is drawn."""
        nothing = np.zeros(self.query.width, np.int64)
        return FreshState(0, nothing, nothing)

    def moved(self, state: FreshState, level: Counts, noise: Noise) -> tuple[FreshState, Counts]:
        """The first period draws what all have in common."""
        common, width = state.common, self.query.width
        if self.common and state.period == 0:
            common = NodeNoise(self.law, self.common).draw(noise, width)
        drawn = common + NodeNoise(self.law, self.own).draw(noise, width)
        return FreshState(state.period + 1, level, common), drawn

    def check(self, state: FreshState) -> None:
        """Raises BadState as any, and for a common draw that there is not."""
        LevelMechanism.check(self, state)
        check_counts(state.common, (self.query.width,))
        if state.common.any() and not (self.common and state.period):
            raise BadState("the state holds a common draw, and none is drawn by then")

    @property
    def variances(self) -> tuple[float, float]:
        """Variances of a level's own draw and of the common one, in units squared."""
        of_own, of_common = (NodeNoise(self.law, s).variance if s else 0.0 for s in (self.own, self.common))
        return ldexp(of_own, -2 * self.bits), ldexp(of_common, -2 * self.bits)

    @property
    def covariance(self) -> Floats:
        """Of the noise of a column's levels, shape (periods, periods), in units squared."""
        own, common = self.variances
        return np.eye(self.calendar.periods) * own + common

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every level, in units squared."""
        return sum(self.variances)

    def window_variance(self, step: int, window: int) -> float:
        """Variance of a window's change: what two levels share cancels; before the calendar there is no noise."""
        own, common = self.variances
        return 2 * own if step > window else own + common


def laplace_levels(query: LinearQuery, calendar: Calendar, epsilon: Fraction) -> FreshLevels:
    """The levels with Laplace noise that cost an entry at most epsilon in all, whatever it does.

    ValueError for an epsilon that is none and for a query that counts nothing.
    """
    if epsilon <= 0:
        raise ValueError(f"a budget has epsilon > 0, got {epsilon}")
    check_counted(query)
    (plain, centred), T = _sizes(query), calendar.periods
    alone = FreshLevels(query, calendar, Law.LAPLACE, 0, float_above(T * plain / epsilon), 0.0, epsilon, Fraction(0))
    if centred is None:
        return alone
    share = Fraction(1 / (1 + T ** (2 / 3)))  # of epsilon, for the common draw: the least error of both together
    own, common = (float_above(size / epsilon) for size in (T * centred / (1 - share), centred / share))
    beside = FreshLevels(query, calendar, Law.LAPLACE, 0, own, common, epsilon, Fraction(0))
    return min(alone, beside, key=lambda levels: levels.variance(1))


def gaussian_levels(
    query: LinearQuery, calendar: Calendar, length: float, epsilon: Fraction, delta: Fraction
) -> FreshLevels:
    """The levels with Gaussian noise that no entry moves by more than `length` scales, which costs (epsilon, delta).

    length: of `told_apart` or `concentrated_length`. ValueError for a query that counts nothing, and noise of more than
    2^30 units.
    """
    from scipy.optimize import minimize_scalar

    T = calendar.periods
    check_counted(query)

    def error(weight: float) -> float:
        ratio = _ratio(weight, T)
        return _squares(query, T, ratio) * (1 + ratio**2)

    found = float(minimize_scalar(error, bounds=(0, 1 - 1e-9), method="bounded", options={"xatol": 1e-6}).x)
    ratio = _ratio(found, T) if error(found) < error(0.0) else 0.0
    bits = lattice_bits(sqrt(_squares(query, T, ratio)) / length)
    own = _lattice_shift(query, T, ratio, bits) / length * ABOVE
    return FreshLevels(query, calendar, Law.GAUSSIAN, bits, own, ratio * own, epsilon, delta)


def _sizes(query: LinearQuery) -> tuple[Fraction, Fraction | None]:
    """By how much an entry moves a level, sizes added up over the columns; and half of how far its range is.

    The second is None where no bound is known that is less.
    """
    ranges = [max(0, *column) - min(0, *column) for column in zip(*query.ends, strict=True)]
    plain, centred = Fraction(query.extent.appears[0]), Fraction(sum(ranges), 2)
    return plain, centred if ranges and centred < plain else None


def _ratio(weight: float, periods: int) -> float:
    """The scale of the common draw over that of a level's own. weight: of the common draw in the mean of all levels."""
    return sqrt(weight / (1 - weight) / periods)


def _squares(query: LinearQuery, periods: int, ratio: float) -> float:
    """The most that an entry moves all draws by, squared and added up, in scales of a level's own; an upper bound.

        T max over what it counts for, f, of |f|² - 2 q c·f, and of 0, + T q |c|²,   q = T ratio² / (1 + T ratio²)

    for the best c along the middle of all f: the common draw is moved by q c, and each other by f - q c.
    """
    from scipy.optimize import minimize_scalar

    q = periods * ratio**2 / (1 + periods * ratio**2)
    squares, along, length = _directions(query)
    if not q or not length:
        return periods * max(squares)

    def moved(at: float) -> float:
        most = max(0.0, *(square - 2 * q * at * part for square, part in zip(squares, along, strict=True)))
        return most + q * at * at * length

    reach = max(squares) / max(map(abs, along)) / q
    best = minimize_scalar(moved, bounds=(-reach, reach), method="bounded", options={"xatol": 1e-12 * reach})
    return periods * min(moved(0.0), float(best.fun))


def _directions(query: LinearQuery) -> tuple[Sequence[float], Sequence[float], float]:
    """For all that an entry may count for: |f|² and f·m, m being the middle's direction; and |m|², 0 if unknown."""
    if query.fixed:  # it counts for one f or for nothing, and the middle is half of that
        square = float(query.extent.appears[1])
        return (square,), (square,), square
    corners = np.array(query.corners if query.corners or query.width > 1 else query.ends, np.float64)
    if not corners.size and sum(query.appearing) == 1:  # one column of a histogram at a time
        return (1.0,), (1.0,), float(query.width)
    middle = corners.sum(0) if corners.size else np.zeros(1)
    if not middle.any():
        return (float(query.extent.appears[1]),), (0.0,), 0.0
    return (corners**2).sum(1).tolist(), (corners @ middle).tolist(), float(middle @ middle)


def _lattice_shift(query: LinearQuery, periods: int, ratio: float, bits: int) -> float:
    """By how much an entry moves all draws on the lattice, in steps of it: q c is rounded to the lattice."""
    exact = ldexp(sqrt(_squares(query, periods, ratio)), bits)
    return exact + (sqrt(query.width) / 2 * (sqrt(periods) + 1 / ratio) if ratio else 0.0)


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
    """Noisy changes over nodes, each released as it ends: sliding windows (SWCR), good for short ones, or the layers of
    a hierarchy (`changeling_papers.hierarchy`). Nothing is added up.

    A window is (t - W, t], one every P.

    layers: how many periods a node has and after how many the next one begins, of each layer; the first begins with the
    calendar. noise: of every node. epsilon, delta: what this costs an entry over all nodes. source: where it is proved.

    Guarantee: (epsilon, delta) for all windows together. A mutation lies in at most ⌈W/P⌉ of them, so an at-most-k
    entry reaches k⌈W/P⌉, the ⌈W/P⌉ that hold its insertion at the cost of an appearance; a B-time-bounded one
    ⌈(B+W)/P⌉. Neighbours: changelogs of which one lacks an entry of the other, with all its mutations; the entry keeps
    to the constraint. The state holds true changes. Source: Pan 2023, theorems 4.5 and 4.6.
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
    where each mutation's windows are counted apart. constraint: of one class.
    """
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

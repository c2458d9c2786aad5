"""Changes over sliding windows (t - W, t], one every P, each released directly (SWCR): good for short windows.

Guarantee: (epsilon, delta) for all windows together. A mutation lies in at most ⌈W/P⌉ of them, so an at-most-k entry
reaches k⌈W/P⌉, the ⌈W/P⌉ that hold its insertion at the cost of an appearance; a B-time-bounded one ⌈(B+W)/P⌉.
Neighbours: changelogs of which one lacks an entry of the other, with all its mutations; the entry keeps to the
constraint. The state holds true changes. Source: Pan 2023, theorems 4.5 and 4.6.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np
from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint, Hybrid, Node, TimeBounded
from changeling_statistics import Counts

from .errors import BadState, BudgetExhausted
from .files import over_window
from .linear_query import LinearQuery
from .mechanism import NEIGHBOURS, Guarantee, Level, Made, Mechanism, NodeRelease, check_counts, checked_change
from .noise import JointShifts, Law, NodeNoise, Noise, calibrated
from .noise import total as total_shift
from .offers import Asked, MechanismOption, Offer, PeriodChange, ReleaseMechanism


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
        """True if a window ends with this period. period: from 1 on."""
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
class Swcr(Mechanism[SwcrState, Counts, NodeRelease | None]):
    """Made by `sliding_windows`. Every window is one release; nothing is added up from others.

    noise: of every window. epsilon, delta: what this noise costs an entry over all windows.
    """

    query: LinearQuery
    windows: Windows
    noise: NodeNoise
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for all windows together."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, "Pan 2023, theorems 4.5 and 4.6")

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of each column of every window's change, in units squared."""
        return self.noise.variance

    def start(self) -> SwcrState:
        """Before the first period."""
        return SwcrState(0, np.zeros((self.windows.periods, self.query.width), np.int64))

    def step(self, state: SwcrState, value: Counts, noise: Noise) -> tuple[SwcrState, NodeRelease | None]:
        """value: the true change over the next period, shape (w,), in units. The window that ends with it, if one does.

        Raises BudgetExhausted after the last window, ValueError for a change that is not of the query.
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


@dataclass(frozen=True, slots=True)
class WindowRelease(ReleaseMechanism[SwcrState]):
    """The windows of `mechanism`, one that ends with every period."""

    mechanism: Swcr

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the windows."""
        return self.mechanism.guarantee

    @property
    def law(self) -> Law:
        """The noise of the windows."""
        return self.mechanism.noise.law

    @property
    def shows(self) -> str:
        """The ending that says that changes are published."""
        return over_window(self.mechanism.windows.periods)

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """True if an entry that keeps to the constraint costs at most (epsilon, delta) under this noise."""
        m = self.mechanism
        if m.query != query or m.windows != windows_of(calendar, m.windows.periods):
            return False
        enough = sliding_windows(query, m.windows, constraint, m.epsilon, m.delta, m.noise.law)
        return enough.noise.scale <= m.noise.scale

    def made_with(self) -> Made:
        """How many periods a window has, and the noise to the last bit."""
        noise = self.mechanism.noise
        shape = self.mechanism.windows.periods
        return {"kind": "windows", "window": shape, "law": str(noise.law), "scale": noise.scale.hex()}

    def start(self) -> SwcrState:
        """Before the first period."""
        return self.mechanism.start()

    def step(self, state: SwcrState, value: PeriodChange, noise: Noise) -> tuple[SwcrState, Level]:
        """value: one more period. Returns the change over the window that ends with it, no values where none does."""
        after, window = self.mechanism.step(state, value.net, noise)
        if window is None:
            return after, Level(np.zeros(0), float("nan"))
        return after, Level(window.values.astype(np.float64), window.variance)

    def check(self, state: SwcrState) -> None:
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


def _swcr(asked: Asked) -> WindowRelease:
    if asked.window is None:
        raise ValueError("swcr releases changes over windows: say how long, --window")
    windows = windows_of(asked.calendar, asked.window)
    budget, law = (asked.epsilon, asked.delta), asked.law or Law.LAPLACE
    return WindowRelease(sliding_windows(asked.query, windows, asked.constraint, *budget, law))


SWCR = Offer(
    "swcr",
    "The change over a sliding window, released directly: --window.",
    _swcr,
    frozenset({MechanismOption.LAW, MechanismOption.DELTA, MechanismOption.WINDOW}),
)

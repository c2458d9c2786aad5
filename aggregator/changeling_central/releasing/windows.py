"""SWCR in a release: the change over each window that ends with a period, released directly.

Guarantee, neighbours and source: those of `changes.swcr`. The first windows end when as many periods have passed; what
a period before that publishes is nothing.
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Calendar, Constraint

from ..changes.linear_query import LinearQuery
from ..changes.release_graph import Level
from ..changes.swcr import Swcr, SwcrState, Windows, sliding_windows
from ..mechanism import Guarantee
from ..node_noise import Law
from ..noise import Noise
from .method import Made, PeriodChange, ReleaseMechanism
from .offer import Asked, Offer, Option
from .output import over_window


@dataclass(frozen=True, slots=True)
class WindowRelease(ReleaseMechanism[SwcrState]):
    """The windows of `mechanism`, one that ends with every period."""

    mechanism: Swcr

    @property
    def guarantee(self) -> Guarantee:
        """That of the windows."""
        return self.mechanism.guarantee

    @property
    def shows(self) -> str:
        """That it is changes which are published."""
        return over_window(self.mechanism.windows.periods)

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether an entry that keeps to the constraint costs at most (epsilon, delta) under this noise."""
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
        """As the windows' own."""
        self.mechanism.check(state)

    def variance(self, step: int) -> float:
        """Of each window's change, in units squared."""
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
    frozenset({Option.LAW, Option.DELTA, Option.ADAPTIVE, Option.WINDOW}),
)

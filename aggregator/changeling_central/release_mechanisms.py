"""The mechanisms that `changeling release` comes with, each as a release runs it.

    ahead           a tree of noise drawn ahead                                       `ahead`
    square-root     Gaussian noise most of which cancels                              `square_root`
    hdcr, dcr       a hierarchy of nodes, with the best online estimates from them    `nodes`
    fresh           every level with noise of its own
    optimised       levels read off the best matrix that a search finds               `optimised`
    swcr            the change over each window that ends with a period               `nodes`

Guarantees, neighbours and sources are those of the mechanisms; estimates are post-processing. What a release has begun
with is never chosen again, as choosing takes long, and a later version of a library might choose otherwise.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ldexp, sqrt
from typing import Generic, cast

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats, Frontier

from .ahead import AheadState, AheadTree, drawn_ahead
from .budget import implied_by
from .errors import BadState
from .factorisation import best_factorisation
from .files import over_window
from .levels import FreshLevels, LevelsState, gaussian_levels, laplace_levels
from .linear_query import LinearQuery, reaches
from .mechanism import Guarantee, Level, State
from .nodes import (
    BestEstimates,
    Hdcr,
    HdcrState,
    Swcr,
    SwcrState,
    Windows,
    best_hierarchy,
    hierarchy,
    hierarchy_shifts,
    online_variances,
    sliding_windows,
)
from .noise import Law, NodeNoise, Noise
from .offers import Asked, Made, MechanismOption, Offer, PeriodChange, ReleaseMechanism, register, root_mean_square
from .optimised import Optimised, optimised
from .smoothing import MOST_SMOOTHED, noise_covariance
from .square_root import (
    SquareRoot,
    SquareRootState,
    concentrated_length,
    square_root,
    square_root_concentrated,
    told_apart,
    window_variances,
)


@dataclass(frozen=True, slots=True)
class HierarchyState:
    """nodes: of the mechanism, with true sums. graph: what the estimates need of what was published."""

    nodes: HdcrState
    graph: Frontier


@dataclass(frozen=True, slots=True)
class HierarchyRelease(ReleaseMechanism[HierarchyState]):
    """The hierarchy `mechanism` with its best online estimates."""

    mechanism: Hdcr

    @classmethod
    def as_begun(cls, asked: Asked, begun: Made) -> "HierarchyRelease":
        """The release with the shape and the noise that it has begun with.

        Whether that noise keeps the promise of what is asked is for `covers` to say. BadState for what is no hierarchy.
        """
        match begun:
            case {"kind": "hierarchy", "widths": list(widths), "law": str(law), "scale": str(scale)}:
                noise = NodeNoise(Law(law), float.fromhex(scale))
                return cls(Hdcr(asked.query, asked.calendar, tuple(widths), noise, asked.epsilon, asked.delta))
        raise BadState(f"not a hierarchy: {sorted(begun)}")

    @property
    def guarantee(self) -> Guarantee:
        """That of the hierarchy; the estimates cost nothing."""
        return self.mechanism.guarantee

    @property
    def law(self) -> Law:
        """That of the nodes."""
        return self.mechanism.noise.law

    @property
    def estimates(self) -> BestEstimates:
        """The estimates at the end of every period, from the nodes closed by then."""
        m = self.mechanism
        return BestEstimates(m.calendar.periods, m.widths, m.query.width)

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether an entry that keeps to the constraint costs at most (epsilon, delta) under this noise."""
        m, stated = self.mechanism, self.mechanism.guarantee
        if (m.query, m.calendar) != (query, calendar):
            return False
        shifts = hierarchy_shifts(query, calendar, constraint, m.widths)
        if m.noise.law is Law.LAPLACE and m.noise.epsilon(shifts) <= stated.epsilon:
            return True
        return stated.delta > 0 and m.noise.delta(shifts, float(stated.epsilon)) <= float(stated.delta)

    def made_with(self) -> Made:
        """The widths of the layers, and the noise to the last bit."""
        noise = self.mechanism.noise
        shape = list(self.mechanism.widths)
        return {"kind": "hierarchy", "widths": shape, "law": str(noise.law), "scale": noise.scale.hex()}

    def start(self) -> HierarchyState:
        """Before the first period."""
        return HierarchyState(self.mechanism.start(), self.estimates.start())

    def step(self, state: HierarchyState, value: PeriodChange, noise: Noise) -> tuple[HierarchyState, Level]:
        """value: one more period. Returns the best estimate of the query at its end, from all nodes closed by then.

        The nodes that close with the period come with it.
        """
        nodes, released = self.mechanism.step(state.nodes, value.net, noise)
        graph, level = self.estimates.step(state.graph, released)
        return HierarchyState(nodes, graph), replace(level, nodes=released)

    def check(self, state: HierarchyState) -> None:
        """Raises BadState for nodes or a release graph of another hierarchy, or of different periods."""
        self.mechanism.check(state.nodes)
        graph, F, w = state.graph, len(state.graph.times), self.mechanism.query.width
        shapes = (graph.part.shape, graph.planned.shape, graph.values.shape)
        floats = graph.planned.dtype == graph.values.dtype == np.float64
        if shapes != ((F,), (F, F), (F, w)) or graph.part.dtype != np.intp or not floats:
            raise BadState("the state's release graph is not of this hierarchy")
        if graph.period != state.nodes.period or not all(0 <= time <= graph.period for time in graph.times):
            raise BadState("the state's release graph is not as far as its nodes")

    def variance(self, step: int) -> float:
        """Of the best online estimate at the end of this period, in units squared."""
        widths = self.mechanism.widths
        branching = widths[1] if len(widths) > 1 else 2
        return float(online_variances(branching, len(widths), np.array([step]))[0] * self.mechanism.noise.variance)


def _hdcr(asked: Asked) -> HierarchyRelease:
    law = asked.law or Law.LAPLACE
    if asked.begun is not None and _is_asked_for(asked.begun, law, asked.branching, asked.layers):
        return HierarchyRelease.as_begun(asked, asked.begun)
    wished = asked.branching, asked.layers
    best = best_hierarchy(asked.query, asked.calendar, asked.constraint, asked.epsilon, asked.delta, law, wished)
    return _new(asked, (best.branching, best.layers))


def _dcr(asked: Asked) -> HierarchyRelease:
    if asked.begun is not None and _is_asked_for(asked.begun, asked.law or Law.LAPLACE, None, 1):
        return HierarchyRelease.as_begun(asked, asked.begun)
    return _new(asked, (2, 1))


def _new(asked: Asked, shape: tuple[int, int]) -> HierarchyRelease:
    budget, law = (asked.epsilon, asked.delta), asked.law or Law.LAPLACE
    return HierarchyRelease(hierarchy(asked.query, asked.calendar, asked.constraint, *budget, shape, law))


def _is_asked_for(begun: Made, law: Law, branching: int | None, layers: int | None) -> bool:
    """Whether what a release has begun with is of this law, and of this shape as far as one is given."""
    match begun:
        case {"kind": "hierarchy", "law": law.value, "widths": [_, *wider]}:
            return layers in (None, 1 + len(wider)) and (not wider or branching in (None, wider[0]))
    return False


SHAPED = frozenset(
    {
        MechanismOption.LAW,
        MechanismOption.DELTA,
        MechanismOption.BRANCHING,
        MechanismOption.LAYERS,
    }
)
HDCR = Offer("hdcr", "A hierarchy whose nodes draw their noise as they close; the best one if left out.", _hdcr, SHAPED)
DCR = Offer(
    "dcr",
    "One noisy change a period: short calendars.",
    _dcr,
    frozenset({MechanismOption.LAW, MechanismOption.DELTA}),
)


@dataclass(frozen=True, slots=True)
class LevelRelease(ReleaseMechanism[State], Generic[State]):
    """A release by a mechanism that publishes levels.

    mechanism: it. epsilon, delta: the budget that was asked for. rho: the same, where it is in that and the mechanism
    has no pure epsilon.
    """

    mechanism: "AheadTree | SquareRoot | FreshLevels | Optimised"
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The mechanism's, stated at the budget that was asked for, which is no less."""
        budget = (self.epsilon, self.delta) if self.rho is None else implied_by(self.rho)
        return replace(self.mechanism.guarantee, epsilon=budget[0], delta=budget[1], rho=self.rho)

    def start(self) -> State:
        """Before the first period."""
        state: State = self.mechanism.start()  # type: ignore[assignment]
        return state

    def step(self, state: State, value: PeriodChange, noise: Noise) -> tuple[State, Level]:
        """value: one more period. Returns the level of the query at its end."""
        after: tuple[State, Level] = self.mechanism.step(state, value.net, noise)  # type: ignore[arg-type,assignment]
        return after

    def check(self, state: State) -> None:
        """Raises BadState for a state that is not the mechanism's."""
        self.mechanism.check(state)  # type: ignore[arg-type]

    def variance(self, step: int) -> float:
        """Of the level at the end of this period, in units squared."""
        return self.mechanism.variance(step)

    def _is_of(self, query: LinearQuery, calendar: Calendar) -> bool:
        return (self.mechanism.query, self.mechanism.calendar) == (query, calendar)


@lru_cache(maxsize=4)
def _covariance(made: str, periods: int) -> Floats:
    return noise_covariance(json.loads(made), periods)


def _read_off(release: "AheadRelease | OptimisedRelease", step: int, window: int) -> float | None:
    """The variance of a window's change, read off the levels; None where there are too many of them."""
    periods = release.mechanism.calendar.periods
    if periods > MOST_SMOOTHED:
        return None
    levels = _covariance(json.dumps(release.made_with()), periods)
    if step == window:
        return float(levels[step - 1, step - 1])
    at = [step - 1, step - window - 1]
    return float(levels[np.ix_(at, at)] @ [1, -1] @ [1, -1])


@dataclass(frozen=True, slots=True)
class AheadRelease(LevelRelease[AheadState]):
    """A tree of noise drawn ahead."""

    mechanism: AheadTree

    @classmethod
    def as_begun(cls, asked: Asked, begun: Made) -> "AheadRelease":
        """The release with the tree that it has begun with. BadState for what is no such tree."""
        match begun:
            case {"kind": "ahead", "widths": list(widths), "curves": str(curves), "rate": str(rate)}:
                numbers = [float.fromhex(number) for number in curves.split()]
                shape = tuple((a, b, c) for a, b, c in zip(*[iter(numbers)] * 3, strict=True))
                tree = AheadTree(asked.query, asked.calendar, tuple(widths), shape, float.fromhex(rate), asked.epsilon)
                return cls(tree, asked.epsilon, asked.delta)
        raise BadState(f"not a tree drawn ahead: {sorted(begun)}")

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether an entry that keeps to the constraint costs at most epsilon in this tree."""
        return self._is_of(query, calendar) and self.mechanism.keeps(constraint)

    @property
    def noise_in_words(self) -> str:
        """The Laplace noise of the blocks, layer by layer; of a layer's blocks some may hold none."""
        parts = []
        for width, scales in zip(self.mechanism.widths, self.mechanism.shape.scales(self.mechanism.rate), strict=True):
            held = scales[np.isfinite(scales)]
            if len(held):
                low, high = f"{held.min():.6g}", f"{held.max():.6g}"
                spread = low if low == high else f"{low} to {high}"
                parts.append(f"{spread} on blocks of {width} period{'s' * (width > 1)}")
        return f"ahead; law laplace, scale {', '.join(parts)}"

    def window_variance(self, step: int, window: int) -> float | None:
        """Of a window's change, read off the levels, as all noise is drawn ahead; None where there are too many."""
        return _read_off(self, step, window)

    def made_with(self) -> Made:
        """The widths, curves and rate of the tree, to the last bit."""
        tree = self.mechanism
        curves = " ".join(number.hex() for curve in tree.curves for number in curve)
        return {"kind": "ahead", "widths": list(tree.widths), "curves": curves, "rate": tree.rate.hex()}


@dataclass(frozen=True, slots=True)
class SquareRootRelease(LevelRelease[SquareRootState]):
    """The square root mechanism."""

    mechanism: SquareRoot

    @property
    def law(self) -> Law:
        """Gaussian."""
        return Law.GAUSSIAN

    @classmethod
    def as_begun(cls, asked: Asked, begun: Made) -> "SquareRootRelease":
        """The release with the band and the noise that it has begun with. BadState for what is no such mechanism."""
        match begun:
            case {"kind": "square-root", "band": int(band), "bits": int(bits), "scale": str(scale)}:
                budget = asked.epsilon, asked.delta
                stated = budget if asked.rho is None else implied_by(asked.rho)
                root = SquareRoot(asked.query, asked.calendar, band, bits, float.fromhex(scale), *stated)
                return cls(root, *budget, asked.rho)
        raise BadState(f"not a square root: {sorted(begun)}")

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether an entry that keeps to the constraint costs at most (epsilon, delta) under this noise."""
        length = _length(self.epsilon, self.delta, self.rho)
        return self._is_of(query, calendar) and self.mechanism.costs_at_most(length, constraint)

    @property
    def noise_in_words(self) -> str:
        """How many draws hang together, and the scale of one in the query's units."""
        root = self.mechanism
        return f"square-root; band {root.band}, law gaussian, scale {ldexp(root.scale, -root.bits):.6g} a draw"

    def window_variance(self, step: int, window: int) -> float:
        """Of a window's change, read off the levels: exact, as one draw is in both."""
        root = self.mechanism
        share = float(window_variances(root.calendar.periods, root.band, window)[step - 1])
        return share * ldexp(root.scale, -root.bits) ** 2

    def made_with(self) -> Made:
        """The band, and the noise to the last bit."""
        root = self.mechanism
        return {"kind": "square-root", "band": root.band, "bits": root.bits, "scale": root.scale.hex()}


def _ahead(asked: Asked) -> AheadRelease:
    if asked.begun is not None and asked.begun["kind"] == "ahead":
        return AheadRelease.as_begun(asked, asked.begun)
    tree = drawn_ahead(asked.query, asked.calendar, asked.constraint, asked.epsilon)
    return AheadRelease(tree, asked.epsilon, asked.delta)


def _square_root(asked: Asked) -> SquareRootRelease:
    if asked.begun is not None and asked.begun["kind"] == "square-root":
        return SquareRootRelease.as_begun(asked, asked.begun)
    if asked.rho is not None:
        made = square_root_concentrated(asked.query, asked.calendar, asked.constraint, asked.rho)
        return SquareRootRelease(made, asked.epsilon, asked.delta, asked.rho)
    if not asked.delta:
        raise ValueError("square-root draws Gaussian noise, which needs a delta above 0: --delta 1e-6, or --rho")
    root = square_root(asked.query, asked.calendar, asked.constraint, asked.epsilon, asked.delta)
    return SquareRootRelease(root, asked.epsilon, asked.delta)


AHEAD = Offer(
    "ahead",
    "Noise drawn ahead: at a pure epsilon the most accurate.",
    _ahead,
    frozenset({MechanismOption.DELTA}),
)
SQUARE_ROOT = Offer(
    "square-root",
    "Gaussian noise most of which cancels: with a delta or at rho.",
    _square_root,
    frozenset({MechanismOption.DELTA, MechanismOption.RHO, MechanismOption.LAW}),
)


@dataclass(frozen=True, slots=True)
class WindowRelease(ReleaseMechanism[SwcrState]):
    """The windows of `mechanism`, one that ends with every period."""

    mechanism: Swcr

    @property
    def guarantee(self) -> Guarantee:
        """That of the windows."""
        return self.mechanism.guarantee

    @property
    def law(self) -> Law:
        """That of the windows."""
        return self.mechanism.noise.law

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
    frozenset({MechanismOption.LAW, MechanismOption.DELTA, MechanismOption.WINDOW}),
)


@dataclass(frozen=True, slots=True)
class FreshRelease(LevelRelease[LevelsState]):
    """Every level with noise of its own, and one draw that all have in common."""

    mechanism: FreshLevels

    @classmethod
    def as_begun(cls, asked: Asked, begun: Made) -> "FreshRelease":
        """The release with the noise that it has begun with. BadState for what is none of fresh levels."""
        match begun:
            case {"kind": "fresh", "law": str(law), "bits": int(bits), "own": str(own), "common": str(common)}:
                scales = float.fromhex(own), float.fromhex(common)
                rho = asked.rho if law == Law.GAUSSIAN else None
                budget = asked.epsilon, asked.delta
                stated = budget if rho is None else implied_by(rho)
                return cls(FreshLevels(asked.query, asked.calendar, Law(law), bits, *scales, *stated), *budget, rho)
        raise BadState(f"no fresh levels: {sorted(begun)}")

    @property
    def law(self) -> Law:
        """That of the levels."""
        return self.mechanism.law

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:  # noqa: ARG002
        """Whether an entry costs at most the budget under this noise, whatever it does."""
        length = _length(self.epsilon, self.delta, self.rho) if self.law is Law.GAUSSIAN else 0.0
        return self._is_of(query, calendar) and self.mechanism.costs_at_most(length)

    @property
    def noise_in_words(self) -> str:
        """The law, and the scales in the query's units."""
        m = self.mechanism
        common = f", and {ldexp(m.common, -m.bits):.6g} once for all of them" if m.common else ""
        return f"fresh; law {m.law}, scale {ldexp(m.own, -m.bits):.6g} a level{common}"

    def window_variance(self, step: int, window: int) -> float:
        """Of a window's change, read off the levels."""
        return self.mechanism.window_variance(step, window)

    def made_with(self) -> Made:
        """The noise to the last bit."""
        m = self.mechanism
        return {"kind": "fresh", "law": str(m.law), "bits": m.bits, "own": m.own.hex(), "common": m.common.hex()}


def _fresh(asked: Asked) -> FreshRelease:
    if asked.begun is not None and asked.begun["kind"] == "fresh":
        return FreshRelease.as_begun(asked, asked.begun)
    made: list[FreshRelease] = []
    budget = asked.epsilon, asked.delta
    if asked.law is not Law.GAUSSIAN:
        made.append(FreshRelease(laplace_levels(asked.query, asked.calendar, asked.epsilon), *budget))
    if asked.law is not Law.LAPLACE and (asked.delta or asked.rho is not None):
        stated = budget if asked.rho is None else implied_by(asked.rho)
        levels = gaussian_levels(asked.query, asked.calendar, _length(*budget, asked.rho), *stated)
        made.append(FreshRelease(levels, *budget, asked.rho))
    if not made:
        raise ValueError("Gaussian noise needs a delta above 0: --delta 1e-6, or --rho")
    return min(made, key=lambda release: release.variance(1))


def _length(epsilon: Fraction, delta: Fraction, rho: Fraction | None) -> float:
    """By how many scales of Gaussian noise an entry may move what is measured."""
    return told_apart(epsilon, delta) if rho is None else concentrated_length(rho)


FRESH = Offer(
    "fresh",
    "Every level with noise of its own: short calendars, where entries mutate often.",
    _fresh,
    frozenset({MechanismOption.DELTA, MechanismOption.RHO, MechanismOption.LAW}),
)


@dataclass(frozen=True, slots=True)
class OptimisedRelease(LevelRelease[AheadState]):
    """Levels read off a searched matrix."""

    mechanism: Optimised

    @classmethod
    def as_begun(cls, asked: Asked, begun: Made) -> "OptimisedRelease":
        """The release with the matrix and the noise that it has begun with. BadState for what is none."""
        match begun:
            case {
                "kind": "optimised",
                "law": str(law),
                "matrix": str(matrix),
                "shift": int(shift),
                "scale": str(drawn_at),
            }:
                rho = asked.rho if law == Law.GAUSSIAN else None
                budget = asked.epsilon, asked.delta
                stated = budget if rho is None else implied_by(rho)
                made = Optimised(
                    asked.query, asked.calendar, Law(law), b64decode(matrix), shift, float.fromhex(drawn_at), *stated
                )
                return cls(made, *budget, rho)
        raise BadState(f"no searched matrix: {sorted(begun)}")

    @property
    def law(self) -> Law:
        """That of the draws."""
        return self.mechanism.law

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether an entry that keeps to the constraint costs at most the budget under this noise."""
        length = _length(self.epsilon, self.delta, self.rho) if self.law is Law.GAUSSIAN else 0.0
        return self._is_of(query, calendar) and self.mechanism.costs_at_most(length, constraint)

    @property
    def noise_in_words(self) -> str:
        """The law, and how many combinations of changes draws are added to."""
        m = self.mechanism
        return f"optimised; law {m.law}, {m.calendar.periods} combinations of the changes, drawn ahead"

    def window_variance(self, step: int, window: int) -> float | None:
        """Of a window's change, read off the levels."""
        return _read_off(self, step, window)

    def made_with(self) -> Made:
        """The matrix, and the noise to the last bit."""
        m = self.mechanism
        matrix = b64encode(m.coefficients).decode()
        return {"kind": "optimised", "law": str(m.law), "matrix": matrix, "shift": m.shift, "scale": m.scale.hex()}


def _often(asked: Asked) -> bool:
    """Whether a search is worth its time at a pure epsilon: where entries mutate in more than two periods, or twice in
    a histogram, where to leave one column for another cancels nothing in a tree. Else it wins at most some 5%."""
    most = max(reach.periods for reach in reaches(asked.constraint, asked.calendar))
    return most > (1 if asked.query.width > 1 else 2)


def _optimised(asked: Asked) -> OptimisedRelease:
    if asked.begun is not None and asked.begun["kind"] == "optimised":
        return OptimisedRelease.as_begun(asked, asked.begun)
    wished, budget = (asked.query, asked.calendar, asked.constraint), (asked.epsilon, asked.delta)
    made: list[OptimisedRelease] = []
    if asked.law is not Law.LAPLACE and (asked.delta or asked.rho is not None):
        stated = budget if asked.rho is None else implied_by(asked.rho)
        matrix = optimised(*wished, *stated, _length(*budget, asked.rho))
        made.append(OptimisedRelease(matrix, *budget, asked.rho))
    if asked.law is not Law.GAUSSIAN and (not made or _often(asked)):
        try:
            made.append(OptimisedRelease(optimised(*wished, asked.epsilon), *budget))
        except ValueError:
            if not made:
                raise
    if not made:
        raise ValueError("Gaussian noise needs a delta above 0: --delta 1e-6, or --rho")
    return min(made, key=lambda one: root_mean_square(one.variance, asked.query, asked.calendar.periods) or 0.0)


OPTIMISED = Offer(
    "optimised",
    "The best matrix that a search finds, with how near it is: short calendars.",
    _optimised,
    frozenset({MechanismOption.DELTA, MechanismOption.RHO, MechanismOption.LAW}),
)


@dataclass(frozen=True, slots=True)
class Predicted:
    """What an offer would give. error: root mean square over the calendar, in what the query counts.

    made: the mechanism, to release with. least: an error that no matrix with noise of its law goes below, where that is
    known; else None.
    """

    name: str
    error: float
    made: ReleaseMechanism[object]
    least: float | None = None


def compared(asked: Asked) -> tuple[Predicted, ...]:
    """Those that may be chosen for what is asked, the best first. ValueError where there is none."""
    new = replace(asked, begun=None)
    candidates: dict[str, Callable[[Asked], object]] = {FRESH.name: FRESH.make}
    if asked.law is not Law.GAUSSIAN:
        candidates[AHEAD.name] = AHEAD.make
    if (asked.delta or asked.rho is not None) and asked.law is not Law.LAPLACE:
        candidates[SQUARE_ROOT.name] = SQUARE_ROOT.make
    if SQUARE_ROOT.name in candidates or _often(asked):
        candidates[OPTIMISED.name] = OPTIMISED.make
    reasons: list[str] = []
    found: list[Predicted] = []
    for name, make in candidates.items():
        try:
            made = cast("ReleaseMechanism[object]", make(new))
        except ValueError as error:
            reasons.append(f"{name}: {error}")
            continue
        predicted = root_mean_square(made.variance, asked.query, asked.calendar.periods)
        found.append(Predicted(name, predicted or 0.0, made, _least(asked, made)))
    if not found:
        raise ValueError("; ".join(reasons) or "Gaussian noise needs a delta above 0, --delta, or --rho")
    return tuple(sorted(found, key=lambda one: one.error))


def _least(asked: Asked, made: ReleaseMechanism[object]) -> float | None:
    """The error that no matrix goes below with noise of this law, of a matrix that was searched."""
    if not isinstance(made, OptimisedRelease):
        return None
    matrix = best_factorisation(asked.query, asked.calendar, asked.constraint, made.law)
    budget = float(asked.epsilon) if made.law is Law.LAPLACE else _length(asked.epsilon, asked.delta, asked.rho)
    return sqrt(matrix.least) / budget * float(asked.query.unit)


def in_words(asked: Asked, predicted: tuple[Predicted, ...]) -> str:
    """A sentence that says what is chosen, why, and what the others would have given."""
    chosen, *others = predicted
    every = [f"{one.name} by {one.error:.3g}" for one in others]
    beside = f"; instead would err {', '.join(every)}" if every else ""
    alone = chosen.made.law is not Law.GAUSSIAN and (asked.delta or asked.rho is not None)
    if chosen.least is not None:
        beside += f"; no matrix with {chosen.made.law} noise errs by less than {chosen.least:.3g}"
    pure = f" It promises epsilon {float(asked.epsilon):.6g} alone." * bool(alone)
    return f"chosen: {chosen.name}, whose levels err by {chosen.error:.3g} (root mean square){beside}.{pure}"


def _best(asked: Asked) -> ReleaseMechanism[object]:
    if asked.begun is not None:
        return _as_begun(asked, asked.begun)
    return compared(asked)[0].made


def _as_begun(asked: Asked, begun: Made) -> ReleaseMechanism[object]:
    kinds: dict[str, Callable[[Asked, Made], object]] = {
        "ahead": AheadRelease.as_begun,
        "square-root": SquareRootRelease.as_begun,
        "hierarchy": HierarchyRelease.as_begun,
        "fresh": FreshRelease.as_begun,
        "optimised": OptimisedRelease.as_begun,
    }
    kind = str(begun["kind"])
    if kind not in kinds:
        raise BadState(f"the release was begun with --mechanism {kind}")
    return cast("ReleaseMechanism[object]", kinds[kind](asked, begun))


BEST = Offer(
    "best",
    "The one of the least predicted error; it says which, and what the others would have given.",
    _best,
    frozenset({MechanismOption.LAW, MechanismOption.DELTA, MechanismOption.RHO}),
)


register(BEST)
register(AHEAD)
register(SQUARE_ROOT)
register(FRESH)
register(OPTIMISED)
register(HDCR)
register(DCR)
register(SWCR)

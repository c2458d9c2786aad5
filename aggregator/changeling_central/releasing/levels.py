"""The square root and the tree drawn ahead in a release: mechanisms that publish levels by themselves.

Guarantee, neighbours and source: those of `matrix.square_root` and `ahead.tree`. What a release has begun with is never
chosen again, as choosing takes long, and a later version of a library might choose otherwise.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ldexp
from typing import Generic

import numpy as np
from changeling_protocol import Calendar, Constraint

from ..ahead.tree import AheadState, AheadTree, drawn_ahead
from ..changes.linear_query import LinearQuery
from ..changes.release_graph import Level
from ..errors import BadState
from ..matrix.gaussian import concentrated_length, told_apart
from ..matrix.square_root import SquareRoot, SquareRootState, square_root, square_root_concentrated
from ..matrix.toeplitz import window_variances
from ..mechanism import Guarantee, State
from ..noise import Noise
from .method import Made, PeriodChange, ReleaseMechanism
from .offer import Asked, Offer, Option
from .sums import implied_by


@dataclass(frozen=True, slots=True)
class LevelRelease(ReleaseMechanism[State], Generic[State]):
    """A release by a mechanism that publishes levels. mechanism: it. epsilon, delta: the budget that was asked for."""

    mechanism: "AheadTree | SquareRoot"
    epsilon: Fraction
    delta: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """The mechanism's, stated at the budget that was asked for, which is no less."""
        return replace(self.mechanism.guarantee, epsilon=self.epsilon, delta=self.delta)

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

    def made_with(self) -> Made:
        """The widths, curves and rate of the tree, to the last bit."""
        tree = self.mechanism
        curves = " ".join(number.hex() for curve in tree.curves for number in curve)
        return {"kind": "ahead", "widths": list(tree.widths), "curves": curves, "rate": tree.rate.hex()}


@dataclass(frozen=True, slots=True)
class SquareRootRelease(LevelRelease[SquareRootState]):
    """The square root mechanism. rho: the budget that was asked for, where it is in that."""

    mechanism: SquareRoot
    rho: Fraction | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The mechanism's, stated at the budget that was asked for."""
        stated = replace(self.mechanism.guarantee, epsilon=self.epsilon, delta=self.delta)
        if self.rho is None:
            return stated
        epsilon, delta = implied_by(self.rho)
        return replace(stated, epsilon=epsilon, delta=delta, rho=self.rho)

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
        length = told_apart(self.epsilon, self.delta) if self.rho is None else concentrated_length(self.rho)
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
    "Noise drawn ahead: at a pure epsilon the most accurate, where nobody reacts to what is published.",
    _ahead,
    frozenset({Option.DELTA}),
)
SQUARE_ROOT = Offer(
    "square-root",
    "Gaussian noise most of which cancels: with a delta or at rho, and also where people react to what is published.",
    _square_root,
    frozenset({Option.DELTA, Option.RHO, Option.LAW, Option.ADAPTIVE}),
)

"""A tree of noise drawn ahead: levels with the accuracy of "when all is over", published as each period ends.

Guarantee: epsilon for all periods together. The curator knows
the true changes x. Each block of a tree over the calendar is measured as G x + z, z discrete Laplace noise, and what is
published is read off that: A x + A G⁺ z, G⁺ the best estimate from all blocks, those included that close later. z owes
nothing to the data, so it is drawn before its time. An entry that keeps to the constraint moves so many blocks of each
layer, at their rates. Neighbours: as for DCR.

It holds where people react to what is published, too. Fix what is published, o: whoever reacts to it then feeds one of
two fixed streams, which are neighbours, and the chance of o is that of a fixed stream's, so the ratio is at most
e^epsilon at every o, although the noise was drawn before (docs/mathematics.md, "Central releases").

Nothing is lost to floating point. Estimates are made in whole parts of 2^-bits units, and only what the true changes
cancel out of is rounded, so whoever saw G x + z could compute what is published, to the last bit. The state holds the
true level and the noise to come, so keep it where the changelog is kept. Source: Hay, Rastogi, Miklau, Suciu 2010
(the estimate); Honaker 2015 (trees); Li, Hay, Rastogi, Miklau, McGregor 2010 (matrix mechanisms).
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, log2

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Counts, Floats

from .errors import BadState
from .linear_query import LinearQuery
from .mechanism import Level, LevelMechanism, Made, check_counts, checked_change, level_with_noise
from .noise import Law, Noise
from .shape import Blocks, Curve, Layers, Shape, Weights, best_shape, laplace_variance

BITS = 20
"""A unit is cut into so many halves at most; fewer where noise is large."""
TAILS = 64
"""Noise is less than so many scales, but for a chance below e^-64 a draw."""


@dataclass(frozen=True, slots=True, eq=False)
class AheadState:
    """period: how many have been taken in. level: true, (w,), in units. total: the level's noise, in parts of a unit.

    ahead: the noise of the changes of the periods to come, (periods, w), in parts of a unit, as far as it is drawn.
    """

    period: int
    level: Counts
    total: Counts
    ahead: Counts


class NoiseAhead(LevelMechanism[AheadState]):
    """A mechanism whose noise is drawn ahead, for many periods at once, and known to owe nothing to the data."""

    __slots__ = ()

    @property
    @abstractmethod
    def together(self) -> int:
        """Periods whose noise is drawn at once."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Into how many halves a unit is cut, one after another."""

    @abstractmethod
    def drawn(self, period: int, noise: Noise) -> Counts:
        """The noise of the changes of the periods after this one that are drawn at once, (periods, w), in parts."""

    def start(self) -> AheadState:
        """Before the first period; nothing is drawn."""
        nothing = np.zeros(self.query.width, np.int64)
        return AheadState(0, nothing, nothing, np.zeros((0, self.query.width), np.int64))

    def step(self, state: AheadState, value: Counts, noise: Noise) -> tuple[AheadState, Level]:
        """value: the true change over the next period, shape (w,), in units. Returns the level at its end.

        The first of the periods that are drawn together draws for all of them.
        Raises BudgetExhausted after the calendar's last period, and ValueError for a change that is not of the query.
        """
        period, change = self.next_period(state.period), checked_change(value, self.query.width)
        ahead = state.ahead if len(state.ahead) else self.drawn(state.period, noise)
        after = AheadState(period, state.level + change, state.total + ahead[0], ahead[1:].copy())
        return after, Level(level_with_noise(after.level, after.total, self.bits), self.variance(after.period))

    def check(self, state: AheadState) -> None:
        """Raises BadState for more periods than the calendar has, for other columns, or for noise not drawn by now."""
        self.check_period(state.period)
        width, together = self.query.width, self.together
        ends = min(-(-state.period // together) * together, self.calendar.periods)
        check_counts(state.level, (width,))
        check_counts(state.total, (width,))
        check_counts(state.ahead, (ends - state.period, width))


@dataclass(frozen=True, slots=True)
class AheadTree(NoiseAhead):
    """Made by `drawn_ahead`. widths, curves: of the tree, as `Shape` has them. rate: epsilon of a unit in a period."""

    kind = "ahead"
    source = "Li, Hay, Rastogi, Miklau, McGregor 2010; Hay, Rastogi, Miklau, Suciu 2010"
    law = Law.LAPLACE
    query: LinearQuery
    calendar: Calendar
    widths: tuple[int, ...]
    curves: tuple[Curve, ...]
    rate: float
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    @classmethod
    def as_made(
        cls,
        made: Made,
        query: LinearQuery,
        calendar: Calendar,
        epsilon: Fraction,
        delta: Fraction,  # noqa: ARG003
    ) -> "AheadTree":
        """The tree of these widths, curves and rate."""
        match made:
            case {"kind": cls.kind, "widths": list(widths), "curves": str(curves), "rate": str(rate)}:
                numbers = [float.fromhex(number) for number in curves.split()]
                shape = tuple((a, b, c) for a, b, c in zip(*[iter(numbers)] * 3, strict=True))
                return cls(query, calendar, tuple(widths), shape, float.fromhex(rate), epsilon)
        raise BadState(f"not a tree drawn ahead: {sorted(made)}")

    def made_with(self) -> Made:
        """The widths, curves and rate."""
        curves = " ".join(number.hex() for curve in self.curves for number in curve)
        return {"kind": self.kind, "widths": list(self.widths), "curves": curves, "rate": self.rate.hex()}

    @property
    def words(self) -> str:
        """The Laplace noise of the blocks, layer by layer; of a layer's blocks some may hold none."""
        parts = []
        for width, scales in zip(self.widths, self.shape.scales(self.rate), strict=True):
            held = scales[np.isfinite(scales)]
            if len(held):
                low, high = f"{held.min():.6g}", f"{held.max():.6g}"
                spread = low if low == high else f"{low} to {high}"
                parts.append(f"{spread} on blocks of {width} period{'s' * (width > 1)}")
        return f"ahead; law laplace, scale {', '.join(parts)}"

    @property
    def shape(self) -> Shape:
        """The tree."""
        return _shape(self.calendar.periods, self.widths, self.curves)

    @property
    def bits(self) -> int:
        """Into how many halves a unit is cut, one after another."""
        return lattice_bits(self.shape, self.rate)

    def costs_at_most(self, length: float, constraint: Constraint) -> bool:  # noqa: ARG002
        """Check that an entry that keeps to the constraint costs at most epsilon."""
        return Fraction(self.rate) * Fraction(self.shape.loss(self.query, self.calendar, constraint)) <= self.epsilon

    @property
    def together(self) -> int:
        """The number of draws in a block of the highest layer."""
        return self.widths[-1]

    def drawn(self, period: int, noise: Noise) -> Counts:
        """The noise of the changes of a block of the highest layer."""
        top, scales = period // self.widths[-1], self.shape.scales(self.rate)
        weights = _weights(self.shape, self.rate)
        return drawn_changes(self.shape.blocks, weights, scales, top, self.bits, self.query.width, noise)

    def variance(self, step: int) -> float:
        """Variance of each column's level at the end of this period, in units squared."""
        return float(_weights(self.shape, self.rate).variances[step - 1])

    @property
    def covariance(self) -> Floats:
        """Of the noise of a column's levels, shape (periods, periods), in units squared."""
        return _covariance(self.shape, self.rate)


def drawn_ahead(
    query: LinearQuery, calendar: Calendar, constraint: Constraint, epsilon: Fraction, shape: Shape | None = None
) -> AheadTree:
    """The tree that costs an entry which keeps to the constraint at most epsilon.

    calendar: a level is published at the end of each period. shape: of the tree, the best one if left out.
    ValueError for an epsilon that is none, a query that counts nothing, a shape of another calendar, and noise that
    would be too large to be added up.
    """
    if epsilon <= 0:
        raise ValueError(f"a budget has epsilon > 0, got {epsilon}")
    if not sum(query.appearing) + sum(query.moving):
        raise ValueError("the query counts nothing: no entry can change it")
    shape = best_shape(query, calendar, constraint, float(epsilon)) if shape is None else shape
    if shape.blocks.periods != calendar.periods:
        raise ValueError(f"the shape is of {shape.blocks.periods} periods, the calendar of {calendar.periods}")
    rate = float(epsilon / Fraction(shape.loss(query, calendar, constraint))) * (1 - 1e-12)
    lattice_bits(shape, rate)
    return AheadTree(query, calendar, shape.blocks.widths, shape.curves, rate, epsilon)


@lru_cache(maxsize=64)
def lattice_bits(shape: Shape, rate: float) -> int:
    """Into how many halves a unit is cut, so that sums of the noise stay below 2^62. ValueError where none do."""
    scales = np.concatenate(shape.scales(rate))
    largest = float(scales[np.isfinite(scales)].max())
    bits = min(BITS, 62 - ceil(log2(largest * TAILS * max(shape.blocks.periods, 2))))
    if bits < 0:
        raise ValueError(
            f"noise of scale {largest:g} over {shape.blocks.periods} periods is too large: take a larger unit"
        )
    return bits


@lru_cache(maxsize=16)
def _shape(periods: int, widths: tuple[int, ...], curves: tuple[Curve, ...]) -> Shape:
    return Shape(Blocks(periods, widths), curves)


@lru_cache(maxsize=16)
def _weights(shape: Shape, rate: float) -> Weights:
    return shape.weights(rate)


@lru_cache(maxsize=4)
def _covariance(shape: Shape, rate: float) -> Floats:
    """The levels add up the best estimates of the changes, whose information is that of the blocks they lie in."""
    periods = shape.blocks.periods
    information, at = np.zeros((periods, periods)), np.arange(periods)
    for width, scales in zip(shape.blocks.widths, shape.scales(rate), strict=True):
        measured = 1 / laplace_variance(scales)[at // width]
        information += np.where(at[:, None] // width == at // width, measured, 0.0)
    levels: Floats = np.linalg.inv(information).cumsum(0).cumsum(1)
    return levels


def drawn_changes(
    blocks: Blocks, weights: Weights, scales: Layers, top: int, bits: int, width: int, noise: Noise
) -> Counts:
    """The noise of the changes of the periods in one block of the highest layer, shape (periods, w), on the lattice.

    scales: of each block's Laplace noise, inf for one that is not measured. top: the block's number. width: w.
    """
    layers = [_within(blocks, layer, top) for layer in range(len(blocks.widths))]
    return estimated_changes(
        blocks,
        weights,
        top,
        [_drawn(scales[layer][first:end], width, noise) << bits for layer, (first, end) in enumerate(layers)],
    )


def estimated_changes(blocks: Blocks, weights: Weights, top: int, measured: list[Counts]) -> Counts:
    """The best estimate of each period's change within a block of the highest layer, from its blocks' measurements.

    measured: of each layer, the measurements of its blocks within the block, shape (blocks, w), on the lattice.
    """
    known, sums = [measured[0]], []
    for layer in range(1, len(blocks.widths)):
        first, end = _within(blocks, layer, top)
        children = _within(blocks, layer - 1, top)[0]
        together = np.add.reduceat(known[-1], blocks.first_children(layer)[first:end] - children)
        own = weights.own[layer][first:end, None]
        known.append(together + np.rint(own * (measured[layer] - together)).astype(np.int64))
        sums.append(together)
    best = known[-1]
    for layer in reversed(range(len(blocks.widths) - 1)):
        first, end = _within(blocks, layer, top)
        parent = blocks.parents(layer)[first:end]
        more = (best - sums[layer])[parent - parent[0]]
        until = weights.until[layer][first:end, None]
        shares = np.where(until == 1.0, more, np.rint(until * more).astype(np.int64))
        last = np.append(parent[1:] != parent[:-1], True)
        shares[last] = more[last]
        eldest = np.append(True, last[:-1])
        earlier = np.concatenate([np.zeros_like(shares[:1]), shares[:-1]])
        earlier[eldest] = 0
        best = known[layer] + shares - earlier
    return best


def _within(blocks: Blocks, layer: int, top: int) -> tuple[int, int]:
    """The first block of a layer within a block of the highest, and the one after the last."""
    step = blocks.widths[-1] // blocks.widths[layer]
    return top * step, min((top + 1) * step, blocks.counts[layer])


def _drawn(scales: Floats, width: int, noise: Noise) -> Counts:
    """Independent draws for these blocks, shape (blocks, w); those of one scale are drawn together."""
    found, which = np.unique(scales, return_inverse=True)
    drawn = np.zeros((len(scales), width), np.int64)
    for number, scale in enumerate(found.tolist()):
        if np.isfinite(scale):
            at = np.flatnonzero(which == number)
            drawn[at] = noise.laplace(scale, len(at) * width).reshape(-1, width)
    return drawn

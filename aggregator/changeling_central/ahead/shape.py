"""The shape of a tree of measurements: how wide its blocks are, and how the budget is shared out over the layers.

An entry that mutates in a period moves one block of every layer, so the rates (epsilon for one unit) along a path from
the top to a period add up to the same everywhere. Which part of what is left a block keeps for itself depends on its
place among its siblings: the level at the end of a middle one is known from both sides. Reads no data.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats

from ..changes.linear_query import LinearQuery
from ..matrix.reach import Reach, reaches
from .blocks import Blocks, Layers, Weights, weights

LEAST_SHARE = 1e-4
"""A block that would keep less of what is left is not measured."""
LEAST_VARIANCE = 1e-30
ABOVE = 1 + 1e-9

Curve = tuple[float, float, float]
"""a, b, c: a block at place u of [-1, 1] among its siblings keeps 1 / (1 + e^-(a + b u + c u²)) of what is left."""


MOST_LOOKED_AT = 2**24
"""Periods of windows that are sorted, all windows together."""


@dataclass(frozen=True)
class Shape:
    """blocks: the layers. curves: of every layer but the lowest, which keeps all that is left."""

    blocks: Blocks
    curves: tuple[Curve, ...]

    def __post_init__(self) -> None:
        if len(self.curves) != len(self.blocks.widths) - 1:
            raise ValueError(f"{len(self.blocks.widths)} layers have one curve less, got {len(self.curves)}")

    @cached_property
    def rates(self) -> Layers:
        """Of each block, the part of a path's rate that it keeps; 0 for one that is not measured."""
        left = np.ones(self.blocks.counts[-1])
        found = []
        for layer in reversed(range(1, len(self.blocks.widths))):
            a, b, c = self.curves[layer - 1]
            u = self.blocks.places(layer)
            share = 1 / (1 + np.exp(-np.clip(a + b * u + c * u * u, -50, 50)))
            share = np.where(share < LEAST_SHARE, 0.0, share)
            found.append(left * share)
            left = (left * (1 - share))[self.blocks.parents(layer - 1)]
        return (left, *reversed(found))

    def loss(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> float:
        """What an entry loses at most where the rates along a path add up to 1, rounded up.

        Exact, unless an entry mutates often, and in a long window: then a bound.
        """
        appears, moves = query.extent.appears[0], query.extent.moves[0]
        most = max(reached_at_most(self.apart, reach) for reach in reaches(constraint, calendar))
        return ABOVE * (appears + moves * most)

    @cached_property
    def apart(self) -> Floats:
        """Of each period but the first, the part of its path's rate that is not on the path of the one before."""
        apart, ends = np.ones(self.blocks.periods - 1), np.arange(1, self.blocks.periods)
        highest = len(self.rates) - 1
        path = self.rates[highest]
        for layer in reversed(range(1, len(self.rates))):
            if layer < highest:
                path = path[self.blocks.parents(layer)] + self.rates[layer]
            within = ends % self.blocks.widths[layer] != 0
            apart[within] = 1 - path[ends[within] // self.blocks.widths[layer]]
        return apart

    def scales(self, rate: float) -> Layers:
        """The scale of each block's Laplace noise where the rates along a path add up to `rate`; inf for none."""
        with np.errstate(divide="ignore"):
            return tuple(1 / (rate * rates) for rates in self.rates)

    def weights(self, rate: float) -> Weights:
        """The best weights of the blocks' measurements at this rate."""
        return weights(self.blocks, tuple(laplace_variance(scale) for scale in self.scales(rate)))


def reached_at_most(apart: Floats, reach: Reach) -> float:
    """What the paths of an entry's mutations have beyond the path of the first of them, at most.

    From one mutation to the next, that is the largest of `apart` between them; so the most is a sum of the largest
    within a window, one less than there are mutations.
    """
    more, span = min(reach.periods - 1, reach.span, len(apart)), min(reach.span, len(apart))
    if more <= 0:
        return 0.0
    anywhere = float(np.partition(apart, len(apart) - more)[-more:].sum())
    if more == 1 or span == len(apart):
        return anywhere
    sums = np.concatenate([[0.0], np.cumsum(apart)])
    within = float((sums[span:] - sums[:-span]).max())
    if more == span:
        return within
    if span * len(apart) > MOST_LOOKED_AT:
        return min(anywhere, within)
    windows = np.partition(np.lib.stride_tricks.sliding_window_view(apart, span), span - more, axis=1)
    return float(windows[:, -more:].sum(1).max())


def laplace_variance(scale: Floats) -> Floats:
    """2p / (1 - p)², p = e^(-1/scale), of each scale."""
    finite = np.isfinite(scale)
    x = np.minimum(1 / np.where(finite, scale, 1.0), 700.0)
    variance: Floats = np.where(finite, np.maximum(2 * np.exp(-x) / np.expm1(-x) ** 2, LEAST_VARIANCE), np.inf)
    return variance

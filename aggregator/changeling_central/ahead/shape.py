"""The shape of a tree of measurements: how wide its blocks are, and how the budget is shared out over the layers.

An entry that mutates in a period moves one block of every layer, so the rates (epsilon for one unit) along a path from
the top to a period add up to the same everywhere. Which part of what is left a block keeps for itself depends on its
place among its siblings: the level at the end of a middle one is known from both sides. Reads no data.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics.estimate import Floats

from ..changes.linear_query import LinearQuery
from ..matrix.reach import Reach, reaches
from .blocks import Blocks, Layers, Weights, weights

LEAST_SHARE = 1e-4
"""A block that would keep less of what is left is not measured."""
LEAST_VARIANCE = 1e-30
ABOVE = 1 + 1e-9

Curve = tuple[float, float, float]
"""a, b, c: a block at place u of [-1, 1] among its siblings keeps 1 / (1 + e^-(a + b u + c u²)) of what is left."""


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
        """What an entry loses at most where the rates along a path add up to 1, rounded up."""
        appears, moves = sum(query.appearing), sum(query.moving)
        return ABOVE * max(self._loss(appears, moves, reach) for reach in reaches(constraint, calendar))

    def _loss(self, appears: int, moves: int, reach: Reach) -> float:
        """By paths: a block that is the only one of its layer sees the entry appear, once. By windows: all blocks that
        a window meets, of which the first sees the entry appear. The smaller of the two."""
        top = float(self.rates[-1][0]) if self.blocks.counts[-1] == 1 and len(self.rates) > 1 else 0.0
        paths = appears * top + (appears + (reach.periods - 1) * moves) * (1 - top)
        if reach.span >= self.blocks.periods - 1 and reach.periods < self.blocks.periods:
            return paths
        first = np.arange(self.blocks.periods - reach.span)
        windows = np.zeros(len(first))
        for width, rates in zip(self.blocks.widths, self.rates, strict=True):
            total = np.concatenate([[0.0], np.cumsum(rates)])
            begins, ends = first // width, (first + reach.span) // width
            windows += appears * rates[begins] + moves * (total[ends + 1] - total[begins + 1])
        return min(paths, float(windows.max()))

    def scales(self, rate: float) -> Layers:
        """The scale of each block's Laplace noise where the rates along a path add up to `rate`; inf for none."""
        with np.errstate(divide="ignore"):
            return tuple(1 / (rate * rates) for rates in self.rates)

    def weights(self, rate: float) -> Weights:
        """The best weights of the blocks' measurements at this rate."""
        return weights(self.blocks, tuple(laplace_variance(scale) for scale in self.scales(rate)))


def laplace_variance(scale: Floats) -> Floats:
    """2p / (1 - p)², p = e^(-1/scale), of each scale."""
    finite = np.isfinite(scale)
    x = np.minimum(1 / np.where(finite, scale, 1.0), 700.0)
    variance: Floats = np.where(finite, np.maximum(2 * np.exp(-x) / np.expm1(-x) ** 2, LEAST_VARIANCE), np.inf)
    return variance

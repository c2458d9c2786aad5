"""The shape of a tree of measurements: how wide its blocks are, and how the budget is shared out over the layers.

An entry that mutates in a period moves one block of every layer, so the rates (epsilon for one unit) along a path from
the top to a period add up to the same everywhere. Which part of what is left a block keeps for itself depends on its
place among its siblings: the level at the end of a middle one is known from both sides. Reads no data.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import log

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats, Indices

from .linear_query import MOST_NUMBERS, Corner, LinearQuery, Reach, reaches
from .noise import ABOVE

Layers = tuple[Floats, ...]
"""A number for every block of every layer, the layer of single periods first."""


@dataclass(frozen=True)
class Blocks:
    """widths: of the layers' blocks in periods, 1 first, each dividing the next. The last block of a layer may be less.

    ValueError for other widths.
    """

    periods: int
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        pairs = zip(self.widths, self.widths[1:], strict=False)
        if self.periods < 1 or self.widths[:1] != (1,) or any(b <= a or b % a for a, b in pairs):
            raise ValueError(
                f"blocks of {self.periods} periods have widths 1, …, each dividing the next: {self.widths}"
            )
        if len(self.widths) > 1 and self.widths[-2] >= self.periods:
            raise ValueError(f"two layers of {self.widths} hold all {self.periods} periods as one block: fewer layers")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many blocks each layer has."""
        return tuple(-(-self.periods // width) for width in self.widths)

    def first_children(self, layer: int) -> Indices:
        """The number of the first child of each block of a layer but the lowest."""
        step = self.widths[layer] // self.widths[layer - 1]
        return np.arange(0, self.counts[layer - 1], step)

    def parents(self, layer: int) -> Indices:
        """The number of the parent of each block of a layer but the highest."""
        return np.arange(self.counts[layer]) // (self.widths[layer + 1] // self.widths[layer])

    def places(self, layer: int) -> Floats:
        """Where each block lies among its siblings, from -1 for the first to 1 for the last; an only one at 0."""
        count = self.counts[layer]
        step = self.widths[layer + 1] // self.widths[layer] if layer + 1 < len(self.widths) else count
        at = np.arange(count)
        siblings = np.minimum(step, count - at // step * step)
        places: Floats = (2 * (at % step) + 1 - siblings) / np.maximum(siblings - 1, 1)
        return places


@dataclass(frozen=True)
class Weights:
    """How the measurements are weighed.

    own: per layer, the weight of each block's own measurement against its children's sum; of single periods 1.
    until: per layer but the highest, the share of what the parent knows better that falls on a block and its elder
    siblings; 1 for the last. variances: of the level at the end of each period, shape (periods,).
    """

    own: Layers
    until: Layers
    variances: Floats


def weights(blocks: Blocks, variances: Layers) -> Weights:
    """The best weights. variances: of each block's measurement, inf for one that is not measured."""
    known = [variances[0]]
    own = [np.ones(blocks.periods)]
    before: list[Floats] = []
    for layer in range(1, len(blocks.widths)):
        together = np.add.reduceat(known[-1], blocks.first_children(layer))
        weight = 1 / (1 + variances[layer] / together)
        own.append(weight)
        before.append(together)
        known.append(together * (1 - weight))
    at_end = np.cumsum(known[-1])
    at_start = at_end - known[-1]
    between, until = at_start, []
    for layer in reversed(range(len(blocks.widths) - 1)):
        parent, v = blocks.parents(layer), known[layer]
        first = blocks.first_children(layer + 1)
        together = before[layer][parent]
        ends = np.cumsum(v)
        ends = ends - (ends[first] - v[first])[parent]  # of the variances of a block and its elder siblings
        q = np.minimum(ends / together, 1.0)
        p = np.maximum((ends - v) / together, 0.0)
        a, b, c = at_start[parent], at_end[parent], between[parent]
        at_start, at_end, between = (
            a * (1 - p) ** 2 + b * p**2 + 2 * c * p * (1 - p) + together * p * (1 - p),
            a * (1 - q) ** 2 + b * q**2 + 2 * c * q * (1 - q) + together * q * (1 - q),
            a * (1 - p) * (1 - q) + b * p * q + c * ((1 - p) * q + p * (1 - q)) + together * p * (1 - q),
        )
        until.append(q)
    return Weights(tuple(own), tuple(reversed(until)), at_end)


LEAST_SHARE = 1e-4
"""A block that would keep less of what is left is not measured."""
LEAST_VARIANCE = 1e-30

Curve = tuple[float, float, float]
"""a, b, c: a block at place u of [-1, 1] among its siblings keeps 1 / (1 + e^-(a + b u + c u²)) of what is left."""


MOST_FOLLOWED, MOST_SEARCHED = 64, 6
"""Mutations of an entry whose loss is followed through all blocks: of a shape, and of each that a search tries."""
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
        """The part of a path's rate that each block keeps; 0 for one that is not measured."""
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

    def loss(
        self, query: LinearQuery, calendar: Calendar, constraint: Constraint, followed: int = MOST_FOLLOWED
    ) -> float:
        """The most that an entry loses where the rates along a path add up to 1, rounded up.

        Exact of up to two mutations, and of as many as are followed that lie anywhere in a calendar of up to SHORT
        periods; else a bound. docs/mathematics.md, "Central releases".
        """
        return ABOVE * max(self._loss_of(query, reach, followed) for reach in reaches(constraint, calendar))

    def _loss_of(self, query: LinearQuery, reach: Reach, followed: int) -> float:
        apart = reached_at_most(self.apart, reach)
        bound = query.extent.appears[0] + query.extent.moves[0] * apart  # as if no two mutations ever cancelled
        if reach.periods == 1 or not (ends := query.ends):
            return bound
        if reach.periods == 2:
            pairs = product(ends, repeat=2)
            return max(_size(g) + apart * max(0, _size(f) + _distance(f, g) - _size(g)) for f, g in pairs)
        if reach.periods > followed or self.blocks.periods > SHORT:
            return bound
        return min(bound, self._followed(ends, reach.periods))

    def _followed(self, ends: tuple[Corner, ...], mutations: int) -> float:
        """The most that an entry loses between these ends, with so many mutations anywhere in the calendar.

        lost[m, i, j, b]: in the blocks within block b, entered at the end i and left at j, with at most m mutations.
        """
        nobody = (0,) * len(ends[0])
        states = [nobody, *(end for end in ends if end != nobody)]
        between = np.array([[_distance(f, g) for g in states] for f in states], np.float64)[:, :, None]
        still = np.where(np.eye(len(states), dtype=bool), 0.0, -np.inf)[:, :, None]
        lost = np.tile(between * self.rates[0], (mutations + 1, 1, 1, 1))
        lost[0] = still
        for layer, rates in enumerate(self.rates[1:], 1):
            lost = _together(lost, self.blocks.widths[layer] // self.blocks.widths[layer - 1], still)
            lost += rates * between
        return float(_together(lost, self.blocks.counts[-1], still)[mutations, 0].max())

    @cached_property
    def apart(self) -> Floats:
        """The part of the rate of each period's path, but the first's, that is not on the path of the one before."""
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


def _together(lost: Floats, step: int, still: Floats) -> Floats:
    """The losses of every `step` neighbouring blocks, one after the other: the shares of the mutations that lose most.

    still: the losses of a block without mutations, which the last ones are filled up with.
    """
    *way, count = lost.shape
    groups, full = -(-count // step), 1 << (step - 1).bit_length()
    filled = np.broadcast_to(still, (*way, groups * step)).copy()
    filled[..., :count] = lost
    each = np.broadcast_to(still[..., None], (*way, groups, full)).copy()
    each[..., :step] = filled.reshape(*way, groups, step)
    while each.shape[-1] > 1:
        first, second = each[..., ::2], each[..., 1::2]
        each = np.full_like(first, -np.inf)
        for m, between in product(range(way[0]), range(way[1])):
            one, other = first[m, :, between], second[: way[0] - m, between]
            np.maximum(each[m:], one[None, :, None] + other[:, None], out=each[m:])
    found: Floats = each[..., 0]
    return found


def _size(end: Corner) -> int:
    return sum(map(abs, end))


def _distance(one: Corner, other: Corner) -> int:
    return sum(abs(f - g) for f, g in zip(one, other, strict=True))


def reached_at_most(apart: Floats, reach: Reach) -> float:
    """The most that the paths of an entry's mutations have beyond the path of the first of them.

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


FACTORS = (4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32)
MOST_TOPS = 40
"""Blocks of the highest layer: more than that are better put together."""
MOST_AHEAD = 2**16
"""Periods whose noise is drawn at once, and so numbers of memory for each column."""
SHORT = 3000
"""Of calendars up to so many periods every mixture of factors is tried, of longer ones equal factors."""
EQUAL = range(3, 33)
FITTED = 3
SEARCH = {"gtol": 1e-3, "maxiter": 15}


def mean_variance(shape: Shape, rate: float) -> float:
    """Mean variance of the levels at the ends of all periods, in units squared."""
    return float(shape.weights(rate).variances.mean())


@lru_cache(maxsize=64)
def best_shape(query: LinearQuery, calendar: Calendar, constraint: Constraint, epsilon: float) -> Shape:
    """The shape of the least mean variance, a single layer included, which draws nothing ahead."""

    def figure(shape: Shape, followed: int = MOST_SEARCHED) -> float:
        return mean_variance(shape, epsilon / shape.loss(query, calendar, constraint, followed))

    starts = [shape for blocks in _candidates(calendar.periods, query.width) for shape in _starts(blocks)]
    tried = sorted(starts, key=figure)[: FITTED if calendar.periods <= SHORT else 1]
    fitted = [_fitted(shape, figure) for shape in tried]
    return min((*fitted, *tried), key=lambda shape: figure(shape, MOST_FOLLOWED))


def _candidates(periods: int, columns: int) -> Iterator[Blocks]:
    most = min(periods, MOST_AHEAD, MOST_NUMBERS // columns)
    if periods <= SHORT:
        every = _grown((1,), FACTORS, most)
    else:
        every = (widths for c in EQUAL for widths in _grown((1,), (c,), most))
    for widths in every:
        tops = -(-periods // widths[-1])
        if len(widths) == 1 or tops <= MOST_TOPS:
            yield Blocks(periods, widths)
            if tops > 1 and periods <= most:
                yield Blocks(periods, (*widths, tops * widths[-1]))


def _grown(widths: tuple[int, ...], factors: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """These widths, and all that are made of them by more layers, up to a width of `most`."""
    yield widths
    for factor in factors:
        if widths[-1] * factor <= most:
            yield from _grown((*widths, widths[-1] * factor), factors, most)


HALF = (0.0, 0.0, 0.0)
"""The curve of blocks that keep half of what is left."""


def _starts(blocks: Blocks) -> Iterator[Shape]:
    """Every layer keeps the same; or a block of all periods half, as then to come and go costs as much as to come."""
    even: list[Curve] = [(-log(layer), 0.0, 0.0) for layer in range(1, len(blocks.widths))]
    yield Shape(blocks, tuple(even))
    if blocks.counts[-1] == 1 and len(even) > 1:
        less = 0.25 * (len(even) - 1)  # near what searches end at
        yield Shape(blocks, (*((a - less, b, 0.55) for a, b, _ in even[:-1]), HALF))


def _fitted(start: Shape, figure: Callable[[Shape], float]) -> Shape:
    """The best shape that a search finds from this one, with a highest curve of HALF as it is at first.

    What an entry loses has an edge there, and a search does not go along an edge.
    """
    from scipy.optimize import minimize  # loads slowly

    best, layers = start, len(start.curves)

    def shape_of(flat: Floats, kept: tuple[Curve, ...]) -> Shape:
        return Shape(start.blocks, (*((float(a), float(b), float(c)) for a, b, c in flat.reshape(-1, 3)), *kept))

    for free in (layers - 1, layers) if start.curves[-1:] == (HALF,) else (layers,):
        if free:
            first, kept = np.ravel(best.curves[:free]), best.curves[free:]
            found = minimize(lambda x, kept=kept: log(figure(shape_of(x, kept))), first, method="BFGS", options=SEARCH)
            best = min(best, shape_of(found.x, kept), key=figure)
    return best

"""A tree of noise drawn ahead: levels with the accuracy of "when all is over", published as each period ends.

Guarantee: epsilon for all periods together. The curator knows the true changes x. Each block of a tree over the
calendar is measured as G x + z, z discrete Laplace noise, and what is published is read off that: A x + A G⁺ z, G⁺ the
best estimate from all blocks, those included that close later. z owes nothing to the data, so it is drawn before its
time. An entry that keeps to the constraint moves so many blocks of each layer, at their rates. Neighbours: as for DCR.

It holds where people react to what is published, too. Fix what is published, o: whoever reacts to it then feeds one of
two fixed streams, which are neighbours, and the chance of o is that of a fixed stream's, so the ratio is at most
e^epsilon at every o, although the noise was drawn before (docs/mathematics.md, "Central releases").

Nothing is lost to floating point. Estimates are made in whole parts of 2^-bits units, and only what the true changes
cancel out of is rounded, so whoever saw G x + z could compute what is published, to the last bit. The state holds the
true level and the noise to come, so keep it where the changelog is kept. Source: Hay, Rastogi, Miklau, Suciu 2010
(the estimate); Honaker 2015 (trees); Li, Hay, Rastogi, Miklau, McGregor 2010 (matrix mechanisms).

How the budget is shared out over the layers: an entry that mutates in a period moves one block of every layer, so the
rates (epsilon for one unit) along a path from the top to a period add up to the same everywhere. Which part of what is
left a block keeps for itself depends on its place among its siblings: the level at the end of a middle one is known
from both sides. Reads no data.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, log, log2

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Counts, Floats, Indices

from .linear_query import MOST_NUMBERS, Corner, LinearQuery, Reach, reaches
from .mechanism import LevelMechanism, LevelState, check_counted, check_counts
from .noise import ABOVE, Law, Noise

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
    at_end, until = np.cumsum(known[-1]), []
    between = at_end - known[-1]  # covariance of the levels at a block's two ends
    for layer in reversed(range(len(blocks.widths) - 1)):
        parent, v = blocks.parents(layer), known[layer]
        first = blocks.first_children(layer + 1)
        together = before[layer][parent]
        ends = np.cumsum(v)
        ends = ends - (ends[first] - v[first])[parent]  # of the variances of a block and its elder siblings
        q = np.minimum(ends / together, 1.0)
        p = np.maximum((ends - v) / together, 0.0)
        a, b, c = np.append(0.0, at_end[:-1])[parent], at_end[parent], between[parent]
        at_end, between = (
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
            between = _distances(ends)
            sizes = between[0]
            return float((sizes + apart * np.maximum(0, sizes[:, None] + between - sizes)).max())
        if reach.periods > followed or self.blocks.periods > SHORT:
            return bound
        return min(bound, self._followed(ends, reach.periods))

    def _followed(self, ends: tuple[Corner, ...], mutations: int) -> float:
        """The most that an entry loses between these ends, with so many mutations anywhere in the calendar.

        lost[m, i, j, b]: in the blocks within block b, entered at the end i and left at j, with at most m mutations.
        """
        between = _distances(ends)[:, :, None]
        still = np.where(np.eye(len(between), dtype=bool), 0.0, -np.inf)[:, :, None]
        lost = np.tile(between * self.rates[0], (mutations + 1, 1, 1, 1))
        lost[0] = still
        for layer, rates in enumerate(self.rates[1:], 1):
            lost = _together(lost, self.blocks.widths[layer] // self.blocks.widths[layer - 1], still)
            lost += rates * between
        return float(_together(lost, self.blocks.counts[-1], still)[mutations, 0].max())

    @cached_property
    def apart(self) -> Floats:
        """The part of the rate of each period's path, but the first's, that is not on the path of the one before."""
        at = np.arange(1, self.blocks.periods)
        layers = zip(self.blocks.widths, self.rates, strict=True)
        apart: Floats = np.sum([np.where(at % width == 0, rates[at // width], 0.0) for width, rates in layers], axis=0)
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


def _distances(ends: tuple[Corner, ...]) -> Floats:
    """How far nobody, who comes first, and the ends of what an entry counts for are from each other."""
    states = np.array([(0,) * len(ends[0]), *(end for end in ends if any(end))], np.float64)
    distances: Floats = np.abs(states[:, None] - states).sum(2)
    return distances


def reached_at_most(apart: Floats, reach: Reach) -> float:
    """The most that the paths of an entry's mutations have beyond the path of the first of them.

    From one mutation to the next, that is the largest of `apart` between them; so the most is a sum of the largest
    within a window, one less than there are mutations.
    """
    more, span = min(reach.periods - 1, reach.span, len(apart)), min(reach.span, len(apart))
    if more <= 0:
        return 0.0
    if span * len(apart) > MOST_LOOKED_AT:
        anywhere, sums = np.partition(apart, len(apart) - more)[-more:].sum(), np.cumsum(np.append(0.0, apart))
        return float(min(anywhere, (sums[span:] - sums[:-span]).max()))
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


@lru_cache(maxsize=64)
def best_shape(query: LinearQuery, calendar: Calendar, constraint: Constraint, epsilon: float) -> Shape:
    """The shape of the least mean variance, a single layer included, which draws nothing ahead."""

    def figure(shape: Shape, followed: int = MOST_SEARCHED) -> float:
        rate = epsilon / shape.loss(query, calendar, constraint, followed)
        return float(shape.weights(rate).variances.mean())

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


# The mechanism

BITS = 20
"""A unit is cut into so many halves at most; fewer where noise is large."""
TAILS = 64
"""Noise is less than so many scales, but for a chance below e^-64 a draw."""


@dataclass(frozen=True, slots=True, eq=False)
class AheadState(LevelState):
    """total: the level's noise, in parts of a unit.

    ahead: the noise of the changes of the periods to come, (periods, w), in parts of a unit, as far as it is drawn.
    """

    total: Counts
    ahead: Counts


class NoiseAhead(LevelMechanism[AheadState]):
    """A mechanism whose noise is drawn ahead, for many periods at once, and known to owe nothing to the data."""

    __slots__ = ()

    @property
    @abstractmethod
    def together(self) -> int:
        """Periods whose noise is drawn at once."""

    @abstractmethod
    def drawn(self, period: int, noise: Noise) -> Counts:
        """The noise of the changes of the periods after this one that are drawn at once, (periods, w), in parts."""

    def start(self) -> AheadState:
        """Before the first period; nothing is drawn."""
        nothing = np.zeros(self.query.width, np.int64)
        return AheadState(0, nothing, nothing, np.zeros((0, self.query.width), np.int64))

    def moved(self, state: AheadState, level: Counts, noise: Noise) -> tuple[AheadState, Counts]:
        """The first of the periods that are drawn together draws for all of them."""
        ahead = state.ahead if len(state.ahead) else self.drawn(state.period, noise)
        after = AheadState(state.period + 1, level, state.total + ahead[0], ahead[1:].copy())
        return after, after.total

    def check(self, state: AheadState) -> None:
        """Raises BadState as any, and for noise that is not drawn by now."""
        LevelMechanism.check(self, state)
        width, together = self.query.width, self.together
        ends = min(-(-state.period // together) * together, self.calendar.periods)
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
    rho: Fraction | None = None

    @property
    def noise_in_words(self) -> str:
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
    def bits(self) -> int:  # type: ignore[override]
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
        top, blocks = period // self.widths[-1], self.shape.blocks
        measured = []
        for layer, scales in enumerate(self.shape.scales(self.rate)):
            first, end = _within(blocks, layer, top)
            measured.append(_drawn(scales[first:end], self.query.width, noise) << self.bits)
        return estimated_changes(blocks, _weights(self.shape, self.rate), top, measured)

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
    check_counted(query)
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

"""Which tree to draw ahead: the widths and curves of the least mean variance of levels, from exact figures.

Reads no data, so the choice costs nothing. Shapes are compared with even shares first; of the best few the curves are
then fitted, by a search that may end a little above the least.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import log

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats

from ..changes.linear_query import LinearQuery
from ..matrix.toeplitz import MOST_NUMBERS
from .blocks import Blocks
from .shape import Shape

FACTORS = (4, 6, 8, 10, 12, 16, 18, 20, 24, 32)
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
    """Of the levels at the ends of all periods, in units squared."""
    return float(shape.weights(rate).variances.mean())


@lru_cache(maxsize=64)
def best_shape(query: LinearQuery, calendar: Calendar, constraint: Constraint, epsilon: float) -> Shape:
    """The shape of the least mean variance, a single layer included, which draws nothing ahead."""

    def figure(shape: Shape) -> float:
        return mean_variance(shape, epsilon / shape.loss(query, calendar, constraint))

    candidates = map(_even, _candidates(calendar.periods, query.width))
    even = sorted((figure(shape), shape.blocks.widths) for shape in candidates)
    tried = FITTED if calendar.periods <= SHORT else 1
    fitted = [_fitted(widths, calendar.periods, figure) for _, widths in even[:tried]]
    return min(fitted, key=figure)


def _candidates(periods: int, columns: int) -> Iterator[Blocks]:
    most = min(periods, MOST_AHEAD, MOST_NUMBERS // columns)
    if periods <= SHORT:
        every = _grown((1,), FACTORS, most)
    else:
        every = (widths for c in EQUAL for widths in _grown((1,), (c,), most))
    for widths in every:
        if len(widths) == 1 or -(-periods // widths[-1]) <= MOST_TOPS:
            yield Blocks(periods, widths)


def _grown(widths: tuple[int, ...], factors: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """These widths, and all that are made of them by more layers, up to a width of `most`."""
    yield widths
    for factor in factors:
        if widths[-1] * factor <= most:
            yield from _grown((*widths, widths[-1] * factor), factors, most)


def _even(blocks: Blocks) -> Shape:
    """Every layer keeps the same."""
    return Shape(blocks, tuple((-log(layer), 0.0, 0.0) for layer in range(1, len(blocks.widths))))


def _fitted(widths: tuple[int, ...], periods: int, figure: Callable[[Shape], float]) -> Shape:
    from scipy.optimize import minimize  # loads slowly

    start = _even(Blocks(periods, widths))
    if len(widths) == 1:
        return start

    def shape_of(flat: Floats) -> Shape:
        return Shape(start.blocks, tuple((float(a), float(b), float(c)) for a, b, c in flat.reshape(-1, 3)))

    found = minimize(lambda flat: log(figure(shape_of(flat))), np.ravel(start.curves), method="BFGS", options=SEARCH)
    return min(start, shape_of(found.x), key=figure)

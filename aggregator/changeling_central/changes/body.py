"""How far one entry can move the columns of a query together, in both norms, where they hang together.

What an entry counts for lies in a simplex with known corners, or is 0 for nobody. Distances are convex, so they are
largest between corners: from 0 where an entry appears or goes, from corner to corner where it changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from changeling_statistics import Counts

State = tuple[int, ...]
"""What an entry counts for, a number for each column of a query."""
NEAR = 1e-9
"""Of the rounding of a share of a corner, and of what shares then do not add up to, relative."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How far an entry moves a query in one node. appears: from nobody to an answer, or back. moves: anyhow.

    Sums of sizes over the columns first, sums of squares second, in units and units squared.
    """

    appears: tuple[int, int]
    moves: tuple[int, int]


def extent_of(corners: Sequence[State], fixed: bool) -> Extent:
    """The extent of entries that count for anything between these corners. fixed: no entry holds two answers."""
    appears = _most(corners, _sum), _most(corners, _squares)
    between = [] if fixed else [tuple(a - b for a, b in zip(*pair, strict=True)) for pair in combinations(corners, 2)]
    return Extent(appears, (_most([*corners, *between], _sum), _most([*corners, *between], _squares)))


def extent_of_sizes(appearing: Sequence[int], moving: Sequence[int]) -> Extent:
    """The extent of entries that shift so many columns by so much at most, all of them together."""
    return Extent((_sum(appearing), _squares(appearing)), (_sum(moving), _squares(moving)))


def check_within(rows: Counts, corners: Sequence[State]) -> None:
    """ValueError for a row, of shape (rows, w), that is no mixture of the corners, or for corners of no simplex."""
    scale = max(1, _most(corners, _sum))
    system = np.concatenate([np.array(corners, np.float64) / scale, np.ones((len(corners), 1))], 1).T
    if np.linalg.matrix_rank(system) < len(corners):
        raise ValueError(f"the corners of what an entry counts for span a simplex, got {list(corners)}")
    sought = np.concatenate([rows / scale, np.ones((len(rows), 1))], 1).T
    shares = np.linalg.lstsq(system, sought, rcond=None)[0]
    off = np.abs(system @ shares - sought) > NEAR
    if np.any(shares < -NEAR) or off.any() or np.any(np.abs(rows).sum(1) > _most(corners, _sum)):
        raise ValueError(f"an entry counts for something that is not between {list(corners)}")


def _most(moved: Sequence[State], norm: Callable[[Sequence[int]], int]) -> int:
    return max((norm(each) for each in moved), default=0)


def _sum(sizes: Sequence[int]) -> int:
    return sum(abs(size) for size in sizes)


def _squares(sizes: Sequence[int]) -> int:
    return sum(size**2 for size in sizes)

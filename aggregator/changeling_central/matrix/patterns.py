"""The most that an entry moves what a Toeplitz strategy measures, over every way to mutate at most k times.

A way goes through states f_1, …, f_k, in periods p_1 <= … <= p_k; with jumps a_i = f_i - f_{i-1}, f_0 = 0 for nobody,

    ‖C x‖² = Σ_ij <a_i, a_j> G(p_i, p_j)          G: `products`

It is convex in each state, so only the corners of what an entry may count for matter, and p_1 is the first period. The
periods are searched by branch and bound: over a box of them G lies between its values at two corners of the box, as it
rises in one argument and falls in the other, and boxes that cannot hold more than was attained are dropped. What is
left when none can be cut any more, or when there are too many, makes the bound. Proofs: docs/mathematics.md, "Square
roots". Reads no data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import inf

import numpy as np
from changeling_statistics import Floats

from ..changes.body import State
from .boxes import searched, values
from .products import Products, products

MOST_BOXES = 500_000
"""That are looked at, over all ways through the states: about a second of processor time."""
MOST_MUTATIONS = 5, 4
"""That are searched, between two corners and between more."""
MOST_WAYS = 2**17
"""Through all periods of a window, so few that each is looked at."""
CLOSE = 1e-10
"""Relative: an ascent by less ends it."""
STARTS = 4
"""Of the ascent that finds what boxes are compared with."""


@dataclass(frozen=True, slots=True)
class Most:
    """attained: ‖C x‖² of an entry, in units squared. bound: what no entry exceeds; the same where the search ended."""

    attained: float
    bound: float


@lru_cache(maxsize=64)
def most_of_patterns(states: tuple[State, ...], mutations: int, periods: int, band: int, span: int) -> Most:
    """The most over at most so many mutations, from the first to the last at most `span` periods apart.

    states: the corners of what an entry counts for, of which nobody, who counts for nothing, may be one.
    Exact, up to rounding, unless too many boxes were met or the window has more than `products.MOST_POINTS` periods.
    Of more than `MOST_MUTATIONS` nothing is told but in the shortest windows.
    """
    last = periods if span >= periods - 1 else span
    few = len({*states, (0,) * len(states[0])}) ** (last + 1) <= MOST_WAYS
    if not few and mutations > MOST_MUTATIONS[len(states) > 2]:
        return Most(0.0, inf)
    held = products(periods, band, last)
    largest = max(abs(f) for state in states for f in state)
    corners = np.array(sorted({*states, (0,) * len(states[0])}), np.float64) / largest
    if few:
        each = _of_every_way(corners, mutations, held) * largest**2
        return Most(each, each)
    forms = list(_forms(states, mutations, largest))
    ascents = [_ascent(form, held) for form in forms]
    attained, bound, left = max(ascents), 0.0, MOST_BOXES
    for at in sorted(range(len(forms)), key=lambda at: -ascents[at]):
        attained, exceeded_by_none, looked_at = searched(forms[at], held, attained, left)
        bound, left = max(bound, exceeded_by_none), left - looked_at
    return Most(attained * largest**2, max(attained, bound) * largest**2)


def _of_every_way(corners: Floats, mutations: int, held: Products) -> float:
    """The most over all that an entry can hold in each period of a short window."""
    periods = len(held.table)
    ways = np.indices((len(corners),) * periods).reshape(periods, -1).T
    nobody = int(np.flatnonzero(~corners.any(1))[0])
    before = np.concatenate([np.full((len(ways), 1), nobody), ways[:, :-1]], 1)
    ways = ways[(ways != before).sum(1) <= mutations]
    jumps = np.diff(corners[ways], axis=1, prepend=np.zeros((len(ways), 1, corners.shape[1])))
    table = held.table + np.triu(held.table, 1).T
    return float(np.einsum("ntw,ts,nsw->n", jumps, table, jumps, optimize=True).max())


def _forms(states: Sequence[State], mutations: int, largest: int) -> Iterator[Floats]:
    """The different <a_i, a_j> / largest² of all ways through the states, shape (k, k), with k mutations or one less.

    Ways with fewer are among these: they go through a state for no time at all.
    """
    known: set[bytes] = set()
    for k in range(mutations, max(0, mutations - 2), -1):
        for way in product(range(len(states)), repeat=k):
            if any(a == b for a, b in pairwise(way)):
                continue
            held = np.array([[0] * len(states[0]), *(states[at] for at in way)], np.float64) / largest
            jumps = np.diff(held, axis=0)
            if not jumps[0].any():
                continue
            form = jumps @ jumps.T
            if form.tobytes() not in known:
                known.add(form.tobytes())
                yield form


def _ascent(form: Floats, held: Products) -> float:
    """What moving one mutation after another to its best period attains."""
    k, best = len(form), 0.0
    for start in range(STARTS):
        at = np.linspace(0, held.whole - 1, k + 1 if start % 2 else k)[:k].astype(np.int16)
        at = at if start < STARTS // 2 else (at.astype(np.int64) ** 2 // max(held.whole - 1, 1)).astype(np.int16)
        reached = -1.0
        while (value := float(values(form, held, at[None])[0])) > reached * (1 + CLOSE):
            reached = value
            for i in range(1, k):
                places = np.arange(at[i - 1], (at[i + 1] if i + 1 < k else held.whole - 1) + 1)
                tried = np.repeat(at[None], len(places), 0)
                tried[:, i] = places
                at = tried[int(np.argmax(values(form, held, tried)))]
        best = max(best, reached)
    return best

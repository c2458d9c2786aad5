"""Many sign vectors at once: from ranks to vectors, in the protocol's order, and random sums of uniform vectors.

Knows no randomizer, and decodes nothing.
"""

from functools import lru_cache

import numpy as np
from changeling_protocol import SignVectors, arrangements
from numpy.typing import NDArray

from ..estimate import Floats
from ..tallies import Counts
from .symbol_contents import Contents


def unrank_signs(vectors: SignVectors, ranks: NDArray[np.int64]) -> Contents:
    """The sign vectors of some ranks, shape (n, length).

    ranks: from 0 to vectors.count - 1, shape (n,).
    """
    signs = np.empty((len(ranks), vectors.length), np.int8)
    remaining = ranks.copy()
    shape_of = np.zeros(len(ranks), np.intp)
    for shape in vectors.shapes[:-1]:
        size = arrangements(vectors.length, *shape)
        later = (remaining >= size) & (shape_of == vectors.shapes.index(shape))
        remaining[later] -= size
        shape_of[later] += 1
    pluses, minuses = np.array(vectors.shapes, np.intp)[shape_of].T
    for position in range(vectors.length):
        sizes = _sizes(vectors, vectors.length - position - 1)
        with_plus, with_minus = sizes[pluses, minuses + 1], sizes[pluses + 1, minuses]
        plus = remaining < with_plus
        minus = ~plus & (remaining < with_plus + with_minus)
        remaining -= np.where(plus, 0, np.where(minus, with_plus, with_plus + with_minus))
        pluses, minuses = pluses - plus, minuses - minus
        signs[:, position] = plus.astype(np.int8) - minus
    return signs


@lru_cache(maxsize=1024)
def _sizes(vectors: SignVectors, left: int) -> NDArray[np.int64]:
    """How many arrangements p pluses and q minuses have on the last `left` positions, in row p + 1, column q + 1.

    Row and column 0 stand for -1, which is impossible, and are 0. Only cells that the vectors can reach are filled;
    the others could exceed 63 bits.
    """
    table = np.zeros((max(p for p, _ in vectors.shapes) + 2, max(q for _, q in vectors.shapes) + 2), np.int64)
    for most_pluses, most_minuses in vectors.shapes:
        for p in range(most_pluses + 1):
            for q in range(most_minuses + 1):
                used = vectors.length - left
                if most_pluses - p + most_minuses - q <= used:
                    table[p + 1, q + 1] = arrangements(left, p, q)
    return table


def sample_vector_sums(vectors: SignVectors, counts: Counts, generator: np.random.Generator) -> tuple[Counts, Counts]:
    """Draws how often each position has a plus, and how often a minus, in sums of uniform vectors.

    counts: how many vectors each sum is of, shape (sums,).
    Returns pluses and minuses, each of shape (sums, length). Position by position it draws how many vectors have a
    plus, a minus or a zero there, given how many of each they have left.
    """
    shapes = np.array(vectors.shapes, np.intp)
    # left[i, p, q]: how many vectors of row i still have p pluses and q minuses to place.
    left = np.zeros((len(counts), *(shapes.max(0) + 1)), np.int64)
    sizes = np.array([arrangements(vectors.length, *shape) / vectors.count for shape in vectors.shapes])
    left[:, shapes[:, 0], shapes[:, 1]] = generator.multinomial(counts, sizes)
    pluses, minuses = (np.zeros((len(counts), vectors.length), np.int64) for _ in range(2))
    for position in range(vectors.length):
        drawn = generator.multinomial(left, _chances(left.shape[1:], vectors.length - position))
        pluses[:, position] = drawn[..., 0].sum((1, 2))
        minuses[:, position] = drawn[..., 1].sum((1, 2))
        left = drawn[..., 2].copy()
        left[:, :-1] += drawn[:, 1:, :, 0]
        left[:, :, :-1] += drawn[:, :, 1:, 1]
    return pluses, minuses


@lru_cache(maxsize=1024)
def _chances(shape: tuple[int, int], length: int) -> Floats:
    """The chances of +, - and 0 at the first of `length` positions, shape (*shape, 3), by pluses and minuses left."""
    chances = np.zeros((*shape, 3))
    chances[..., 2] = 1
    for p, q in np.ndindex(shape):
        if every := arrangements(length, p, q):
            first = ((p - 1, q), (p, q - 1), (p, q))
            chances[p, q] = [arrangements(length - 1, *rest) / every for rest in first]
    return chances

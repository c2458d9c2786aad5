"""What symbols say of each state: sign vectors, sets and bits, unranked many at once.

The vectorised twin of the protocol's unranking; it sums nothing and knows no estimator.
"""

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from changeling_protocol import SignedSubset, SubsetSelection, UnaryEncoding
from changeling_protocol.randomizers import SignVectors
from changeling_protocol.randomizers.sign_vectors import arrangements
from numpy.typing import NDArray

Contents: TypeAlias = NDArray[np.int8]
"""Shape (n, states): +1, -1 or 0 for signs; 1 or 0 for sets and bits. A state report's states are its inputs."""
ByContents: TypeAlias = SignedSubset | SubsetSelection | UnaryEncoding
"""Randomizers whose symbols say something of every state."""


def contents(randomizer: ByContents, symbols: NDArray[np.uint64]) -> Contents:
    """What each of n symbols says, shape (n, states), all of them in range; "nothing" is a row of zeros."""
    match randomizer:
        case SignedSubset():
            told = symbols >= randomizer.quiet
            signs = np.zeros((len(symbols), randomizer.states), np.int8)
            signs[told] = unrank_signs(randomizer.vectors, symbols[told].astype(np.int64) - randomizer.quiet)
            return signs
        case SubsetSelection():
            return unrank_signs(randomizer.subsets, symbols.astype(np.int64))
        case UnaryEncoding():
            bits = np.arange(randomizer.space.size, dtype=np.uint64)
            return (symbols.astype(np.uint64)[:, None] >> bits & np.uint64(1)).astype(np.int8)


@lru_cache(maxsize=64)
def all_contents(randomizer: ByContents) -> Contents:
    """The contents of every symbol in order, shape (symbols, states); for small alphabets."""
    every = contents(randomizer, np.arange(randomizer.symbols, dtype=np.uint64))
    every.flags.writeable = False
    return every


def unrank_signs(vectors: SignVectors, ranks: NDArray[np.int64]) -> Contents:
    """The sign vectors at these places of the order, shape (n, length)."""
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
    """Arrangements of `left` positions; row p + 1 and column q + 1 for p pluses and q minuses, from -1 on.

    Only entries that the vectors can reach are filled, the others could exceed 63 bits.
    """
    table = np.zeros((max(p for p, _ in vectors.shapes) + 2, max(q for _, q in vectors.shapes) + 2), np.int64)
    for most_pluses, most_minuses in vectors.shapes:
        for p in range(most_pluses + 1):
            for q in range(most_minuses + 1):
                used = vectors.length - left
                if most_pluses - p + most_minuses - q <= used:
                    table[p + 1, q + 1] = arrangements(left, p, q)
    return table

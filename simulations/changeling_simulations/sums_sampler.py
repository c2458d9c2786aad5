"""Sums of the contents of many reports, for alphabets too large to count symbol by symbol.

A response is, with a known chance, uniform over the whole alphabet, and otherwise uniform over what its input
favours. The sum of uniform vectors is drawn position by position: how many get a plus, a minus or a zero there,
given how many of each they have left.
"""

from functools import lru_cache

import numpy as np
from changeling_protocol import SignedSubset, SubsetSelection, UnaryEncoding
from changeling_protocol.randomizers import SignVectors
from changeling_protocol.randomizers.sign_vectors import arrangements
from changeling_statistics.tallies import Counts
from numpy.typing import NDArray


def sample_signed_sums(randomizer: SignedSubset, counts: Counts, generator: np.random.Generator) -> Counts:
    """How many of sum(counts) reports say nothing, then give each state a plus, then a minus."""
    space, vectors, u = randomizer.space, randomizer.vectors, randomizer.spoken
    count = vectors.count
    gain = u * randomizer.favoured * (randomizer.odds.favoured - randomizer.odds.other)
    plain = float(count * randomizer.odds.other / (count * randomizer.odds.other + gain))  # 1 / Z
    changes = counts.copy()
    changes[0] = 0
    favoured = changes - generator.binomial(changes, plain)
    uniform = int(counts.sum() - favoured.sum())
    spoken = int(generator.binomial(uniform, float(u)))
    pluses, minuses = (sums[0] for sums in sample_vector_sums(vectors, np.array([spoken]), generator))
    held = np.flatnonzero(favoured)
    rest = vectors.completing({0: 1, 1: -1})
    rest_pluses, rest_minuses = sample_vector_sums(rest, favoured[held], generator)
    for row, true in enumerate(held.tolist()):
        old, new = space.pair(true)
        others = [state for state in range(randomizer.states) if state not in (old, new)]
        pluses[others] += rest_pluses[row]
        minuses[others] += rest_minuses[row]
        pluses[new] += favoured[true]
        minuses[old] += favoured[true]
    return np.concatenate([[uniform - spoken], pluses, minuses])


def sample_set_sums(randomizer: SubsetSelection, counts: Counts, generator: np.random.Generator) -> Counts:
    """How many of sum(counts) sets name each input."""
    subsets, size = randomizer.subsets, randomizer.space.size
    favoured = generator.binomial(counts, 1 - subsets.count * randomizer.odds.other / randomizer.total())
    uniform = np.array([counts.sum() - favoured.sum()])
    named: Counts = sample_vector_sums(subsets, uniform, generator)[0][0]
    others, _ = sample_vector_sums(subsets.completing({0: 1}), favoured, generator)
    for true in range(size):
        named[np.arange(size) != true] += others[true]
    named += favoured
    return named


def sample_bit_sums(randomizer: UnaryEncoding, counts: Counts, generator: np.random.Generator) -> Counts:
    """How many of sum(counts) bit strings set each input's bit."""
    q = randomizer.odds.other / (randomizer.odds.favoured + randomizer.odds.other)
    bits: Counts = generator.binomial(counts, 0.5) + generator.binomial(counts.sum() - counts, q)
    return bits


def sample_vector_sums(vectors: SignVectors, counts: Counts, generator: np.random.Generator) -> tuple[Counts, Counts]:
    """Pluses and minuses per position of counts[i] uniform vectors, each of shape (len(counts), length)."""
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
def _chances(shape: tuple[int, int], length: int) -> NDArray[np.float64]:
    """Of +, - and 0 at the first of `length` positions, by how many pluses and minuses are left."""
    chances = np.zeros((*shape, 3))
    chances[..., 2] = 1
    for p, q in np.ndindex(shape):
        if every := arrangements(length, p, q):
            first = ((p - 1, q), (p, q - 1), (p, q))
            chances[p, q] = [arrangements(length - 1, *rest) / every for rest in first]
    return chances

"""Draws the sums of many signed subsets at once, for alphabets too large to count symbol by symbol."""

import numpy as np
from changeling_protocol import SignedSubset

from ...tallies import Counts
from ..sign_vectors import sample_vector_sums


def sample_sums(randomizer: SignedSubset, counts: Counts, generator: np.random.Generator) -> Counts:
    """Draws how many of many reports say nothing, then how many give each state a plus, then a minus.

    A report is with chance 1/Z like that of an entry without a change, and else uniform over the vectors that its
    input favours.

    counts: how many entries have each input, shape (m,). Returns shape (1 + 2d,).
    """
    vectors, u = randomizer.vectors, randomizer.spoken
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
        old, new = randomizer.positions(true)
        others = [state for state in range(randomizer.states) if state not in (old, new)]
        pluses[others] += rest_pluses[row]
        minuses[others] += rest_minuses[row]
        pluses[new] += favoured[true]
        minuses[old] += favoured[true]
    return np.concatenate([[uniform - spoken], pluses, minuses])

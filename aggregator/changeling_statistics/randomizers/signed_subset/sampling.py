"""Draws the sums of many signed subsets at once, for alphabets too large to count symbol by symbol."""

from functools import lru_cache
from itertools import product

import numpy as np
from changeling_protocol import SignedSubset, SignVectors

from ...estimate import Floats
from ...tallies import Counts
from ..sign_vectors import sample_vector_sums

AGREES = 1, -1
CLASSES = tuple(product((1, -1, 0), repeat=2))
"""The signs that a vector can have at `new` and at `old`; those with the signs `AGREES` agree."""


def sample_sums(randomizer: SignedSubset, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
    """Draws how many of many reports say nothing, then how many give each state a plus, then a minus.

    agreed, others: how many reports of each input agree with it, and how many do not, shape (m,); none of no change.
    Returns shape (1 + 2d,).
    """
    rests, chances = _classes(randomizer)
    held = np.flatnonzero(agreed + others)
    old, new = np.array([randomizer.positions(true) for true in held.tolist()], np.intp).reshape(-1, 2).T
    drawn = generator.multinomial(others[held], chances)
    drawn[:, 1 + CLASSES.index(AGREES)] = agreed[held]
    rows, elsewhere = np.arange(len(held)), np.ones((len(held), randomizer.states), np.bool_)
    elsewhere[rows, old] = elsewhere[rows, new] = False
    signs = np.zeros((2, len(held), randomizer.states), np.int64)
    for (at_new, at_old), rest, reports in zip(CLASSES, rests, drawn[:, 1:].T, strict=True):
        if not reports.any():
            continue
        for of_sign, sign, at_rest in zip(signs, (1, -1), sample_vector_sums(rest, reports, generator), strict=True):
            of_sign[elsewhere] += at_rest.ravel()
            of_sign[rows, new] += reports * (at_new == sign)
            of_sign[rows, old] += reports * (at_old == sign)
    return np.concatenate([[drawn[:, 0].sum()], *signs.sum(1)])


@lru_cache(maxsize=256)
def _classes(randomizer: SignedSubset) -> tuple[list[SignVectors], Floats]:
    """For each class the vectors over the other states; and how likely a report that does not agree says nothing, or
    is of each class, shape (10,)."""
    vectors, u = randomizer.vectors, float(randomizer.spoken)
    rests = [vectors.completing({0: at_new, 1: at_old}) for at_new, at_old in CLASSES]
    chances = np.array([1 - u, *(u * rest.count / vectors.count for rest in rests)])
    chances[1 + CLASSES.index(AGREES)] = 0
    return rests, chances / chances.sum()

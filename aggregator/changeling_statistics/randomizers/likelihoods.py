"""What symbols say of two inputs: their probabilities under each, merged by likelihood ratio, exactly.

And which pairs of inputs there are: two changelogs differ on a node in one of four kinds of pairs.
"""

from collections.abc import Iterable
from enum import Enum
from fractions import Fraction
from itertools import permutations
from math import gcd
from typing import TypeAlias

from changeling_protocol import Randomizer
from changeling_protocol.randomizers import Space

Likelihoods: TypeAlias = tuple[tuple[Fraction, Fraction], ...]
"""Pairs (p, q): a class of symbols has probability p under the one input and q under the other."""

MOST_SYMBOLS = 2**14
"""The most symbols of an alphabet that is listed."""


class PairKind(Enum):
    """How two changelogs differ on a node, as in Losses. Of a state report every pair is of every kind."""

    MUTATIONS = "two mutations"
    APPEARS = "a mutation against no change"
    VANISHES = "no change against a mutation"
    INSERTIONS = "two insertions"


def listed_likelihoods(randomizer: Randomizer, u: int, v: int) -> Likelihoods:
    """(Pr(class | u), Pr(class | v)) for the classes of symbols of equal ratio, from a look at every symbol.

    Raises ValueError if the alphabet is too large for that.
    """
    if randomizer.symbols > MOST_SYMBOLS:
        raise ValueError(
            f"{randomizer.symbols} symbols are too many to list (at most {MOST_SYMBOLS}): "
            f"register a closed form of likelihoods for {type(randomizer).__name__}"
        )
    pairs = ((randomizer.weight(o, u), randomizer.weight(o, v)) for o in range(randomizer.symbols))
    return merged(((w, x, 1) for w, x in pairs), randomizer.total(u), randomizer.total(v))


def merged(classes: Iterable[tuple[int, int, int]], total_u: int, total_v: int) -> Likelihoods:
    """Classes (weight under u, weight under v, how many symbols) with equal ratios merged; empty ones left out."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for w, x, count in classes:
        if count and (w or x):
            divisor = gcd(w, x)
            ratio = w // divisor, x // divisor
            p, q = sums.get(ratio, (0, 0))
            sums[ratio] = p + w * count, q + x * count
    return tuple((Fraction(p, total_u), Fraction(q, total_v)) for p, q in sums.values())


def all_pairs(space: Space, kind: PairKind) -> list[tuple[int, int]]:
    """Every pair of inputs (u, v) of a kind. Of changes, input 0 is none."""
    if not space.reports_changes:
        return list(permutations(range(space.size), 2))
    mutations = [u for u in range(space.size) if space.pair(u)[0] != space.pair(u)[1]]
    match kind:
        case PairKind.MUTATIONS:
            return list(permutations(mutations, 2))
        case PairKind.APPEARS:
            return [(u, 0) for u in mutations]
        case PairKind.VANISHES:
            return [(0, u) for u in mutations]
        case PairKind.INSERTIONS:
            return list(permutations((u for u in mutations if space.pair(u)[0] == 0), 2))


def one_pair(space: Space, kind: PairKind) -> list[tuple[int, int]]:
    """One pair of a kind, for randomizers to which all pairs look alike; of two mutations, one and its reverse."""
    if not space.reports_changes:
        return [(0, 1)] if space.size > 1 else []
    mutation = space.index(0, 1)
    match kind:
        case PairKind.MUTATIONS:
            return [(mutation, space.index(1, 0))]
        case PairKind.APPEARS:
            return [(mutation, 0)]
        case PairKind.VANISHES:
            return [(0, mutation)]
        case PairKind.INSERTIONS:
            return [(mutation, space.index(0, 2))] if space.answers > 1 else []

"""How likely each symbol is under two inputs, exactly, and which pairs of inputs there are to compare.

Symbols of one likelihood ratio say the same of the two inputs, so they are added up to one class.
"""

from collections.abc import Iterable
from enum import Enum
from fractions import Fraction
from itertools import permutations
from math import gcd
from typing import TypeAlias

from changeling_protocol import Randomizer, Space

Likelihoods: TypeAlias = tuple[tuple[Fraction, Fraction], ...]
"""For each class of symbols of one likelihood ratio, its probabilities (p, q) under the two inputs."""

MOST_SYMBOLS = 2**14
"""An alphabet of more symbols is not listed."""


class PairKind(Enum):
    """The four ways in which two changelogs can differ on a node, as in `Losses`.

    For a report of a state, every pair of inputs is of every kind.
    """

    MUTATIONS = "two mutations"
    APPEARS = "a mutation against no change"
    VANISHES = "no change against a mutation"
    INSERTIONS = "two insertions"


def listed_likelihoods(randomizer: Randomizer, u: int, v: int) -> Likelihoods:
    """The likelihoods of the inputs u and v, from a look at every symbol.

    Raises ValueError for an alphabet of more than MOST_SYMBOLS symbols.
    """
    if randomizer.symbols > MOST_SYMBOLS:
        raise ValueError(
            f"{randomizer.symbols} symbols are too many to list (at most {MOST_SYMBOLS}): "
            f"register a closed form of likelihoods for {type(randomizer).__name__}"
        )
    pairs = ((randomizer.weight(o, u), randomizer.weight(o, v)) for o in range(randomizer.symbols))
    return merged(((w, x, 1) for w, x in pairs), randomizer.total(u), randomizer.total(v))


def merged(classes: Iterable[tuple[int, int, int]], total_u: int, total_v: int) -> Likelihoods:
    """The likelihoods that follow from how many symbols have which weights.

    classes: (weight under u, weight under v, how many symbols have these); classes of one ratio are added up, and
    those that are never sent are left out.
    total_u, total_v: the sum of the weights of each input.
    """
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for w, x, count in classes:
        if count and (w or x):
            divisor = gcd(w, x)
            ratio = w // divisor, x // divisor
            p, q = sums.get(ratio, (0, 0))
            sums[ratio] = p + w * count, q + x * count
    return tuple((Fraction(p, total_u), Fraction(q, total_v)) for p, q in sums.values())


def all_pairs(space: Space, kind: PairKind) -> list[tuple[int, int]]:
    """Every pair of inputs (u, v) of a kind."""
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
    """One pair of inputs of a kind, or none if there is none: enough for a randomizer that treats all answers alike.

    For two mutations it is an insertion and the deletion that takes it back; without NULL a move, and back.
    """
    if not space.reports_changes:
        return [(0, 1)] if space.size > 1 else []
    one, other = (0, 1) if space.null else (1, 2)
    if other > space.answers:
        return []
    mutation = space.index(one, other)
    match kind:
        case PairKind.MUTATIONS:
            return [(mutation, space.index(other, one))]
        case PairKind.APPEARS:
            return [(mutation, 0)]
        case PairKind.VANISHES:
            return [(0, mutation)]
        case PairKind.INSERTIONS:
            return [(mutation, space.index(0, 2))] if space.null and space.answers > 1 else []

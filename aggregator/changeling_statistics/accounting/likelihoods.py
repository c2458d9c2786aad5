"""What a report's symbols say of two inputs: their probabilities under each, merged by likelihood ratio.

A randomizer with a large alphabet registers a closed form; any other is listed symbol by symbol. All exact.
"""

from collections.abc import Iterable
from enum import Enum
from fractions import Fraction
from functools import singledispatch
from itertools import permutations
from math import gcd

from changeling_protocol import KaryResponse, Randomizer
from changeling_protocol.randomizers import SignedSubset, SubsetSelection, UnaryEncoding

Likelihoods = tuple[tuple[Fraction, Fraction], ...]
"""Pairs (p, q): a class of symbols has probability p under the one input and q under the other."""

MOST_SYMBOLS = 2**14
"""The most symbols of an alphabet that is listed."""


class Kind(Enum):
    """How two changelogs differ on a node, as in Losses. Of a state report every pair is of every kind."""

    MUTATIONS = "two mutations"
    APPEARS = "a mutation against no change"
    VANISHES = "no change against a mutation"
    INSERTIONS = "two insertions"


@singledispatch
def likelihoods(randomizer: Randomizer, u: int, v: int) -> Likelihoods:
    """(Pr(class | u), Pr(class | v)) for the classes of symbols of equal ratio, exactly.

    Raises ValueError if the alphabet is too large to list and nobody registered its closed form.
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


@singledispatch
def telling_pairs(randomizer: Randomizer, kind: Kind) -> list[tuple[int, int]]:
    """Pairs of inputs of a kind among which one is worst at every epsilon: every pair, unless somebody knows better."""
    return all_pairs(randomizer, kind)


def all_pairs(randomizer: Randomizer, kind: Kind) -> list[tuple[int, int]]:
    """Every pair of inputs (u, v) of a kind. Of changes, input 0 is none."""
    space = randomizer.space
    if not space.reports_changes:
        return list(permutations(range(space.size), 2))
    mutations = [u for u in range(space.size) if space.pair(u)[0] != space.pair(u)[1]]
    match kind:
        case Kind.MUTATIONS:
            return list(permutations(mutations, 2))
        case Kind.APPEARS:
            return [(u, 0) for u in mutations]
        case Kind.VANISHES:
            return [(0, u) for u in mutations]
        case Kind.INSERTIONS:
            return list(permutations((u for u in mutations if space.pair(u)[0] == 0), 2))


@likelihoods.register
def _(randomizer: KaryResponse, u: int, v: int) -> Likelihoods:  # noqa: ARG001
    a, b = randomizer.odds.favoured, randomizer.odds.other
    return merged([(a, b, 1), (b, a, 1), (b, b, randomizer.symbols - 2)], randomizer.total(), randomizer.total())


@likelihoods.register
def _(randomizer: SubsetSelection, u: int, v: int) -> Likelihoods:
    a, b = randomizer.odds.favoured, randomizer.odds.other
    sets = randomizer.subsets
    both, one = (sets.completing({u: 1, v: other}).count for other in (1, 0))
    rest = sets.count - both - 2 * one
    return merged([(a, a, both), (a, b, one), (b, a, one), (b, b, rest)], randomizer.total(), randomizer.total())


@likelihoods.register
def _(randomizer: UnaryEncoding, u: int, v: int) -> Likelihoods:  # noqa: ARG001
    # The other bits have one law whatever the input, so only the bits of u and v speak.
    a, b = randomizer.odds.favoured, randomizer.odds.other
    return merged([(a, b, 1), (b, a, 1), (a, a, 1), (b, b, 1)], 2 * (a + b), 2 * (a + b))


@likelihoods.register
def _(randomizer: SignedSubset, u: int, v: int) -> Likelihoods:
    vectors, space = randomizer.vectors, randomizer.space
    (au, bu), (av, bv) = (randomizer._weights(true) for true in (u, v))
    spoken = randomizer.spoken.numerator
    wanted = [{new: 1, old: -1} for old, new in (space.pair(true) for true in (u, v))]
    favours_u, favours_v = (randomizer.favoured if true else 0 for true in (u, v))
    agree = u and v and all(wanted[1].get(state, sign) == sign for state, sign in wanted[0].items())
    both = vectors.completing({**wanted[0], **wanted[1]}).count if agree else 0
    only_u, only_v = favours_u - both, favours_v - both
    quiet = (randomizer.spoken.denominator - spoken) * vectors.count
    classes = [
        (quiet * bu, quiet * bv, 1),
        (spoken * au, spoken * av, both),
        (spoken * au, spoken * bv, only_u),
        (spoken * bu, spoken * av, only_v),
        (spoken * bu, spoken * bv, vectors.count - both - only_u - only_v),
    ]
    return merged(classes, randomizer.total(u), randomizer.total(v))


@telling_pairs.register(KaryResponse)
@telling_pairs.register(SubsetSelection)
@telling_pairs.register(UnaryEncoding)
@telling_pairs.register(SignedSubset)
def _one_pair(randomizer: Randomizer, kind: Kind) -> list[tuple[int, int]]:
    """Inputs of a kind look alike but for signed subsets, where two mutations differ most when no vector favours
    both: a mutation and its reverse."""
    space = randomizer.space
    if not space.reports_changes:
        return [(0, 1)] if space.size > 1 else []
    mutation = space.index(0, 1)
    match kind:
        case Kind.MUTATIONS:
            return [(mutation, space.index(1, 0))]
        case Kind.APPEARS:
            return [(mutation, 0)]
        case Kind.VANISHES:
            return [(0, mutation)]
        case Kind.INSERTIONS:
            return [(mutation, space.index(0, 2))] if space.answers > 1 else []

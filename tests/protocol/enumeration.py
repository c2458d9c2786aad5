"""Every changelog of a small survey, and the largest log ratio over every transcript of two of them."""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import product

from changeling_protocol import Group, Randomizer, Track


def changelogs(answers: int, periods: int, most: int, closed: bool = False) -> Iterator[tuple[int, ...]]:
    """The states at the ends of periods 0..T of every changelog of at most so many mutations, insertion included.

    Mutations undone within a period only use up the bound, so one per period is enough.
    """
    lowest = 1 if closed else 0
    for states in product(range(lowest, answers + 1), repeat=periods):
        if sum(old != new for old, new in zip((0, *states), states, strict=False)) <= most:
            yield (0, *states)


def group_inputs(group: Group, states: tuple[int, ...]) -> list[tuple[Track, int]]:
    """The true input of every node of every track of the group."""
    return [
        (track, track.randomizer.space.index(states[node.start], states[node.end]))
        for track in group.tracks
        for node in track.nodes()
    ]


@cache
def worst_ratio(randomizer: Randomizer, u: int, v: int) -> Fraction:
    """max over symbols of Pr(o|u) / Pr(o|v), exactly."""
    return max(probability_ratio(randomizer, symbol, u, v) for symbol in range(randomizer.symbols))


def probability_ratio(randomizer: Randomizer, symbol: int, u: int, v: int) -> Fraction:
    """Pr(o|u) / Pr(o|v), exactly."""
    under_u = Fraction(randomizer.weight(symbol, u), randomizer.total(u))
    return under_u / Fraction(randomizer.weight(symbol, v), randomizer.total(v))


def worst_transcript_ratio(group: Group, one: tuple[int, ...], other: tuple[int, ...]) -> Fraction:
    """The largest probability ratio over all transcripts: reports are independent, so it is a product over nodes."""
    ratio = Fraction(1)
    for (track, u), (_, v) in zip(group_inputs(group, one), group_inputs(group, other), strict=True):
        ratio *= worst_ratio(track.randomizer, u, v)
    return ratio


def literal_transcript_ratio(group: Group, one: tuple[int, ...], other: tuple[int, ...]) -> Fraction:
    """The same by listing every transcript; for very small groups."""
    first, second = group_inputs(group, one), group_inputs(group, other)
    worst = Fraction(0)
    for transcript in product(*(range(track.randomizer.symbols) for track, _ in first)):
        ratio = Fraction(1)
        for symbol, (track, u), (_, v) in zip(transcript, first, second, strict=True):
            ratio *= probability_ratio(track.randomizer, symbol, u, v)
        worst = max(worst, ratio)
    return worst


def log_from_below(ratio: Fraction) -> Decimal:
    """ln of a ratio, less 1e-60: what a charge that is rounded up must never be below."""
    with localcontext(prec=90):
        return Decimal(ratio.numerator).ln() - Decimal(ratio.denominator).ln() - Decimal("1e-60")

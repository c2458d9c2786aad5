"""The exact law of what devices send, lives that begin again with a backup included, in fractions.

It is read off the device's own code: each integer that it might draw is tried. What it must be is written down from the
definition of a joint response, by which a pattern of agreements is a:b times likelier where it reaches the threshold.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from typing import TypeAlias

from changeling_protocol import Calendar, Constraint, Group, Memory, first_memory, respond

from tests.coins import ListedCoins
from tests.enumeration import States, changelogs

Question: TypeAlias = tuple[int, int]
"""What one node asks: the track's place in its group, and the true input."""


def questions(group: Group, states: States) -> list[Question]:
    """What is asked of an entry with these states at the ends of periods 0 to T, closing by closing."""
    return [
        (place, track.randomizer.space.index(states[track.node(number).start], states[period]))
        for period in range(1, len(states))
        for place, track in enumerate(group.tracks)
        if (number := track.ending_at(period)) is not None
    ]


@cache
def answers(group: Group, question: Question, slots: Memory | None) -> dict[int, tuple[Fraction, Memory | None]]:
    """Each symbol that the device may send, with its probability and the slots that are left after it."""
    place, true = question
    asked = ListedCoins([0])
    respond(group, place, true, slots, asked)
    (total,) = asked.asked
    drawn = [respond(group, place, true, slots, ListedCoins([integer])) for integer in range(total)]
    left = dict(drawn)
    counted = Counter(symbol for symbol, _ in drawn)
    return {symbol: (Fraction(count, total), left[symbol]) for symbol, count in counted.items()}


def chance(group: Group, asked: Sequence[Question], sent: Sequence[int], slots: Memory | None) -> Fraction:
    """The probability that the device sends these symbols, from these slots on."""
    whole = Fraction(1)
    for question, symbol in zip(asked, sent, strict=True):
        each, slots = answers(group, question, slots).get(symbol, (Fraction(0), None))
        whole *= each
    return whole


def slots_after(group: Group, asked: Sequence[Question], sent: Sequence[int]) -> Memory | None:
    """The slots that are left when these symbols were sent."""
    slots = first_memory(group)
    for question, symbol in zip(asked, sent, strict=True):
        _, slots = answers(group, question, slots)[symbol]
    return slots


def defined_chance(group: Group, asked: Sequence[Question], sent: Sequence[int]) -> Fraction:
    """The same of a joint group's first life by definition: over every pattern of all slots, used ones and others."""
    joint, chances = group.joint, [track.randomizer.agreement for track in group.tracks]
    base, used = Fraction(1), [[] for _ in group.tracks]
    for (place, true), symbol in zip(asked, sent, strict=True):
        randomizer = group.tracks[place].randomizer
        base *= _base(randomizer, true, symbol)
        if randomizer.tells(true) and len(used[place]) < joint.slots[place]:
            used[place].append(randomizer.agrees(symbol, true))
    reached = {True: Fraction(0), False: Fraction(0)}
    whole = {True: Fraction(0), False: Fraction(0)}
    places = [place for place, slots in enumerate(joint.slots) for _ in range(slots)]
    seen = [
        agreed
        for each, slots in zip(used, joint.slots, strict=True)
        for agreed in (*each, *[None] * (slots - len(each)))
    ]
    for pattern in product((False, True), repeat=len(places)):
        likely = prod(
            (chances[p] if x else 1 - chances[p] for p, x in zip(places, pattern, strict=True)), start=Fraction(1)
        )
        high = sum(joint.weights[p] for p, x in zip(places, pattern, strict=True) if x) >= joint.threshold
        whole[high] += likely
        if all(agreed is None or agreed == x for agreed, x in zip(seen, pattern, strict=True)):
            reached[high] += likely
    a, b = joint.odds.favoured, joint.odds.other
    used_chance = prod(
        (chances[p] if x else 1 - chances[p] for p, x in zip(places, seen, strict=True) if x is not None),
        start=Fraction(1),
    )
    density = (a * reached[True] + b * reached[False]) / (a * whole[True] + b * whole[False]) / used_chance
    return base * density


def _base(randomizer: object, true: int, symbol: int) -> Fraction:
    """How likely a symbol is from an entry that tells nothing, read off the randomizer's own law: an agreeing symbol is
    a:b times likelier than the base has it, relative to the others."""
    if not randomizer.tells(true):
        return Fraction(randomizer.weight(symbol, true), randomizer.total(true))
    weights = [
        Fraction(
            randomizer.weight(each, true),
            randomizer.odds.favoured if randomizer.agrees(each, true) else randomizer.odds.other,
        )
        for each in range(randomizer.symbols)
    ]
    return weights[symbol] / sum(weights)


def worst_ratio_of_lives(group: Group, calendar: Calendar, constraint: Constraint, backups: Sequence[int]) -> Fraction:
    """The largest ratio of the probabilities of all that an entry sends, over all pairs of ways in which it may live.

    backups: for each life after the first, the period at whose end the backup was made that it began with. Each life
    keeps to the constraint, with what the entry did before the backup. Whoever reads the reports knows which belong to
    which life.
    """
    z = group.tracks[0].randomizer.space.answers
    every = [*changelogs(z, calendar, constraint)]
    most: dict[tuple[int, ...], Fraction] = {}
    least: dict[tuple[int, ...], Fraction] = {}
    for first in every:
        later = [[other for other in every if other[: at + 1] == first[: at + 1]] for at in backups]
        for lives in product(*later):
            for sent, likely in _transcripts(group, first, list(zip(backups, lives, strict=True))):
                most[sent] = max(likely, most.get(sent, likely))
                least[sent] = min(likely, least.get(sent, likely))
    return max(most[sent] / least[sent] for sent in most)


def _transcripts(
    group: Group, first: States, later: list[tuple[int, States]]
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every transcript of a first life and those that began with a backup of it, with its probability."""
    asked = questions(group, first)
    for sent in product(*(range(group.tracks[place].randomizer.symbols) for place, _ in asked)):
        known = [(sent, chance(group, asked, sent, first_memory(group)))]
        for at, states in later:
            before = len(questions(group, first[: at + 1]))
            slots = slots_after(group, asked[:before], sent[:before])
            again = questions(group, states)[before:]
            known = [
                ((*whole, *more), likely * chance(group, again, more, slots))
                for whole, likely in known
                for more in product(*(range(group.tracks[place].randomizer.symbols) for place, _ in again))
            ]
        yield from known

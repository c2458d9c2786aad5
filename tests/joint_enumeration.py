"""The most that two changelogs can be told apart by what a joint group sends, by enumeration of its transcripts.

Exact, and from the definition alone: a pattern of agreements is a:b times likelier, relative to independent agreements
under the base, where its weights reach the threshold, and slots that are never used are averaged over. Agreement is
read off the randomizers' weights. A transcript's density depends only on how much agreed in all, so the worst one is
found among the scores that symbols can give to both changelogs, node by node.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import TypeAlias

import numpy as np
from changeling_protocol import Group, Joint, Randomizer
from numpy.typing import NDArray

States: TypeAlias = tuple[int, ...]
Inputs: TypeAlias = tuple[tuple[int, ...], ...]
"""The true input of every node, for each track of a group."""
Scores: TypeAlias = frozenset[tuple[int, int]]
"""What the agreements under two changelogs may weigh together."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What two inputs u and v can do on one node.

    tells: whether u tells anything, and whether v does.
    together: for each symbol whether it agrees with u, and whether with v; without repetition.
    """

    tells: tuple[bool, bool]
    together: frozenset[tuple[bool, bool]]


Met: TypeAlias = tuple[tuple[int, int], ...]
"""For each node that is reported, the place of its track in the group, and which of the randomizer's meetings the two
inputs have there; sorted."""


def base(randomizer: Randomizer, symbol: int) -> Fraction:
    """How likely an entry with nothing to tell sends a symbol: as without a change, or uniformly among the states'."""
    if randomizer.space.reports_changes:
        return Fraction(randomizer.weight(symbol, 0), randomizer.total(0))
    return Fraction(1, randomizer.symbols)


def agrees(randomizer: Randomizer, symbol: int, true: int) -> bool:
    """Whether the randomizer sends this symbol more often for the input than an entry with nothing to tell does."""
    return Fraction(randomizer.weight(symbol, true), randomizer.total(true)) > base(randomizer, symbol)


@cache
def agreement(randomizer: Randomizer) -> Fraction:
    """p: how likely a symbol of the base agrees with an input that tells, which is the same for all of these."""
    chances = {
        sum((base(randomizer, o) for o in range(randomizer.symbols) if agrees(randomizer, o, true)), Fraction(0))
        for true in range(randomizer.space.size)
    } - {Fraction(0)}
    (chance,) = chances
    return chance


def density(group: Group, used: tuple[int, ...], score: int) -> Fraction:
    """How likely a transcript is relative to the base of its nodes.

    used: how many slots of each track are used. score: what those that agreed weigh together.
    """
    return _density(joint_of(group), _chances(group), used, score)


def _chances(group: Group) -> tuple[tuple[int, int], ...]:
    """p of each track, as a numerator and a denominator, which are looked up faster than fractions."""
    return tuple(agreement(track.randomizer).as_integer_ratio() for track in group.tracks + group.hidden)


@cache
def _density(joint: Joint, chances: tuple[tuple[int, int], ...], used: tuple[int, ...], score: int) -> Fraction:
    left = tuple(slots - gone for slots, gone in zip(joint.slots, used, strict=True))
    return _mean(joint, chances, left, score) / _mean(joint, chances, joint.slots, 0)


@cache
def _mean(joint: Joint, chances: tuple[tuple[int, int], ...], left: tuple[int, ...], score: int) -> Fraction:
    """The mean of what a pattern weighs over all that the slots left may still do, slot by slot."""
    place = next((place for place, slots in enumerate(left) if slots), None)
    if place is None:
        return Fraction(joint.odds.favoured, joint.odds.other) if score >= joint.threshold else Fraction(1)
    fewer = (*left[:place], left[place] - 1, *left[place + 1 :])
    agreed = _mean(joint, chances, fewer, score + joint.weights[place])
    chance = Fraction(*chances[place])
    return chance * agreed + (1 - chance) * _mean(joint, chances, fewer, score)


def defined_law(group: Group, inputs: Inputs) -> dict[tuple[int, ...], Fraction]:
    """The probability of every transcript of an entry that reports all nodes, from the definition."""
    nodes = [(place, true) for place, trues in enumerate(inputs) for true in trues]
    law = {}
    for symbols in product(*(range(group.tracks[place].randomizer.symbols) for place, _ in nodes)):
        used, score, chance = [0] * len(joint_of(group).slots), 0, Fraction(1)
        for symbol, (place, true) in zip(symbols, nodes, strict=True):
            randomizer = group.tracks[place].randomizer
            chance *= base(randomizer, symbol)
            if tells(randomizer, true) and used[place] < joint_of(group).slots[place]:  # else it says nothing
                used[place] += 1
                score += joint_of(group).weights[place] * agrees(randomizer, symbol, true)
        law[symbols] = chance * density(group, tuple(used), score)
    return law


def worst_joint_ratio(group: Group, every: Sequence[Inputs]) -> Fraction:
    """The largest ratio of the probabilities of a transcript, over all ordered pairs of these inputs and all draws."""
    worst = Fraction(1)
    done: set[Met] = set()
    for drawn in _draws(group):
        histories = [[inputs[place][number] for place, number in drawn] for inputs in every]
        for met in _meetings(group, [place for place, _ in drawn], histories) - done:
            done.add(met)
            worst = max(worst, _largest(group, _used(group, met), _scores(group, met)))
    return worst


def _draws(group: Group) -> Iterator[list[tuple[int, int]]]:
    """Every choice of the nodes that an entry reports, each as the place of its track and its number from 0 on."""
    for drawn in product(*(combinations(range(track.count), track.reports) for track in group.tracks)):
        yield [(place, number) for place, numbers in enumerate(drawn) for number in numbers]


def _meetings(group: Group, places: Sequence[int], histories: Sequence[Sequence[int]]) -> set[Met]:
    """What the inputs of any two histories do on all nodes, without regard to the order of nodes of one place.

    places: of each node, its track's place in the group.
    histories: the inputs of each, in that order.
    """
    distinct = np.unique(np.array(histories, dtype=np.intp), axis=0)
    at = np.array(places)
    rows = [np.zeros((len(distinct) ** 2, 0), dtype=np.intp)]
    for place in sorted(set(places)):
        numbers, _ = _all_meetings(group.tracks[place].randomizer)
        inputs = distinct[:, at == place]
        rows.append(np.sort(numbers[inputs[:, None], inputs[None, :]], axis=2).reshape(-1, inputs.shape[1]))
    met = np.concatenate(rows, axis=1)
    codes = met @ (met.max(initial=0) + 1) ** np.arange(met.shape[1])  # rows are told apart faster by one number each
    _, first = np.unique(codes, return_index=True)
    return {tuple(zip(sorted(places), row, strict=True)) for row in met[first].tolist()}


def _used(group: Group, met: Met) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many slots of each track the two changelogs use."""
    one, other = [0] * len(group.tracks), [0] * len(group.tracks)
    for place, number in met:
        tells_one, tells_other = _meeting(group, place, number).tells
        one[place] += tells_one
        other[place] += tells_other
    return tuple(one), tuple(other)


def _scores(group: Group, met: Met) -> Scores:
    """What the agreements under both changelogs may weigh together, up to the threshold, after all these nodes."""
    joint = joint_of(group)
    reached = frozenset({(0, 0)})
    for place, number in met:
        reached = frozenset(
            (
                min(joint.threshold, one + agreed_one * joint.weights[place]),
                min(joint.threshold, other + agreed_other * joint.weights[place]),
            )
            for one, other in reached
            for agreed_one, agreed_other in _meeting(group, place, number).together
        )
    return reached


def _largest(group: Group, used: tuple[tuple[int, ...], tuple[int, ...]], scores: Scores) -> Fraction:
    return max(density(group, used[0], one) / density(group, used[1], other) for one, other in scores)


def _meeting(group: Group, place: int, number: int) -> Meeting:
    return _all_meetings(group.tracks[place].randomizer)[1][number]


@cache
def _all_meetings(randomizer: Randomizer) -> tuple[NDArray[np.intp], list[Meeting]]:
    """What two inputs can do on a node: the distinct cases, and which of them each pair is, shape (m, m)."""
    m, symbols = randomizer.space.size, range(randomizer.symbols)
    agreeing = [tuple(agrees(randomizer, o, true) for o in symbols) for true in range(m)]
    of_pairs = [
        [
            Meeting((any(agreeing[u]), any(agreeing[v])), frozenset(zip(agreeing[u], agreeing[v], strict=True)))
            for v in range(m)
        ]
        for u in range(m)
    ]
    distinct = list(dict.fromkeys(meeting for row in of_pairs for meeting in row))
    place = {meeting: i for i, meeting in enumerate(distinct)}
    return np.array([[place[meeting] for meeting in row] for row in of_pairs], dtype=np.intp), distinct


def tells(randomizer: Randomizer, true: int) -> bool:
    """Whether any symbol agrees with the input."""
    return any(agrees(randomizer, o, true) for o in range(randomizer.symbols))


def joint_of(group: Group) -> Joint:
    assert group.joint is not None
    return group.joint

"""Every changelog of a small survey, and the most that any two of them can be told apart by a transcript.

Exact: probabilities are ratios of integers. Floats only choose which pairs are worth comparing exactly. This is
what charges are checked against, so it uses none of the formulas that charges are made of.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from math import prod
from typing import TypeAlias

import numpy as np
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    Group,
    Hybrid,
    Randomizer,
    ReleasePlan,
    TimeBounded,
    Track,
)
from numpy.typing import NDArray

from .joint_enumeration import Inputs, worst_joint_ratio

States: TypeAlias = tuple[int, ...]
"""The states of one entry at the ends of periods 0 to T."""


def changelogs(answers: int, calendar: Calendar, constraint: Constraint, closed: bool = False) -> Iterator[States]:
    """Every sequence of states that the constraint admits; closed: with an answer from the first period on.

    Mutations undone within a period only use up the constraint, so one per period is enough.
    """
    lowest = 1 if closed else 0
    for states in product(range(lowest, answers + 1), repeat=calendar.periods):
        mutated = [i for i, (old, new) in enumerate(zip((0, *states), states, strict=False), 1) if old != new]
        if _possible(constraint, mutated, calendar.period):
            yield (0, *states)


def enumerated_loss(plan: ReleasePlan, calendar: Calendar, constraint: Constraint, closed: bool = False) -> Decimal:
    """The largest log ratio over all pairs of changelogs, groups, drawn nodes and symbols, rounded down.

    Whoever reads the transcript is taken to know which reports belong to one entry.
    """
    answers = plan.tracks[0].randomizer.space.answers
    every = list(changelogs(answers, calendar, constraint, closed))
    return log_from_below(max(worst_ratio_of_pairs(group, every) for group in plan.groups))


def worst_ratio_of_pairs(group: Group, every: Sequence[States]) -> Fraction:
    """The largest probability ratio of a transcript over all ordered pairs of these changelogs."""
    if group.joint is not None:
        return worst_joint_ratio(group, [all_inputs(group, states) for states in every])
    histories = np.unique(np.array([[u for _, us in group_inputs(group, s) for u in us] for s in every]), axis=0)
    total = np.zeros((len(histories), len(histories)))
    kinds, at = [], 0
    for track in group.tracks:
        inputs, at = histories[:, at : at + track.count], at + track.count
        classes, values = _ratio_classes(track.randomizer)
        of_nodes = np.sort(classes[inputs[:, None], inputs[None, :]], axis=2)[:, :, -track.reports :]
        total += np.array([float(log_from_below(value)) for value in values])[of_nodes].sum(2)
        kinds.append((values, of_nodes))
    near = total > total.max() - 1e-9
    distinct = np.unique(np.concatenate([of_nodes[near] for _, of_nodes in kinds], axis=1), axis=0)
    scales = [values for values, of_nodes in kinds for _ in range(of_nodes.shape[2])]
    one = Fraction(1)
    return max(prod((values[i] for values, i in zip(scales, row, strict=True)), start=one) for row in distinct.tolist())


def worst_transcript_ratio(group: Group, one: States, other: States) -> Fraction:
    """The largest ratio over all transcripts of two changelogs: reports are independent, so it is a product
    over nodes, and of the nodes an entry draws the worst ones count."""
    ratio = Fraction(1)
    for (track, us), (_, vs) in zip(group_inputs(group, one), group_inputs(group, other), strict=True):
        by_node = sorted(worst_ratio(track.randomizer, u, v) for u, v in zip(us, vs, strict=True))
        ratio *= prod(by_node[-track.reports :], start=Fraction(1))
    return ratio


def literal_transcript_ratio(group: Group, one: States, other: States) -> Fraction:
    """The same by listing every choice of nodes and every symbol; for very small groups."""
    first, second = group_inputs(group, one), group_inputs(group, other)
    worst = Fraction(0)
    for drawn in product(*(combinations(range(track.count), track.reports) for track in group.tracks)):
        asked = [
            (track.randomizer, us[i], vs[i])
            for (track, us), (_, vs), nodes in zip(first, second, drawn, strict=True)
            for i in nodes
        ]
        for symbols in product(*(range(randomizer.symbols) for randomizer, _, _ in asked)):
            ratio = Fraction(1)
            for symbol, (randomizer, u, v) in zip(symbols, asked, strict=True):
                ratio *= probability(randomizer, symbol, u) / probability(randomizer, symbol, v)
            worst = max(worst, ratio)
    return worst


def group_inputs(group: Group, states: States) -> list[tuple[Track, list[int]]]:
    """The true input of every node, by track of the group."""
    return [
        (track, [track.randomizer.space.index(states[node.start], states[node.end]) for node in track.nodes()])
        for track in group.tracks
    ]


def all_inputs(group: Group, states: States) -> Inputs:
    """The true inputs alone."""
    return tuple(tuple(inputs) for _, inputs in group_inputs(group, states))


@cache
def worst_ratio(randomizer: Randomizer, u: int, v: int) -> Fraction:
    """max over symbols of Pr(o|u) / Pr(o|v), exactly."""
    return max(
        probability(randomizer, symbol, u) / probability(randomizer, symbol, v) for symbol in range(randomizer.symbols)
    )


def probability(randomizer: Randomizer, symbol: int, true: int) -> Fraction:
    """Pr(o|v), exactly."""
    return Fraction(randomizer.weight(symbol, true), randomizer.total(true))


def log_from_below(ratio: Fraction) -> Decimal:
    """ln of a ratio, less 1e-60: what a charge that is rounded up must never be below."""
    with localcontext(prec=90):
        return Decimal(ratio.numerator).ln() - Decimal(ratio.denominator).ln() - Decimal("1e-60")


@cache
def _ratio_classes(randomizer: Randomizer) -> tuple[NDArray[np.intp], list[Fraction]]:
    """The distinct worst ratios, rising, and which of them each pair of inputs has, shape (m, m)."""
    m = randomizer.space.size
    ratios = [[worst_ratio(randomizer, u, v) for v in range(m)] for u in range(m)]
    values = sorted({ratio for row in ratios for ratio in row})
    place = {value: i for i, value in enumerate(values)}
    return np.array([[place[ratio] for ratio in row] for row in ratios], dtype=np.intp), values


def _possible(constraint: Constraint, mutated: Sequence[int], period: int) -> bool:
    """Whether mutations can fall into exactly these periods: into i and a later j less than B apart if
    (j - i - 1) periods are."""
    match constraint:
        case AtMost():
            return len(mutated) <= constraint.k
        case TimeBounded():
            return len(mutated) < 2 or (mutated[-1] - mutated[0] - 1) * period < constraint.seconds
        case AtMostWithin(k, seconds):
            return _possible(AtMost(k), mutated, period) and _possible(TimeBounded(seconds), mutated, period)
        case Hybrid():
            return any(_possible(plain, mutated, period) for plain in constraint.classes)
    raise TypeError(f"no changelogs for a {type(constraint).__name__}")

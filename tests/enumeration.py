"""Every changelog of a small survey, and the most that any two of them can be told apart by a transcript.

Exact: probabilities are ratios of integers. Floats only choose which pairs are worth comparing exactly. This is what
charges are checked against, so it uses none of the formulas that charges are made of. Joint groups are read from the
definition alone: a pattern of agreements is a:b times likelier, relative to independent agreements under the base,
where its weights reach the threshold, and slots that are never used are averaged over. Agreement is read off the
randomizers' weights. A transcript's density depends only on how much agreed in all, so the worst one is found among
the scores that symbols can give to both changelogs, node by node.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
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
    Joint,
    Randomizer,
    ReleasePlan,
    TimeBounded,
    Track,
)
from changeling_statistics.testing import log_from_below
from numpy.typing import NDArray

States: TypeAlias = tuple[int, ...]
"""The states of one entry at the ends of periods 0 to T."""
Inputs: TypeAlias = tuple[tuple[int, ...], ...]
"""The true input of every node that is reported, for each track of a group."""
Law: TypeAlias = dict[tuple[int, ...], Fraction]
"""The probability of every transcript."""


def changelogs(answers: int, calendar: Calendar, constraint: Constraint, closed: bool = False) -> Iterator[States]:
    """Every sequence of states that the constraint admits; closed: with an answer from the first period on.

    Mutations undone within a period only use up the constraint, so one per period is enough.
    """
    lowest = 1 if closed else 0
    for states in product(range(lowest, answers + 1), repeat=calendar.periods):
        mutated = [i for i, (old, new) in enumerate(zip((0, *states), states, strict=False), 1) if old != new]
        if _possible(constraint, mutated, calendar.period):
            yield (0, *states)


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


def group_inputs(group: Group, states: States) -> list[tuple[Track, list[int]]]:
    """The true input of every node, by track of the group."""
    return [
        (track, [track.randomizer.space.index(states[node.start], states[node.end]) for node in track.nodes()])
        for track in group.tracks
    ]


def all_inputs(group: Group, states: States) -> Inputs:
    """The true inputs alone."""
    return tuple(tuple(inputs) for _, inputs in group_inputs(group, states))


def probability(randomizer: Randomizer, symbol: int, true: int) -> Fraction:
    """Pr(o|v), exactly."""
    return Fraction(randomizer.weight(symbol, true), randomizer.total(true))


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


@cache
def _ratio_classes(randomizer: Randomizer) -> tuple[NDArray[np.intp], list[Fraction]]:
    """The distinct worst ratios of two inputs over all symbols, rising, and which of them each pair has, (m, m)."""
    m, symbols = randomizer.space.size, range(randomizer.symbols)
    law = [[probability(randomizer, o, u) for o in symbols] for u in range(m)]
    ratios = [[max(p / q for p, q in zip(law[u], law[v], strict=True)) for v in range(m)] for u in range(m)]
    values = sorted({ratio for row in ratios for ratio in row})
    place = {value: i for i, value in enumerate(values)}
    return np.array([[place[ratio] for ratio in row] for row in ratios], dtype=np.intp), values


def literal_laws(group: Group, every: Sequence[States]) -> Iterator[list[Law]]:
    """Transcript by transcript, for each choice of nodes, all laws that an entry with one of these changelogs has."""
    inputs = [all_inputs(group, states) for states in every]
    for drawn in product(*(combinations(range(track.count), track.reports) for track in group.tracks)):
        shown = {tuple(tuple(us[i] for i in at) for us, at in zip(each, drawn, strict=True)) for each in inputs}
        yield [defined_law(group, each) for each in shown]


def defined_law(group: Group, inputs: Inputs) -> Law:
    """The probability of every transcript of an entry that reports nodes with these inputs, from the definition."""
    columns, used = symbols_said(group, inputs)
    law = {}
    for symbols in product(*(range(len(column)) for column in columns)):
        said = [column[symbol] for column, symbol in zip(columns, symbols, strict=True)]
        law[symbols] = prod((chance for chance, _ in said), start=Fraction(1))
        if group.joint is not None:
            law[symbols] *= density(group, used, sum(weighed for _, weighed in said))
    return law


Columns: TypeAlias = list[list[tuple[Fraction, int]]]
"""For each node and symbol its probability by itself, or in a joint group under the base, and what agreeing weighs."""


def symbols_said(group: Group, inputs: Inputs) -> tuple[Columns, tuple[int, ...]]:
    """What an entry says on nodes with these inputs, and how many slots of each track that uses."""
    columns, used = [], [0] * len(group.tracks + group.hidden)
    for place, true in ((place, true) for place, trues in enumerate(inputs) for true in trues):
        randomizer = group.tracks[place].randomizer
        symbols = range(randomizer.symbols)
        if group.joint is None:
            columns.append([(probability(randomizer, o, true), 0) for o in symbols])
            continue
        counts = tells(randomizer, true) and used[place] < group.joint.slots[place]  # else it says nothing
        used[place] += counts
        weight = counts * group.joint.weights[place]
        columns.append([(base(randomizer, o), weight * agrees(randomizer, o, true)) for o in symbols])
    return columns, tuple(used)


def base(randomizer: Randomizer, symbol: int) -> Fraction:
    """How likely an entry with nothing to tell sends a symbol: as without a change, or uniformly among the states'."""
    if randomizer.space.reports_changes:
        return Fraction(randomizer.weight(symbol, 0), randomizer.total(0))
    return Fraction(1, randomizer.symbols)


def agrees(randomizer: Randomizer, symbol: int, true: int) -> bool:
    """Whether the randomizer sends this symbol more often for the input than an entry with nothing to tell does."""
    return Fraction(randomizer.weight(symbol, true), randomizer.total(true)) > base(randomizer, symbol)


def tells(randomizer: Randomizer, true: int) -> bool:
    """Whether any symbol agrees with the input."""
    return any(agrees(randomizer, o, true) for o in range(randomizer.symbols))


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
    return _density(group.joint, _chances(group), used, score)


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


Meeting: TypeAlias = frozenset[tuple[bool, bool]]
"""What two inputs u and v can do on one node: for each symbol whether it agrees with u, and whether with v."""
Met: TypeAlias = tuple[tuple[int, int], ...]
"""For each node that is reported, the place of its track in the group, and which of the randomizer's meetings the two
inputs have there; sorted."""


def worst_joint_ratio(group: Group, every: Sequence[Inputs]) -> Fraction:
    """The largest ratio of the probabilities of a transcript, over all ordered pairs of these inputs and all draws."""
    worst = Fraction(1)
    done: set[Met] = set()
    for drawn in _draws(group):
        histories = [[inputs[place][number] for place, number in drawn] for inputs in every]
        for met in _meetings(group, [place for place, _ in drawn], histories) - done:
            done.add(met)
            worst = max(worst, _largest(group, met))
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


def _largest(group: Group, met: Met) -> Fraction:
    """The largest ratio of densities, over all that the agreements under both changelogs may weigh together.

    Up to the threshold, after all these nodes, of which those use a slot where any symbol agrees with the input.
    """
    joint, reached = group.joint, {(0, 0)}
    used = np.zeros((2, len(group.tracks)), int)
    for place, number in met:
        together, weight = _all_meetings(group.tracks[place].randomizer)[1][number], joint.weights[place]
        used[:, place] += np.any(list(together), axis=0)
        reached = {
            (min(joint.threshold, one + weight * with_one), min(joint.threshold, other + weight * with_other))
            for one, other in reached
            for with_one, with_other in together
        }
    of_one, of_other = map(tuple, used.tolist())
    return max(density(group, of_one, one) / density(group, of_other, other) for one, other in reached)


@cache
def _all_meetings(randomizer: Randomizer) -> tuple[NDArray[np.intp], list[Meeting]]:
    """What two inputs can do on a node: the distinct cases, and which of them each pair is, shape (m, m)."""
    m, symbols = randomizer.space.size, range(randomizer.symbols)
    agreeing = [tuple(agrees(randomizer, o, true) for o in symbols) for true in range(m)]
    of_pairs = [[frozenset(zip(agreeing[u], agreeing[v], strict=True)) for v in range(m)] for u in range(m)]
    distinct = list(dict.fromkeys(meeting for row in of_pairs for meeting in row))
    place = {meeting: i for i, meeting in enumerate(distinct)}
    return np.array([[place[meeting] for meeting in row] for row in of_pairs], dtype=np.intp), distinct

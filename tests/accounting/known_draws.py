"""What small surveys tell whoever knows an entry's group and which nodes it drew, by enumeration of all transcripts.

Entries send one envelope at each closing, in which reports stay linked; the envelopes of a closing are shuffled. So
what is seen is how often each envelope was sent at each closing. Everybody's group and drawn nodes are known, too, and
the others' changelogs are the worst for what they drew. From the randomizers' weights and the definition of joint
responses alone: no formula of the accounting is used. Sums are floats, good to about 1e-14.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product
from math import factorial, log2, prod
from typing import TypeAlias

import numpy as np
from changeling_protocol import Group, Randomizer, Survey
from numpy.typing import NDArray

from tests.enumeration import States, changelogs, probability
from tests.joint_enumeration import agrees, base, density

Floats: TypeAlias = NDArray[np.float64]
Draw: TypeAlias = tuple[tuple[int, ...], ...]
"""For each track of a group, the numbers of the nodes that an entry reports."""
Cell: TypeAlias = tuple[int, tuple[int, ...]]
"""A closing, and the places of the tracks that report there: all that is seen of an envelope from outside."""

MOST_STEPS = 1e6
MOST_CROWDS = 200
KEY_BITS = 62


class TooLarge(Exception):
    """A survey with too many transcripts to enumerate."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report of an entry: its node's closing, its track's place in the group, and its node's number."""

    closing: int
    place: int
    number: int


def worst_deltas(survey: Survey, entries: int, epsilons: Sequence[float]) -> Floats:
    """The largest δ at each ε over all groups, draws and pairs of changelogs of one of so many entries.

    entries: how many are shuffled together; 1 if everybody sees who sends what.
    Raises TooLarge.
    """
    groups = range(len(survey.plan.groups))
    worst: Floats = np.max([group_deltas(survey, number, entries, epsilons) for number in groups], axis=0)
    return worst


def group_deltas(survey: Survey, number: int, entries: int, epsilons: Sequence[float]) -> Floats:
    """The same for an entry of the group with this number."""
    group = survey.plan.groups[number]
    every = tuple(changelogs(len(survey.answers), survey.calendar, survey.constraint, survey.closed))
    if len(draws(group)) ** entries > MOST_CROWDS:
        raise TooLarge
    deltas = [_draw_deltas(survey, group, own, every, entries, epsilons) for own in draws(group)]
    worst: Floats = np.max(deltas, axis=0)
    return worst


def draws(group: Group) -> list[Draw]:
    """All that an entry of the group can draw, each as likely as any other."""
    return list(product(*(tuple(combinations(range(1, t.count + 1), t.reports)) for t in group.tracks)))


def _draw_deltas(
    survey: Survey, group: Group, own: Draw, every: tuple[States, ...], entries: int, epsilons: Sequence[float]
) -> Floats:
    """The largest δ at each ε of an entry that drew these nodes, on average over what the other entries draw."""
    mine = _reports(group, own)
    laws = _distinct_laws(group, mine, every)
    total = np.zeros((len(epsilons), len(laws), len(laws)))
    for crowd, chance in _crowds(survey, group, mine, entries - 1):
        total += chance * _deltas_among(group, mine, laws, crowd, every, epsilons)
    return np.asarray(total.max(axis=(1, 2)))


def _crowds(
    survey: Survey, group: Group, mine: tuple[Report, ...], others: int
) -> Iterator[tuple[tuple[tuple[Report, ...], ...], float]]:
    """What those of the others report whose envelopes can be taken for this entry's, and how likely that is.

    Reports that are independent of all others are left out where no report of this entry is like them.
    """
    cells = set(_cells(mine))
    kinds: Counter[tuple[Report, ...]] = Counter()
    possible = draws(group)
    for drawn in possible:
        theirs = _reports(group, drawn)
        seen = {report for cell, reports in _cells(theirs).items() if cell in cells for report in reports}
        kept = theirs if group.joint is not None and seen else tuple(report for report in theirs if report in seen)
        kinds[kept] += 1
    share = group.share / survey.plan.total_share
    chances = {kind: share * count / len(possible) for kind, count in kinds.items()}
    chances[()] = chances.get((), 0.0) + 1 - share
    for chosen in combinations_with_replacement(sorted(chances, key=str), others):
        times = Counter(chosen)
        ways = factorial(others) / prod(factorial(count) for count in times.values())
        chance = ways * prod(chances[kind] ** count for kind, count in times.items())
        if chance > 0:
            yield tuple(kind for kind in chosen if kind), chance


def _deltas_among(
    group: Group,
    mine: tuple[Report, ...],
    laws: Floats,
    crowd: Sequence[tuple[Report, ...]],
    every: tuple[States, ...],
    epsilons: Sequence[float],
) -> Floats:
    """δ at each ε for every pair of this entry's laws, the others' changelogs being the worst."""
    keys, rest_keys, rests = _keys(group, mine, crowd, every)
    _check(len(keys) * len(rest_keys) * len(laws) * len(rests))
    seen, inverse = np.unique((keys[:, None] + rest_keys[None, :]).ravel(), return_inverse=True)
    worst = np.zeros((len(epsilons), len(laws), len(laws)))
    _check(len(seen) * len(laws) ** 2 * len(epsilons) * len(rests))
    for rest in rests:
        both = np.array([np.bincount(inverse, np.outer(law, rest).ravel(), len(seen)) for law in laws])
        for place, epsilon in enumerate(epsilons):
            apart = [np.maximum(0.0, law - np.exp(epsilon) * both).sum(1) for law in both]
            worst[place] = np.maximum(worst[place], apart)
    return worst


def _keys(
    group: Group, mine: tuple[Report, ...], crowd: Sequence[tuple[Report, ...]], every: tuple[States, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """How often each envelope is sent, as one number for each transcript of this entry, and of all others together.

    Also the distinct laws of what the others send, over all their changelogs.
    """
    everybody = (mine, *crowd)
    offsets: dict[Cell, int] = {}
    size = 0
    for cell in sorted({cell for reports in everybody for cell in _cells(reports)}):
        offsets[cell] = size
        size += prod(group.tracks[place].randomizer.symbols for place in cell[1])
    if log2(len(everybody) + 1) * size > KEY_BITS:
        raise TooLarge
    keys = {reports: _envelopes(group, reports, offsets, len(everybody) + 1) for reports in set(everybody)}
    rest_keys, rests = np.zeros(1, np.int64), np.ones((1, 1))
    for reports, times in Counter(crowd).items():
        laws = _distinct_laws(group, reports, every)
        for _ in range(times):
            rest_keys, rests = _joined(rest_keys, rests, keys[reports], laws)
    return keys[mine], rest_keys, rests


def _joined(
    keys: NDArray[np.int64], laws: Floats, more_keys: NDArray[np.int64], more_laws: Floats
) -> tuple[NDArray[np.int64], Floats]:
    """What some entries and one more send together, for every choice of their laws; equal laws once."""
    _check(len(keys) * len(more_keys) * len(laws) * len(more_laws))
    seen, inverse = np.unique((keys[:, None] + more_keys[None, :]).ravel(), return_inverse=True)
    both = [np.bincount(inverse, np.outer(a, b).ravel(), len(seen)) for a, b in product(laws, more_laws)]
    return seen, _distinct(np.array(both))


def _envelopes(group: Group, reports: tuple[Report, ...], offsets: dict[Cell, int], root: int) -> NDArray[np.int64]:
    """One number for each transcript: a digit, to base `root`, for each envelope that can be sent at a closing."""
    shape = [group.tracks[report.place].randomizer.symbols for report in reports]
    symbols = np.indices(shape).reshape(len(shape), -1)
    keys = np.zeros(prod(shape), np.int64)
    for cell, together in _cells(reports).items():
        value = np.zeros(prod(shape), np.int64)
        for report in together:
            at = reports.index(report)
            value = value * shape[at] + symbols[at]
        keys += np.int64(root) ** (offsets[cell] + value)
    return keys


@lru_cache(maxsize=64)
def _distinct_laws(group: Group, reports: tuple[Report, ...], every: tuple[States, ...]) -> Floats:
    """The laws of an entry's transcript over all changelogs, each once."""
    inputs = {tuple(_input(group, report, states) for report in reports) for states in every}
    _check(len(inputs) * prod(group.tracks[report.place].randomizer.symbols for report in reports))
    return _distinct(np.array([_law(group, reports, trues) for trues in sorted(inputs)]))


def _distinct(laws: Floats) -> Floats:
    """Each law once, rounding apart."""
    _, first = np.unique(laws.round(15), axis=0, return_index=True)
    return laws[first]


@lru_cache(maxsize=4096)
def _law(group: Group, reports: tuple[Report, ...], trues: tuple[int, ...]) -> Floats:
    """The probability of every transcript of an entry with these true inputs, in the order of their symbols."""
    randomizers = [group.tracks[report.place].randomizer for report in reports]
    law = np.ones(1)
    if group.joint is None:
        for randomizer, true in zip(randomizers, trues, strict=True):
            law = np.outer(law, _column(randomizer, true)).ravel()
        return law
    used, scores = [0] * len(group.tracks), np.zeros(1, np.int64)
    for randomizer, report, true in zip(randomizers, reports, trues, strict=True):
        law = np.outer(law, _base(randomizer)).ravel()
        agreeing = group.joint.weights[report.place] * _agreeing(randomizer, true)
        scores = np.add.outer(scores, agreeing).ravel()
        used[report.place] += bool(agreeing.any())
    reached = range(int(scores.max()) + 1)
    weighed: Floats = law * np.array([float(density(group, tuple(used), score)) for score in reached])[scores]
    return weighed


@lru_cache(maxsize=512)
def _column(randomizer: Randomizer, true: int) -> Floats:
    return np.array([float(probability(randomizer, symbol, true)) for symbol in range(randomizer.symbols)])


@lru_cache(maxsize=512)
def _base(randomizer: Randomizer) -> Floats:
    return np.array([float(base(randomizer, symbol)) for symbol in range(randomizer.symbols)])


@lru_cache(maxsize=512)
def _agreeing(randomizer: Randomizer, true: int) -> NDArray[np.int64]:
    return np.array([agrees(randomizer, symbol, true) for symbol in range(randomizer.symbols)], np.int64)


def _check(steps: float) -> None:
    if steps > MOST_STEPS:
        raise TooLarge


def _input(group: Group, report: Report, states: States) -> int:
    track = group.tracks[report.place]
    end = track.first + report.number * track.width
    return track.randomizer.space.index(states[end - track.width], states[end])


def _reports(group: Group, drawn: Draw) -> tuple[Report, ...]:
    return tuple(
        sorted(
            (
                Report(track.first + number * track.width, place, number)
                for place, (track, numbers) in enumerate(zip(group.tracks, drawn, strict=True))
                for number in numbers
            ),
            key=lambda report: (report.closing, report.place),
        )
    )


def _cells(reports: Sequence[Report]) -> dict[Cell, list[Report]]:
    """The reports of each envelope, by what is seen of it from outside."""
    at: dict[int, list[Report]] = {}
    for report in reports:
        at.setdefault(report.closing, []).append(report)
    return {(closing, tuple(report.place for report in each)): each for closing, each in at.items()}

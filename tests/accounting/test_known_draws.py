"""(ε, δ) and shuffled figures against whoever knows an entry's group and drawn nodes, by exact computation.

Entries send one envelope at each closing, in which reports stay linked; the envelopes of a closing are shuffled. So
what is seen is how often each envelope was sent at each closing. Everybody's group and drawn nodes are known, too, and
the others' changelogs are the worst for what they drew. From the definitions in `tests/enumeration.py` alone: no
formula of the accounting is used. Sums are floats, good to about 1e-14.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import combinations, combinations_with_replacement, product
from math import factorial, log2, prod
from random import Random
from typing import NamedTuple, TypeAlias

import numpy as np
import pytest
from changeling_protocol import Group, KaryResponse, Odds, ReleasePlan, StateSpace, Survey
from changeling_statistics import Floats, delta_at, epsilon_at, shuffled_loss, worst_curve
from changeling_statistics.shuffled import linked_epsilon, rounds_epsilon
from numpy.typing import NDArray

from tests.enumeration import Inputs, States, all_inputs, changelogs, density, symbols_said

from ..protocol.examples import survey
from ..protocol.loss_cases import LossCase, joint_loss_cases, loss_cases
from .exactly import against, flat, histogram_law, relayed, shuffled_pairs, surveyed


class Report(NamedTuple):
    """One report of an entry: its track's place in the group, its node's number, and the closing of that."""

    place: int
    number: int
    closing: int


Reports: TypeAlias = tuple[Report, ...]
"""All that one entry reports, rising."""
Cell: TypeAlias = tuple[int, tuple[int, ...]]
"""A closing, and the places of the tracks that report there: all that is seen of an envelope from outside."""
Laws: TypeAlias = tuple[NDArray[np.int64], Floats]
"""How often each envelope is sent, as one number for each transcript; and laws over these transcripts, a row each."""

MOST_STEPS = 1e6
MOST_CROWDS = 200
KEY_BITS = 62


class TooLarge(Exception):
    """A survey with too many transcripts to enumerate."""


def check(steps: float) -> None:
    if steps > MOST_STEPS:
        raise TooLarge


def worst_deltas(survey: Survey, entries: int, epsilons: Sequence[float]) -> Floats:
    """The largest δ at each ε over all groups, draws and pairs of changelogs of one of so many entries.

    entries: how many are shuffled together; 1 if everybody sees who sends what.
    """
    groups = range(len(survey.plan.groups))
    return np.max([group_deltas(survey, number, entries, epsilons) for number in groups], axis=0)


def group_deltas(survey: Survey, number: int, entries: int, epsilons: Sequence[float]) -> Floats:
    """The same for an entry of the group with this number: of each draw the mean over what the other entries draw."""
    group, possible = survey.plan.groups[number], draws(survey.plan.groups[number])
    every = tuple(changelogs(len(survey.answers), survey.calendar, survey.constraint, survey.closed))
    if len(possible) ** entries > MOST_CROWDS:
        raise TooLarge
    share, worst = group.share / survey.plan.total_share, np.zeros(len(epsilons))
    for mine in possible:
        deltas = [
            chance * deltas_among(group, mine, crowd, every, epsilons)
            for crowd, chance in crowds(group, mine, share, entries - 1)
        ]
        worst = np.maximum(worst, np.sum(deltas, axis=0).max(axis=(1, 2)))
    return worst


def draws(group: Group) -> list[Reports]:
    """All that an entry of the group can be asked to report, each as likely as any other."""
    asked = (
        combinations([Report(place, at, track.node(at).end) for at in track.node_numbers()], track.reports)
        for place, track in enumerate(group.tracks)
    )
    return [sum(drawn, start=()) for drawn in product(*asked)]


def crowds(group: Group, mine: Reports, share: float, others: int) -> Iterator[tuple[Sequence[Reports], float]]:
    """What those of the others report whose envelopes can be taken for this entry's, and how likely that is.

    Reports that are independent of all others are left out where no report of this entry is like them.
    """
    kinds, possible, own = Counter[Reports](), draws(group), cells(mine)
    for theirs in possible:
        seen = {report for cell, reports in cells(theirs).items() if cell in own for report in reports}
        kept = theirs if group.joint is not None and seen else tuple(report for report in theirs if report in seen)
        kinds[kept] += 1
    chances = {kind: share * count / len(possible) for kind, count in kinds.items()}
    chances[()] = chances.get((), 0.0) + 1 - share
    for chosen in combinations_with_replacement(sorted(chances), others):
        times = Counter(chosen)
        ways = factorial(others) / prod(factorial(count) for count in times.values())
        chance = ways * prod(chances[kind] ** count for kind, count in times.items())
        if chance > 0:
            yield [kind for kind in chosen if kind], chance


def deltas_among(
    group: Group, mine: Reports, crowd: Sequence[Reports], every: tuple[States, ...], epsilons: Sequence[float]
) -> Floats:
    """δ at each ε for every pair of this entry's laws, the others' changelogs being the worst."""
    everybody, offsets, size = (mine, *crowd), dict[Cell, int](), 0
    for cell in sorted({cell for reports in everybody for cell in cells(reports)}):
        offsets[cell] = size
        size += prod(group.tracks[place].randomizer.symbols for place in cell[1])
    if log2(len(everybody) + 1) * size > KEY_BITS:
        raise TooLarge
    all_laws = {
        each: (envelopes(group, each, offsets, len(everybody) + 1), distinct_laws(group, each, every))
        for each in set(everybody)
    }
    (keys, laws), others = all_laws[mine], (np.zeros(1, np.int64), np.ones((1, 1)))
    for each in crowd:
        others = joined(others, all_laws[each])
    check(len(keys) * len(others[0]) * len(laws) * len(others[1]))
    seen, inverse = np.unique((keys[:, None] + others[0]).ravel(), return_inverse=True)
    check(len(seen) * len(laws) ** 2 * len(epsilons) * len(others[1]))
    worst = np.zeros((len(epsilons), len(laws), len(laws)))
    for rest in others[1]:
        both = np.array([np.bincount(inverse, np.outer(law, rest).ravel(), len(seen)) for law in laws])
        for at, epsilon in enumerate(epsilons):
            apart = [np.maximum(0.0, law - np.exp(epsilon) * both).sum(1) for law in both]
            worst[at] = np.maximum(worst[at], apart)
    return worst


def joined(some: Laws, more: Laws) -> Laws:
    """What some entries and one more send together, for every choice of their laws; equal laws once."""
    (keys, laws), (more_keys, more_laws) = some, more
    check(len(keys) * len(more_keys) * len(laws) * len(more_laws))
    seen, inverse = np.unique((keys[:, None] + more_keys).ravel(), return_inverse=True)
    return seen, distinct(
        [np.bincount(inverse, np.outer(a, b).ravel(), len(seen)) for a, b in product(laws, more_laws)]
    )


def envelopes(group: Group, reports: Reports, offsets: dict[Cell, int], root: int) -> NDArray[np.int64]:
    """One number for each transcript: a digit, to base `root`, for each envelope that can be sent at a closing."""
    shape = [group.tracks[report.place].randomizer.symbols for report in reports]
    symbols = np.indices(shape).reshape(len(shape), -1)
    keys = np.zeros(prod(shape), np.int64)
    for cell, together in cells(reports).items():
        value = np.zeros(prod(shape), np.int64)
        for at in map(reports.index, together):
            value = value * shape[at] + symbols[at]
        keys += np.int64(root) ** (offsets[cell] + value)
    return keys


@lru_cache(maxsize=64)
def distinct_laws(group: Group, reports: Reports, every: tuple[States, ...]) -> Floats:
    """The laws of an entry's transcript over all changelogs, each once."""
    places = range(len(group.tracks))
    inputs = {
        tuple(tuple(whole[at][report.number - 1] for report in reports if report.place == at) for at in places)
        for whole in (all_inputs(group, states) for states in every)
    }
    check(len(inputs) * prod(group.tracks[report.place].randomizer.symbols for report in reports))
    return distinct([law(group, each) for each in sorted(inputs)])


def law(group: Group, inputs: Inputs) -> Floats:
    """The probability of every transcript, in the order of its symbols."""
    columns, used = symbols_said(group, inputs)
    chances, scores = np.ones(1), np.zeros(1, np.int64)
    for column in columns:
        chances = np.outer(chances, [float(chance) for chance, _ in column]).ravel()
        scores = np.add.outer(scores, [weighed for _, weighed in column]).ravel()
    if group.joint is None:
        return chances
    return chances * np.array([float(density(group, used, score)) for score in range(scores.max() + 1)])[scores]


def distinct(laws: Sequence[Floats]) -> Floats:
    """Each law once, rounding apart."""
    _, first = np.unique(np.array(laws).round(15), axis=0, return_index=True)
    return np.array(laws)[first]


def cells(reports: Reports) -> dict[Cell, list[Report]]:
    """The reports of each envelope, by what is seen of it from outside."""
    at: dict[int, list[Report]] = {}
    for report in reports:
        at.setdefault(report.closing, []).append(report)
    return {(closing, tuple(report.place for report in each)): each for closing, each in at.items()}


EPSILONS = (0.0, 0.2, 0.7, 1.5)


@pytest.mark.parametrize(("seed", "count"), [(3, 25), pytest.param(11, 50, marks=pytest.mark.heavy)])
def test_random_surveys_stay_within_every_stated_figure(seed, count):
    """Small surveys of every kind: of no figure the exact δ exceeds the stated one, and many are reached."""
    found = [*checked_cases(seed, count)]
    assert max(ratios.largest for ratios in found) <= 1
    assert sum(ratios.approximate > 0.999 for ratios in found) > 10
    assert any(ratios.helps for ratios in found)


@pytest.mark.parametrize("entries", [1, 2, 4])
def test_the_enumeration_agrees_with_that_of_histograms_in_fractions(entries):
    """One state, told once: over all inputs of all entries."""
    response = KaryResponse(StateSpace(1), Odds(4, 1))
    curve = worst_curve(shuffled_pairs(response, entries))
    found = worst_deltas(surveyed(flat(response, 1), k=1), entries, EPSILONS)
    assert found == pytest.approx([curve.delta_at(epsilon) for epsilon in EPSILONS], abs=1e-12)


def test_the_enumeration_takes_the_mean_over_what_the_others_draw():
    """Two entries, one node of two: with a chance of one half the other reports elsewhere and hides nothing."""
    response = KaryResponse(StateSpace(1), Odds(4, 1))
    panel = surveyed(flat(response, 2, reported=1), k=1)
    alone, beside = (against(*(histogram_law(response, (u, *v)) for u in (0, 1))) for v in ((), (0,)))
    (found,) = group_deltas(panel, 0, 2, (0.3,))
    assert found == pytest.approx((alone.delta_at(0.3) + beside.delta_at(0.3)) / 2, abs=1e-12)


MOST_ENTRIES = 4
DELTAS = (0.001, 0.01, 0.05, 0.15, 0.3)
MOST_SYMBOLS = 16


class Ratios(NamedTuple):
    """Exact δ over stated δ: a figure holds if its ratio is at most 1.

    approximate: of the (ε, δ) figure at the δ asked for. largest: of that, of δ at half of the pure epsilon, of the
    shuffled figure, and of each bound that it is made of, by itself. helps: whether it is below the (ε, δ) one.
    """

    approximate: float
    largest: float
    helps: bool


def checked_cases(seed: int, count: int) -> Iterator[Ratios]:
    """What is found of so many random surveys that are small enough to be enumerated."""
    random = Random(seed)
    while count:
        entries = 1 + count % MOST_ENTRIES
        try:
            found = ratios_of(random_survey(random, entries), entries, random.choice(DELTAS))
        except TooLarge:
            continue
        yield found
        count -= 1


def ratios_of(survey: Survey, entries: int, delta: float) -> Ratios:
    """What is exactly told beyond the stated figures, of so many entries. Raises TooLarge."""
    half = float(survey.cost) / 2
    approximate = epsilon_at(survey, delta)
    alone, at_half = worst_deltas(survey, 1, (approximate, half))
    stated = shuffled_loss(survey, delta, entries).epsilon
    bounds: list[float] = []
    for number, group in enumerate(survey.plan.groups):
        epsilons = [stated, linked_epsilon(survey, group, delta, entries)]
        if group.joint is None:
            epsilons.append(rounds_epsilon(survey, group, delta, entries)[0])
        bounds += group_deltas(survey, number, entries, epsilons).tolist()
    halved = at_half / delta_at(survey, half) if at_half else 0.0
    return Ratios(alone / delta, max(halved, *(each / delta for each in (alone, *bounds))), stated < approximate)


def random_survey(random: Random, entries: int) -> Survey:
    """A plan whose charge is enumerated, or the groups of two, with random shares; smaller, where entries are many."""
    case = random.choice(_cases(2 + (entries < 4) + (entries < 3)))
    beside = [other for other in _cases(case.calendar.periods) if _circumstances(other) == _circumstances(case)]
    groups = {*case.plan.groups, *(random.choice(beside).plan.groups if random.random() < 0.5 else ())}
    plan = ReleasePlan(tuple(replace(group, share=random.randint(1, 3)) for group in sorted(groups, key=str)))
    answers = tuple("abc"[: case.answers])
    known = {"calendar": case.calendar, "constraint": case.constraint, "closed": case.closed}
    return relayed(survey(plan, answers=answers, **known))


@cache
def _cases(most_periods: int) -> list[LossCase]:
    """Those of so many periods whose transcripts can be enumerated."""
    return [
        case
        for case in (*loss_cases(), *joint_loss_cases())
        if case.calendar.periods <= most_periods
        and all(track.randomizer.symbols <= MOST_SYMBOLS for track in case.plan.tracks)
    ]


def _circumstances(case: LossCase) -> tuple[object, ...]:
    return case.answers, case.calendar, case.constraint, case.closed

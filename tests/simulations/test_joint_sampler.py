"""Joint groups, sampled: tallies of two nodes together as the entries' devices give them, and as fast for a billion."""

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from time import perf_counter

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
)
from changeling_simulations import Population, synthetic_changelog
from changeling_simulations.sampler import in_order, joint_nodes
from changeling_statistics import counterpart_of
from changeling_statistics.estimation.entries import correlations, middle
from scipy.stats import chisquare

from .devices import exact_law

FALSE_ALARM = 1e-6
"""The chance that a right sampler fails one of the tests below, were its seed drawn anew."""
SURVEYS = 1500
ODDS = Odds(2, 1)
"""Of a track before its group is made, which sets others."""


def tracks(*parts):
    """Tracks over three periods: (width, first, reported, randomizer)."""
    return tuple(Track(width, randomizer, first, 3, reported) for width, first, reported, randomizer in parts)


STATES, MOVES = StateSpace(2, null=False), MutationSpace(2, null=False)
CLOSED, OPEN = [(0, 1, 2, 1), (0, 2, 2, 1)], [(0, 1, 2, 1), (0, 0, 2, 0)]

TWO_QUESTIONS = Group.jointly(
    (
        *tracks((1, 0, 2, KaryResponse(STATES, ODDS))),
        Track(2, SubsetSelection(StateSpace(3, null=False), ODDS, 1), 0, 3, question=1),
    ),
    Joint(Odds(40, 1), 2, (1, 1), (2, 1)),
)

GROUPS = {
    "what is said about one of two questions": (TWO_QUESTIONS.about(0), CLOSED),
    "a state and the changes after it": (
        Group.jointly(
            tracks((1, 0, 1, KaryResponse(STATES, ODDS)), (1, 1, None, KaryChange(MOVES, ODDS))),
            Joint(Odds(30, 1), 2, (1, 1), (1, 2)),
        ),
        CLOSED,
    ),
    "a panel": (
        Group.jointly(tracks((1, 0, 2, SubsetSelection(StateSpace(2), ODDS, 2))), Joint(Odds(50, 1), 2, (1,), (2,))),
        OPEN,
    ),
    "signed subsets that may say nothing, and fewer slots than changes": (
        Group.jointly(
            tracks((1, 0, None, SignedSubset(MutationSpace(1), ODDS, spoken=Fraction(2, 3)))),
            Joint(Odds(500, 1), 1, (1,), (2,)),
        ),
        [(0, 1, 0, 1), (0, 1, 0, 0)],
    ),
    "layers and random nodes, of unlike weights": (
        Group.jointly(
            tracks(
                (1, 0, 2, SignedSubset(MutationSpace(1), ODDS)),
                (2, 0, None, KaryChange(MutationSpace(1), ODDS)),
                (1, 0, None, KaryResponse(StateSpace(1), ODDS)),
            ),
            Joint(Odds(3000, 1), 4, (2, 1, 1), (2, 1, 3)),
        ),
        [(0, 1, 0, 1), (0, 0, 1, 1)],
    ),
}


@pytest.fixture(params=GROUPS)
def case(request):
    return GROUPS[request.param]


def a_population(answers: int, histories) -> Population:
    """An entry of each history, which are all different."""
    states = np.array(histories, np.uint16)
    return Population(tuple("abc"[:answers]), states, states, np.ones(len(states), np.int64))


def tallied(group: Group, entries, nodes) -> tuple:
    """The tallies of some nodes, from what each entry sent on all."""
    order = in_order(group)
    slots = []
    for node in nodes:
        symbols = group.tracks[order[node][0]].randomizer.symbols
        counted = Counter(sent[node] for sent in entries)
        slots.append(tuple(counted[symbol] for symbol in range(symbols)))
    return tuple(slots)


def exactly(group: Group, histories, nodes) -> dict:
    """The law of the tallies of some nodes: that of each entry by itself, convolved."""
    law = {tallied(group, [], nodes): Fraction(1)}
    for states in histories:
        of_one: dict = defaultdict(Fraction)
        for sent, chance in exact_law(group, states).items():
            of_one[tallied(group, [sent], nodes)] += chance
        both: dict = defaultdict(Fraction)
        for before, p in law.items():
            for more, q in of_one.items():
                added = tuple(tuple(map(sum, zip(a, b, strict=True))) for a, b in zip(before, more, strict=True))
                both[added] += p * q
        law = both
    assert sum(law.values()) == 1
    return law


def assert_drawn_from(law: dict, seen: Counter) -> None:
    """Chi-squared, rare outcomes taken together; nothing impossible is seen."""
    n = seen.total()
    assert set(seen) <= set(law)
    often = [outcome for outcome, chance in law.items() if n * chance >= 5]
    observed = [seen[outcome] for outcome in often]
    expected = [n * float(law[outcome]) for outcome in often]
    if n - sum(expected) > 1e-6:
        observed.append(n - sum(observed))
        expected.append(n - sum(expected))
    assert chisquare(observed, expected, sum_check=False).pvalue > FALSE_ALARM


def pairs(group: Group):
    """The first node with each later one, and the last two."""
    last = len(in_order(group)) - 1
    return [*((0, later) for later in range(1, last + 1)), (last - 1, last)]


@pytest.mark.heavy
def test_tallies_of_two_nodes_together_are_those_of_the_enumerated_law(case):
    """Two entries, several pairs of nodes: 1,500 sampled surveys against the law of all symbols."""
    group, histories = case
    population = a_population(group.tracks[0].randomizer.space.answers, histories)
    generator = np.random.default_rng(1)
    surveys = []
    for _ in range(SURVEYS):
        drawn = list(joint_nodes(population, group, population.weights, generator))
        assert [(place, number) for place, number, _ in drawn] == in_order(group)
        surveys.append([tuple(tally.slots.tolist()) for _, _, tally in drawn])
        assert all(tally.reports == tally.slots.sum() for _, _, tally in drawn)
    for nodes in pairs(group):
        seen = Counter(tuple(survey[node] for node in nodes) for survey in surveys)
        assert_drawn_from(exactly(group, histories, nodes), seen)


def test_what_two_nodes_decode_to_covaries_as_correlations_say():
    """ρ δδ' summed over entries, for 60 entries in 1,500 surveys: every figure within six of its standard errors."""
    group, _ = GROUPS["a state and the changes after it"]
    group = Group.jointly([replace(group.tracks[0], reported=None, last=1), group.tracks[1]], group.joint)
    histories = [(0, 1, 2, 1), (0, 2, 1, 1), (0, 1, 1, 2)]
    population = replace(a_population(2, histories), weights=np.array([30, 20, 10]))
    generator, decoded = np.random.default_rng(3), []
    for _ in range(1500):
        drawn = joint_nodes(population, group, population.weights, generator)
        decoded.append(
            [counterpart_of(group.tracks[place].randomizer).estimate(tally).values for place, _, tally in drawn]
        )
    away = np.array(decoded) - np.mean(decoded, axis=0)
    rho, nodes = correlations(group), in_order(group)
    told = np.zeros((len(nodes), 3, 2))
    for at, (place, number) in enumerate(nodes):
        track = group.tracks[place]
        for row, states in enumerate(histories):
            node = track.node(number)
            told[at, row] = [
                (states[node.end] == a) - (track.reports_changes and states[node.start] == a) - middle(track)
                for a in (1, 2)
            ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        products = away[:, one, :, None] * away[:, other, None, :]
        exact = rho[nodes[one][0], nodes[other][0]] * np.einsum(
            "i,iy,iz->yz", population.weights, told[one], told[other]
        )
        assert np.abs(exact).max() > 1
        z = (products.mean(0) - exact) / (products.std(0) / np.sqrt(len(decoded)))
        assert np.abs(z).max() < 6  # 12 figures at 2e-9 each, by normal approximation


@pytest.mark.timed
def test_a_billion_entries_take_no_longer_than_their_histories():
    """2,000 histories over twelve periods, states and changes; whoever is in the group reports on every node."""
    calendar = Calendar(0, 60, 12)
    changelog = synthetic_changelog(2, 2_000, 2, calendar, np.random.default_rng(6))
    population = Population.from_changelog(changelog, calendar, AtMost(3))
    many = replace(population, weights=population.weights * 500_000)
    group = Group.jointly(
        (
            Track(1, SubsetSelection(StateSpace(2), ODDS, 1), 0, 12, reported=3),
            Track(1, SignedSubset(MutationSpace(2), ODDS), 0, 12),
        ),
        Joint(Odds(3000, 1), 3, (1, 1), (3, 3)),
    )
    began = perf_counter()
    drawn = {
        (place, number): tally
        for place, number, tally in joint_nodes(many, group, many.weights, np.random.default_rng(9))
    }
    assert perf_counter() - began < 5
    assert {tally.reports for (place, _), tally in drawn.items() if place == 1} == {10**9}
    assert sum(tally.reports for (place, _), tally in drawn.items() if place == 0) == 3 * 10**9


def test_a_group_that_nobody_draws_has_empty_tallies():
    """As a group of a small share may have."""
    group, histories = GROUPS["a panel"]
    population = a_population(2, histories)
    drawn = list(joint_nodes(population, group, np.zeros(2, np.int64), np.random.default_rng(0)))
    assert [tally.reports for _, _, tally in drawn] == [0, 0, 0]
    assert not any(tally.slots.any() for _, _, tally in drawn)

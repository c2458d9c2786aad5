"""History groups, sampled: tallies of two times together as devices give them; and surveys in the field."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar, Group, History, Hybrid, Odds, ReleasePlan, TimeBounded
from changeling_simulations import Field, Population, sample_field, sample_tallies
from changeling_simulations.sampler import SentHistories, history_nodes
from changeling_statistics import counterpart_of, series
from changeling_statistics.testing import questions, transcripts
from scipy.stats import chisquare

from ..protocol.examples import survey

FALSE_ALARM = 1e-6
"""The chance that a right sampler fails one of the tests below, were its seed drawn anew."""
SURVEYS = 1500
CALENDAR = Calendar(0, 10, 3)


def group(constraint, closed, answers=2, calendar=CALENDAR, odds=Odds(30, 1)):  # noqa: B008
    history = History.of(odds, range(1, calendar.periods + 1), constraint, calendar, closed)
    return Group.of_history(history, answers)


CASES = {
    "closed": (group(AtMost(2), True), [(0, 1, 2, 2), (0, 2, 2, 2)]),
    "open": (group(AtMost(2), False), [(0, 1, 2, 2), (0, 0, 0, 1)]),
    "either limit": (group(Hybrid((AtMost(2), TimeBounded(11))), False), [(0, 1, 2, 1), (0, 1, 0, 0)]),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def exactly(group, histories, pair):
    """The law of the tallies of two times: that of each entry by itself, convolved."""
    symbols = group.tracks[0].randomizer.symbols
    law = {((0,) * symbols,) * 2: Fraction(1)}
    for states in histories:
        after = defaultdict(Fraction)
        for sent, (chance, _) in transcripts(group, questions(group, states)).items():
            for before, likely in law.items():
                counted = [list(slots) for slots in before]
                for slots, at in zip(counted, pair, strict=True):
                    slots[sent[at]] += 1
                after[tuple(map(tuple, counted))] += chance * likely
        law = after
    return law


def assert_drawn_from(law, seen):
    """Chi-squared, rare outcomes taken together; nothing impossible is seen."""
    assert set(seen) <= set(law)
    n = seen.total()
    often = [outcome for outcome, chance in law.items() if n * chance >= 5]
    observed, expected = [seen[each] for each in often], [n * float(law[each]) for each in often]
    if n - sum(expected) > 1e-6:
        observed.append(n - sum(observed))
        expected.append(n - sum(expected))
    assert chisquare(observed, expected, sum_check=False).pvalue > FALSE_ALARM


def test_tallies_of_two_times_together_are_those_of_the_enumerated_law(case):
    """Two entries, every pair of times: 1,500 sampled surveys, whole and entry by entry, against the exact law."""
    group, histories = case
    states, generator = np.array(histories, np.uint16), np.random.default_rng(1)
    population = Population(("a", "b"), states, states, np.ones(2, np.int64))
    nodes = [(track, track.node(number)) for track in group.tracks for number in track.node_numbers()]
    size = group.tracks[0].randomizer.symbols
    whole, one_by_one = [], []
    for _ in range(SURVEYS):
        drawn = history_nodes(population, group, population.weights, generator)
        whole.append([tuple(tally.slots.tolist()) for _, _, tally in drawn])
        sent = SentHistories(group.histories, 2, generator)
        symbols = [sent.next(population.inputs(track, node)) for track, node in nodes]
        one_by_one.append([tuple(np.bincount(each, minlength=size).tolist()) for each in symbols])
    for pair in combinations(range(3), 2):
        law = exactly(group, histories, pair)
        for sampled in (whole, one_by_one):
            assert_drawn_from(law, Counter(tuple(survey[at] for at in pair) for survey in sampled))


def test_a_population_that_grows_is_decoded_without_bias():
    """Entries enrol late, and some reports arrive late. What they would have said before is drawn and kept, so that one
    decoder is right for all. The mean of 300 surveys is within five standard errors, 8 figures: a false alarm of 1e-5.
    """
    calendar = Calendar(0, 86_400, 4)
    plan = ReleasePlan((group(AtMost(2), False, calendar=calendar),))
    made = survey(plan, answers=("a", "b"), calendar=calendar, constraint=AtMost(2))
    states = np.array([(0, 1, 1, 1, 2), (0, 2, 2, 2, 2), (0, 0, 1, 1, 1), (0, 0, 0, 2, 2)], np.uint16)
    population = Population(("a", "b"), states, states, np.array([60, 40, 30, 20]))
    field, generator = Field(arrivals=0.3, late=0.2), np.random.default_rng(4)
    off = []
    for _ in range(300):
        tallied = sample_field(population, made, field, generator)
        decoded = []
        for (track, number), tally in sorted(tallied.tallies.nodes.items()):
            known = tallied.known[plan.tracks[track].node(number).end]
            assert tally.reports == known.sum()
            decoded.append(counterpart_of(plan.tracks[track].randomizer).estimate(tally).values - known[1:])
        off.append(decoded)
    deviations = np.mean(off, axis=0) / (np.std(off, axis=0, ddof=1) / np.sqrt(len(off)))
    assert np.abs(deviations).max() < 5


def test_a_billion_entries_are_sampled_as_a_thousand_are_and_decoded():
    """Values within six standard errors of the truth, which the published covariance states."""
    calendar = Calendar(0, 10, 12)
    plan = ReleasePlan((group(AtMost(3), True, 3, calendar),))
    made = survey(plan, answers=("a", "b", "c"), calendar=calendar, constraint=AtMost(3), closed=True)
    states = np.array([[0, *[1] * 6, *[2] * 6], [0, *[3] * 12], [0, 2, 2, *[1] * 10]], np.uint16)
    population = Population(("a", "b", "c"), states, states, np.array([5, 3, 2]) * 10**8)
    tallies = sample_tallies(population, made, np.random.default_rng(5))
    assert {tally.reports for tally in tallies.nodes.values()} == {10**9}
    estimates = series(made, tallies, 12)
    for period, each in enumerate(estimates, 1):
        off = each.estimate.values - population.histogram()[period]
        assert (np.abs(off) < 6 * np.sqrt(np.diag(each.estimate.covariance))).all()
    assert counterpart_of(plan.tracks[0].randomizer).slots == 3

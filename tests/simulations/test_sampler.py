"""The samplers: distributed as the sum of what devices send, and as fast for a billion entries as for ten."""

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from time import perf_counter

import numpy as np
import pytest
from changeling_protocol import (
    ONLY,
    AtMost,
    Calendar,
    Group,
    History,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    Question,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Survey,
    TimeBounded,
    Track,
)
from changeling_simulations import Field, Population, sample_field, sample_tallies, synthetic_changelog
from changeling_simulations.sampler import in_order
from changeling_statistics import Attendance, counterpart_of, read_rows, series
from changeling_statistics.estimation.entries import correlations, middle
from changeling_statistics.testing import questions, transcripts
from scipy.stats import chisquare

from tests.enumeration import defined_law

FALSE_ALARM = 1e-6
"""The chance that a right sampler fails one of the tests below, were its seed drawn anew."""
SURVEYS = 500
RESPONSE = KaryResponse(MutationSpace(2), Odds(9, 2))
ODDS = Odds(2, 1)
"""Of a track before its group is made, which sets others."""


def survey(population, calendar, *groups, closed=False, constraint=AtMost(3)):  # noqa: B008
    """Of these groups, whatever it costs."""
    asked = Question(ONLY, "?", population.answers, constraint)
    rules = {"skew": 0, "spread": 1, "grace": 2, "minimum": 1, "epsilon_micro": 10**9}
    return Survey(questions=(asked,), calendar=calendar, plan=ReleasePlan(groups), closed=closed, **rules)


def a_population(answers, histories, weights=None):
    """An entry of each history, which are all different, or so many of each."""
    states = np.array(histories, np.uint16)
    return Population(tuple("abc"[:answers]), states, states, np.array(weights or [1] * len(states), np.int64))


def jointly(odds, threshold, weights, slots, *parts):
    """A joint group of tracks over three periods, each a width, a first period, how many are reported, a randomizer."""
    tracks = [Track(width, randomizer, first, 3, reported) for width, first, reported, randomizer in parts]
    return Group.jointly(tracks, Joint(Odds(odds, 1), threshold, weights, slots))


def history_group(constraint, closed, answers=2, calendar=Calendar(0, 10, 3)):  # noqa: B008
    history = History.of(Odds(30, 1), range(1, calendar.periods + 1), constraint, calendar, closed)
    return Group.of_history(history, answers)


STATES, MOVES = StateSpace(2, null=False), MutationSpace(2, null=False)
CHANGE, STATE = MutationSpace(1), StateSpace(1)
CLOSED = [(0, 1, 2, 1), (0, 2, 2, 1)]
OTHER_QUESTION = Track(2, SubsetSelection(StateSpace(3, null=False), ODDS, 1), 0, 3, question=1)
TWO_QUESTIONS = [Track(1, KaryResponse(STATES, ODDS), 0, 3, 2), OTHER_QUESTION]
EITHER = Hybrid((AtMost(2), TimeBounded(11)))
GROUPS = {
    "what is said about one of two questions": (
        Group.jointly(TWO_QUESTIONS, Joint(Odds(40, 1), 2, (1, 1), (2, 1))).about(0),
        CLOSED,
    ),
    "a state and the changes after it": (
        jointly(30, 2, (1, 1), (1, 2), (1, 0, 1, KaryResponse(STATES, ODDS)), (1, 1, None, KaryChange(MOVES, ODDS))),
        CLOSED,
    ),
    "a panel": (
        jointly(50, 2, (1,), (2,), (1, 0, 2, SubsetSelection(StateSpace(2), ODDS, 2))),
        [(0, 1, 2, 1), (0, 0, 2, 0)],
    ),
    "signed subsets that may say nothing, and fewer slots than changes": (
        jointly(500, 1, (1,), (2,), (1, 0, None, SignedSubset(CHANGE, ODDS, spoken=Fraction(2, 3)))),
        [(0, 1, 0, 1), (0, 1, 0, 0)],
    ),
    "layers and random nodes, of unlike weights": (
        jointly(
            *(3000, 4, (2, 1, 1), (2, 1, 3)),
            (1, 0, 2, SignedSubset(CHANGE, ODDS)),
            (2, 0, None, KaryChange(CHANGE, ODDS)),
            (1, 0, None, KaryResponse(STATE, ODDS)),
        ),
        [(0, 1, 0, 1), (0, 0, 1, 1)],
    ),
    "a history, closed": (history_group(AtMost(2), True), [(0, 1, 2, 2), (0, 2, 2, 2)]),
    "a history, open": (history_group(AtMost(2), False), [(0, 1, 2, 2), (0, 0, 0, 1)]),
    "a history, either limit": (history_group(EITHER, False), [(0, 1, 2, 1), (0, 1, 0, 0)]),
}
"""Groups over three periods, and the histories of the entries in each, of two mutations at most, or by either limit."""


def exact_law(group, states):
    """How likely an entry with these states at times 0..T sends what, enumerated symbol by symbol.

    What: the symbol sent on each node, nodes in the order in which they are answered; None where nothing is reported.
    """
    if isinstance(group.joint, History):
        return {sent: chance for sent, (chance, _) in transcripts(group, questions(group, states)).items()}
    law = defaultdict(Fraction)
    choices = list(product(*(combinations(track.node_numbers(), track.reports) for track in group.tracks)))
    for chosen in choices:
        reported = [(place, number) for place, numbers in enumerate(chosen) for number in numbers]
        inputs = tuple(
            tuple(
                track.randomizer.space.index(states[node.start], states[node.end]) for node in map(track.node, numbers)
            )
            for track, numbers in zip(group.tracks, chosen, strict=True)
        )
        for symbols, chance in defined_law(group, inputs).items():
            told = dict(zip(reported, symbols, strict=True))
            law[tuple(map(told.get, in_order(group)))] += chance / len(choices)
    return law


@cache
def exactly(name, nodes):
    """The law of the tallies of some nodes of a group: that of each of its entries by itself, convolved."""
    group, histories = GROUPS[name]
    sizes = [group.tracks[place].randomizer.symbols for place, _ in in_order(group)]
    law = {tuple((0,) * sizes[node] for node in nodes): Fraction(1)}
    for states in histories:
        both, of_one = defaultdict(Fraction), defaultdict(Fraction)
        for sent, chance in exact_law(group, states).items():
            of_one[tuple(tuple(int(sent[node] == o) for o in range(sizes[node])) for node in nodes)] += chance
        for (before, p), (more, q) in product(law.items(), of_one.items()):
            added = tuple(tuple(map(sum, zip(a, b, strict=True))) for a, b in zip(before, more, strict=True))
            both[added] += p * q
        law = both
    assert sum(law.values()) == 1
    return law


def assert_drawn_from(law, seen):
    """Chi-squared, rare outcomes taken together; nothing impossible is seen."""
    n = seen.total()
    assert set(seen) <= set(law)
    often = [outcome for outcome, chance in law.items() if n * chance >= 5]
    observed, expected = [seen[outcome] for outcome in often], [n * float(law[outcome]) for outcome in often]
    if n - sum(expected) > 1e-6:
        observed.append(n - sum(observed))
        expected.append(n - sum(expected))
    assert chisquare(observed, expected, sum_check=False).pvalue > FALSE_ALARM


@pytest.mark.heavy
@pytest.mark.parametrize("name", GROUPS)
def test_tallies_of_two_nodes_together_are_those_of_the_enumerated_law(name):
    """Two entries, several pairs of nodes: 500 surveys, sampled whole, entry by entry, and where the first closing is
    lost, as a response that is lost has used up its slot; each against the law of all symbols."""
    (group, histories), constraint = GROUPS[name], EITHER if "either" in name else AtMost(2)
    population = a_population(group.tracks[0].randomizer.space.answers, histories)
    closed = not any(0 in history[1:] for history in histories)
    asked = survey(population, Calendar(0, 10, 3), group, closed=closed, constraint=constraint)
    order = in_order(group)
    nothing = {at: (0,) * group.tracks[at[0]].randomizer.symbols for at in order}
    for lost, field in ((0, None), (0, Field()), (1, Field(outage=Node(0, 1)))):
        generator, surveys = np.random.default_rng([3, lost]), []
        heard = [at for at, (place, number) in enumerate(order) if group.tracks[place].node(number).end > lost]
        for _ in range(SURVEYS):
            if field is None:
                drawn = sample_tallies(population, asked, generator)
            else:
                drawn = sample_field(population, asked, field, generator).tallies
            assert {order.index(at) for at in drawn} <= {*heard}
            assert all(tally.reports == tally.slots.sum() for tally in drawn.nodes.values())
            surveys.append([tuple(drawn[at].slots.tolist()) if at in drawn else nothing[at] for at in order])
        for nodes in {*((heard[0], later) for later in heard[1:]), (heard[-2], heard[-1])}:
            assert_drawn_from(exactly(name, nodes), Counter(tuple(one[node] for node in nodes) for one in surveys))


def test_what_two_nodes_decode_to_covaries_as_correlations_say():
    """ρ δδ' summed over entries, for 60 entries in 600 surveys: every figure within six of its standard errors."""
    group = GROUPS["a state and the changes after it"][0]
    group = Group.jointly([replace(group.tracks[0], reported=None, last=1), group.tracks[1]], group.joint)
    histories = [(0, 1, 2, 1), (0, 2, 1, 1), (0, 1, 1, 2)]
    population = a_population(2, histories, [30, 20, 10])
    asked = survey(population, Calendar(0, 10, 3), group, closed=True, constraint=AtMost(2))
    generator, decoded = np.random.default_rng(3), []
    rho, nodes, states = correlations(group), in_order(group), np.array(histories)
    for _ in range(600):
        drawn = sample_tallies(population, asked, generator)
        decoded.append([counterpart_of(group.tracks[at[0]].randomizer).estimate(drawn[at]).values for at in nodes])
    away = np.array(decoded) - np.mean(decoded, axis=0)
    told = []
    for place, number in nodes:
        track, node = group.tracks[place], group.tracks[place].node(number)
        held, before = (states[:, at, None] == [1, 2] for at in (node.end, node.start))
        told.append(held - track.reports_changes * before.astype(float) - middle(track))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        products = away[:, one, :, None] * away[:, other, None, :]
        exact = rho[nodes[one][0], nodes[other][0]] * np.einsum(
            "i,iy,iz->yz", population.weights, told[one], told[other]
        )
        assert np.abs(exact).max() > 1
        z = (products.mean(0) - exact) / (products.std(0) / np.sqrt(len(decoded)))
        assert np.abs(z).max() < 6  # 12 figures at 2e-9 each, by normal approximation


def test_random_nodes_are_subsets_drawn_uniformly():
    """Two of four nodes: all six subsets of one entry equally often, and every entry reports exactly twice."""
    asked = Group((Track(1, RESPONSE, 0, 4, reported=2),))
    generator, calendar = np.random.default_rng(4), Calendar(0, 10, 4)

    def reports(entries):
        population = a_population(2, [(0, 1, 1, 1, 1)], [entries])
        drawn = sample_tallies(population, survey(population, calendar, asked), generator)
        return [drawn[0, number].reports for number in range(1, 5)]

    subsets = dict.fromkeys(combinations(range(4), 2), 0)
    for _ in range(3_000):
        subsets[tuple(np.flatnonzero(reports(1)).tolist())] += 1
    assert chisquare(list(subsets.values())).pvalue > FALSE_ALARM
    many = np.array(reports(10**9))
    assert many.sum() == 2 * 10**9
    assert np.abs(many - 5e8).max() < 6 * np.sqrt(2.5e8)


def test_a_population_that_grows_is_decoded_without_bias():
    """Entries enrol late, and some reports arrive late. What they would have said before is drawn and kept, so that one
    decoder is right for all. The mean of 300 surveys is within five standard errors, 8 figures: a false alarm of 1e-5.
    """
    calendar = Calendar(0, 86_400, 4)
    group = history_group(AtMost(2), False, calendar=calendar)
    states = [(0, 1, 1, 1, 2), (0, 2, 2, 2, 2), (0, 0, 1, 1, 1), (0, 0, 0, 2, 2)]
    population = a_population(2, states, [60, 40, 30, 20])
    made = survey(population, calendar, group, constraint=AtMost(2))
    field, generator = Field(arrivals=0.3, late=0.2), np.random.default_rng(4)
    off = []
    for _ in range(300):
        tallied = sample_field(population, made, field, generator)
        decoded = []
        for (track, number), tally in sorted(tallied.tallies.nodes.items()):
            known = tallied.known[group.tracks[track].node(number).end]
            assert tally.reports == known.sum()
            decoded.append(counterpart_of(group.tracks[track].randomizer).estimate(tally).values - known[1:])
        off.append(decoded)
    deviations = np.mean(off, axis=0) / (np.std(off, axis=0, ddof=1) / np.sqrt(len(off)))
    assert np.abs(deviations).max() < 5


CALENDAR = Calendar(0, 60, 12)


@pytest.fixture(scope="module")
def population() -> Population:
    changelog = synthetic_changelog(2, 2_000, 2, CALENDAR, np.random.default_rng(6))
    return Population.from_changelog(changelog, CALENDAR, AtMost(3))


def test_groups_split_the_entries_by_share_and_their_tracks_share_them(population):
    """Group sizes add up and are binomial; the tracks of a group have the same entries, so the same reports.

    All of them are heard at every closing, and are new at the first.
    """
    pair = Group((Track(1, RESPONSE, 0, 12), Track(4, RESPONSE, 0, 12)), share=3)
    panel = Group((Track(2, KaryResponse(StateSpace(2), Odds(2, 1)), 0, 12, reported=2),), share=1)
    tallies = sample_tallies(population, survey(population, CALENDAR, pair, panel), np.random.default_rng(7))
    assert Counter(track for track, _ in tallies) == {0: 12, 1: 3, 2: 6}
    size = tallies[0, 1].reports
    assert abs(size - 1_500) < 5 * np.sqrt(2_000 * 3 / 16)  # false alarm 6e-7
    assert {t.reports for (track, _), t in tallies.items() if track < 2} == {size}
    assert sum(t.reports for (track, _), t in tallies.items() if track == 2) == 2 * (2_000 - size)
    assert all(t.slots.sum() == t.reports for t in tallies.values())
    assert tallies.attendance == {
        (group, period): Attendance(heard=members, new=members if period == 1 else 0)
        for group, members in enumerate((size, 2_000 - size))
        for period in range(1, 13)
    }


BILLION = {
    "each by itself": Group(tuple(Track(width, RESPONSE, 0, 12) for width in (1, 2, 4))),
    "jointly": Group.jointly(
        (
            Track(1, SignedSubset(MutationSpace(2), ODDS), 0, 12),
            Track(1, SubsetSelection(StateSpace(2), ODDS, 1), 0, 12, reported=3),
        ),
        Joint(Odds(3000, 1), 3, (1, 1), (3, 3)),
    ),
}


@pytest.mark.timed
@pytest.mark.parametrize("name", BILLION)
def test_a_billion_entries_take_seconds(population, name):
    """No more than a thousand would: the cost is in histories, nodes and symbols. A group of a share so small that
    nobody draws it has empty tallies."""
    many = population.resampled(10**9, np.random.default_rng(8))
    asked = survey(many, CALENDAR, BILLION[name])
    began = perf_counter()
    tallies = sample_tallies(many, asked, np.random.default_rng(9))
    assert perf_counter() - began < 5
    for number, track in enumerate(asked.plan.tracks):
        reports = [tally.reports for (at, _), tally in tallies.items() if at == number]
        assert sum(reports) == track.reports * 10**9
        assert track.reported or {*reports} == {10**9}
    nobody = survey(many, CALENDAR, BILLION[name], replace(BILLION[name], share=10**15))
    empty = [
        tally
        for (at, _), tally in sample_tallies(many, nobody, np.random.default_rng(9)).items()
        if at < len(asked.plan.tracks)
    ]
    assert not any(tally.reports or tally.slots.any() for tally in empty)


def test_a_billion_entries_of_a_history_group_are_decoded():
    """Values within six standard errors of the truth, which the published covariance states."""
    calendar = Calendar(0, 10, 12)
    states = [[0, *[1] * 6, *[2] * 6], [0, *[3] * 12], [0, 2, 2, *[1] * 10]]
    population = a_population(3, states, [5 * 10**8, 3 * 10**8, 2 * 10**8])
    made = survey(population, calendar, history_group(AtMost(3), True, 3, calendar), closed=True)
    for period, each in enumerate(series(made, sample_tallies(population, made, np.random.default_rng(5)), 12), 1):
        off = each.estimate.values - population.histogram()[period]
        assert (np.abs(off) < 6 * np.sqrt(np.diag(each.estimate.covariance))).all()


def test_a_survey_of_something_else_is_refused(population):
    """Other answers, or another number of periods."""
    one = Group((Track(1, RESPONSE, 0, 12),))
    longer = survey(population, Calendar(0, 60, 13), one)
    with pytest.raises(ValueError, match="lives 12 periods, the survey 13"):
        sample_tallies(population, longer, np.random.default_rng(0))
    others = Population.from_changelog(read_rows([("1", 1, "x"), ("2", 1, "y")]), CALENDAR, AtMost(3))
    with pytest.raises(ValueError, match="same answers"):
        sample_tallies(population, survey(others, CALENDAR, one), np.random.default_rng(0))

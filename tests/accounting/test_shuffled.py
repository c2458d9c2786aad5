"""Shuffled surveys: the order of their figures, rounds and crowds, and rounds of k-RR against the published bounds.

That no figure of a survey is too small is enumerated in `test_known_draws.py`.
"""

from collections import Counter
from dataclasses import replace
from itertools import product
from math import comb, log

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    Track,
)
from changeling_statistics import counterpart_of, epsilon_at, loss_statement, shuffled_loss, worst_curve
from changeling_statistics.shuffled import blanket_deltas, clones_deltas, differing_rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from ..protocol.examples import mixed, survey
from .exactly import flat, relayed, shuffled_pairs, surveyed


def kary(z, a=3):
    return KaryResponse(MutationSpace(z), Odds(a, 1))


PLANS = {
    "flat": relayed(surveyed(flat(kary(3), 16))),
    "signed": relayed(surveyed(flat(SignedSubset(MutationSpace(3), Odds(9, 1)), 16), k=1)),
    "hierarchy": relayed(surveyed(Group(tuple(Track(w, kary(3, 2), 0, 16) for w in (1, 4, 16))))),
    "panel": relayed(surveyed(flat(KaryResponse(StateSpace(3), Odds(9, 1)), 16, reported=2))),
    "mixed": relayed(survey(mixed(3, 4), calendar=Calendar(0, 60, 4), closed=True)),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.heavy] * (n == "mixed")) for n in PLANS])
def test_shuffled_is_below_local_is_below_pure(name):
    """One entry hides behind nobody, more never cost more, blocks' rounding apart, and a million of them cost far less
    than the local figure."""
    before, alone = float("inf"), shuffled_loss(PLANS[name], 1e-6, 1)
    assert alone.epsilon == epsilon_at(PLANS[name], 1e-6)
    assert "local figure" in alone.source
    for entries in (1, 1000, 10**6):
        stated = loss_statement(PLANS[name], 1e-6, entries)
        assert stated.shuffled.epsilon <= stated.approximate.epsilon <= stated.pure.epsilon
        assert stated.shuffled.epsilon <= before * 1.01
        before = stated.shuffled.epsilon
    assert before < stated.approximate.epsilon / 10


@pytest.mark.heavy
@given(
    entries=st.integers(2, 10**6),
    deltas=st.tuples(st.floats(1e-11, 1e-2), st.floats(1e-11, 1e-2)),
    name=st.sampled_from(sorted(PLANS)),
)
@settings(max_examples=6)
def test_more_delta_never_costs_more(entries, deltas, name):
    """ε falls with δ, the grid's rounding apart."""
    low, high = sorted(deltas)
    dear, cheap = (shuffled_loss(PLANS[name], delta, entries).epsilon for delta in (low, high))
    assert cheap <= dear * 1.02


def test_a_flat_release_is_charged_one_round_for_each_report_that_differs():
    """2κ rounds of one k-RR report each, all alike; a panel of r nodes r rounds, shared by r/N of the entries."""
    calendar, once = Calendar(0, 60, 16), AtMost(2)
    ((each, count),) = differing_rounds(flat(kary(3), 16), calendar, once, False).items()
    assert (count, each.alike, each.blanket) == (4, 1, counterpart_of(kary(3)).blanket)
    assert each.local == pytest.approx(1.0986122886681098)
    panel = flat(KaryResponse(StateSpace(3), Odds(9, 1)), 16, reported=2)
    ((each, count),) = differing_rounds(panel, calendar, once, False).items()
    assert (count, each.alike) == (2, 0.125)


def test_a_group_whose_changelogs_never_differ_tells_nothing():
    """Changes after the first period of a closed cohort that may mutate once; and the only state that there is."""
    alone = relayed(surveyed(flat(KaryResponse(StateSpace(1, null=False), Odds(3, 2)), 2), closed=True))
    assert shuffled_loss(alone, 1e-6, 10).epsilon == 0
    group = Group((Track(1, kary(2), 1, 3),))
    stated = relayed(surveyed(group, k=1, closed=True))
    assert differing_rounds(group, stated.calendar, stated.constraint, True).total() == 0
    assert shuffled_loss(stated, 1e-6, 10).epsilon == 0


def test_a_statement_says_what_it_rests_on():
    """Three figures with source and conditions; no shuffled one of unknown crowds, or without a relay."""
    assert loss_statement(replace(PLANS["flat"], relay=""), 1e-6, 10_000).shuffled is None
    local = loss_statement(PLANS["flat"], 1e-6)
    assert local.shuffled is None
    assert local.pure.delta == 0
    assert local.pure.epsilon >= float(PLANS["flat"].cost)
    whole = loss_statement(PLANS["flat"], 1e-6, 10_000)
    assert whole.approximate == local.approximate
    assert "Balle" in whole.shuffled.source
    for condition in ("honest", "10000", "the same n entries", "one stratum"):
        assert condition in whole.shuffled.conditions


EPSILONS = np.array([0.0, 0.05, 0.2, 0.5, 0.9, 1.4, 2.0, 2.6])


def states(m, a, b=1):
    return KaryResponse(StateSpace(m - 1), Odds(a, b))


def blanket(response, entries, epsilons=EPSILONS):
    total = response.total()
    return blanket_deltas(
        response.odds.favoured / total, response.odds.other / total, response.symbols, entries, epsilons
    )


def exactly(randomizer, entries):
    curve = worst_curve(shuffled_pairs(randomizer, entries))
    return np.array([curve.delta_at(float(epsilon)) for epsilon in EPSILONS])


@pytest.mark.parametrize(("m", "a", "entries"), [(2, 3, 1), (2, 3, 6), (2, 12, 5), (3, 5, 4), (4, 9, 3)])
def test_enumerated_histograms_stay_within_both_bounds(m, a, entries):
    """For every input of every entry, the exact δ(ε) of the shuffled histogram is at most each bound, and at ε = 0
    the blanket's is within a fifth of it."""
    exact = exactly(states(m, a), entries)
    by_blanket = blanket(states(m, a), entries)
    assert (exact <= by_blanket).all()
    assert (exact <= clones_deltas(log(a), entries, EPSILONS)).all()
    assert by_blanket[0] <= exact[0] * 1.2


@pytest.mark.parametrize(("m", "a", "entries"), [(3, 5, 4), (4, 9, 3)])
def test_the_counts_of_two_symbols_alone_are_no_bound(m, a, entries):
    """The pair of multinomials over x and x' with clones of both at q each, which leaves the other symbols out, is
    exceeded by the enumerated δ: why the blanket is used for k-RR."""
    q = 1 / (a + m - 1)
    laws = []
    for own in ((a * q, q), (q, a * q)):
        law = Counter()
        for c in range(entries):
            for k, (dx, dy, chance) in product(range(c + 1), ((1, 0, own[0]), (0, 1, own[1]), (0, 0, 1 - sum(own)))):
                others = comb(entries - 1, c) * (2 * q) ** c * (1 - 2 * q) ** (entries - 1 - c) * comb(c, k) / 2**c
                law[k + dx, c - k + dy] += others * chance
        laws.append(law)
    ratios = np.exp(EPSILONS)
    claimed = sum(np.maximum(0.0, laws[0][key] - ratios * laws[1][key]) for key in laws[0] | laws[1])
    assert (exactly(states(m, a), entries) > claimed * (1 + 1e-9) + 1e-12).any()


def test_other_randomizers_stay_within_the_clones_bound():
    """Signed subsets, shuffled and enumerated, with the loss of their worst pair."""
    signed = SignedSubset(MutationSpace(1), Odds(4, 1))
    for entries in (1, 2, 3, 4):
        local = max(float(loss) for loss in (signed.losses.mutations, signed.losses.appears, signed.losses.vanishes))
        assert (exactly(signed, entries) <= clones_deltas(local, entries, EPSILONS)).all()


@given(m=st.integers(2, 30), a=st.integers(2, 300), entries=st.integers(1, 10**5), more=st.integers(1, 10**5))
@settings(max_examples=30)
def test_more_entries_and_more_epsilon_never_tell_more(m, a, entries, more):
    """δ(ε) falls with ε and with the number of entries, rounding of blocks apart, and starts at most at k-RR's own."""
    epsilons = np.linspace(0, log(a), 9)
    few, many = (blanket(states(m, a), n, epsilons) for n in (entries, entries + 10 * more))
    assert (np.diff(few) <= 1e-12).all()
    assert (many <= few * 1.3 + 1e-12).all()
    assert few[0] <= (a - 1) / (a + m - 1) + 1e-9
    clones = [clones_deltas(log(a), n, epsilons) for n in (entries, entries + 10 * more)]
    assert (np.diff(clones[0]) <= 1e-12).all()
    assert (clones[1] <= clones[0] * 1.3 + 1e-12).all()
    assert max(few[-1], many[-1], clones[0][-1]) < 1e-12


def test_runs_of_many_entries_agree_with_single_counts(monkeypatch):
    """Summing K in runs is above summing it one by one, by less than a hundredth where it matters."""
    response, entries = KaryResponse(MutationSpace(2), Odds(3, 1)), 200_000
    epsilons = np.linspace(0, 0.03, 7)
    monkeypatch.setattr("changeling_statistics.shuffled.BLANKET_POINTS", 1)
    in_runs = blanket(response, entries, epsilons)
    monkeypatch.setattr("changeling_statistics.shuffled.RUNS", 10**9)
    one_by_one = blanket(response, entries, epsilons)
    assert not np.array_equal(in_runs, one_by_one)
    assert (in_runs >= one_by_one * (1 - 1e-9)).all()
    far = one_by_one < 1e-9
    assert (in_runs <= one_by_one * np.where(far, 2.0, 1.1)).all()


def test_a_randomizer_that_tells_nothing_stays_so():
    """ε₀ = 0."""
    assert not clones_deltas(0.0, 5, EPSILONS).any()
    assert not blanket_deltas(0.25, 0.25, 4, 5, EPSILONS).any()

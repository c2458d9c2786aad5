"""Shuffled rounds of k-RR, whose histograms are enumerated exactly, against the published bounds."""

from collections import Counter
from itertools import product
from math import comb, log

import numpy as np
import pytest
from changeling_protocol import KaryResponse, MutationSpace, Odds, SignedSubset, StateSpace
from changeling_statistics import worst_curve
from changeling_statistics.shuffled import blanket_deltas, clones_deltas
from hypothesis import given, settings
from hypothesis import strategies as st

from .exactly import shuffled_pairs

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


@given(
    m=st.integers(2, 30),
    a=st.integers(2, 300),
    entries=st.integers(1, 10**5),
    more=st.integers(1, 10**5),
)
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

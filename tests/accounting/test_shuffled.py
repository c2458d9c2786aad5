"""Whole surveys behind a relay: what their rounds and crowds are, and the order of the figures.

That none of them is too small is enumerated in `test_known_draws.py`.
"""

from dataclasses import replace

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
from changeling_statistics import counterpart_of, epsilon_at, loss_statement, shuffled_loss
from changeling_statistics.shuffled import differing_rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from ..protocol.examples import mixed, survey
from .exactly import flat, relayed, surveyed


def kary(z, a=3):
    return KaryResponse(MutationSpace(z), Odds(a, 1))


PLANS = {
    "flat": relayed(surveyed(flat(kary(3), 16))),
    "signed": relayed(surveyed(flat(SignedSubset(MutationSpace(3), Odds(9, 1)), 16), k=1)),
    "hierarchy": relayed(surveyed(Group(tuple(Track(w, kary(3, 2), 0, 16) for w in (1, 4, 16))))),
    "panel": relayed(surveyed(flat(KaryResponse(StateSpace(3), Odds(9, 1)), 16, reported=2))),
    "mixed": relayed(survey(mixed(3, 8), calendar=Calendar(0, 60, 8), closed=True)),
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


def test_only_a_survey_that_declares_a_relay_has_a_shuffled_figure():
    """Without one the bound is refused, and a statement leaves it out however many entries there are."""
    bare = replace(PLANS["flat"], relay="")
    with pytest.raises(ValueError, match="needs a relay, and this survey declares none"):
        shuffled_loss(bare, 1e-6, 10)
    assert loss_statement(bare, 1e-6, 10_000).shuffled is None


def test_a_statement_says_what_it_rests_on():
    """Three figures with source and conditions; no shuffled one of unknown crowds."""
    local = loss_statement(PLANS["flat"], 1e-6)
    assert local.shuffled is None
    assert local.pure.delta == 0
    assert local.pure.epsilon >= float(PLANS["flat"].cost)
    whole = loss_statement(PLANS["flat"], 1e-6, 10_000)
    assert whole.approximate == local.approximate
    assert "Balle" in whole.shuffled.source
    for condition in ("honest", "10000", "the same n entries", "one stratum"):
        assert condition in whole.shuffled.conditions

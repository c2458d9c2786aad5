"""The charge of a release plan against every pair of changelogs and every transcript."""

from collections.abc import Iterable
from decimal import Decimal
from itertools import product

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    Losses,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    TimeBounded,
    Track,
    lives_cost,
    node_cost,
    plan_cost,
)
from changeling_statistics.testing import worst_of_two_lives
from hypothesis import given
from hypothesis import strategies as st

from tests.enumeration import (
    all_inputs,
    changelogs,
    enumerated_loss,
    literal_transcript_ratio,
    log_from_below,
    worst_ratio_of_pairs,
    worst_transcript_ratio,
)
from tests.joint_enumeration import defined_law, worst_joint_ratio

from .loss_cases import ANY, LossCase, joint_loss_cases, lived, loss_cases

ROUNDING = Decimal("1e-40")
PLAIN, JOINT = tuple(loss_cases()), tuple(joint_loss_cases())


def assert_charged(cases: Iterable[LossCase]) -> None:
    """The charge is kept over every pair of changelogs, group, draw of nodes and transcript; attained where known."""
    for case in cases:
        stated = plan_cost(case.plan, case.calendar, case.constraint, case.closed)
        enumerated = enumerated_loss(case.plan, case.calendar, case.constraint, case.closed)
        assert enumerated <= stated, case
        assert stated - enumerated < ROUNDING or not case.reached, case


@pytest.mark.parametrize("answers", [1, 2, pytest.param(3, marks=pytest.mark.heavy)])
def test_every_randomizer_and_assignment_keeps_to_its_charge(answers):
    """Open and closed, under every kind of constraint; groups that are drawn cost the most expensive one."""
    assert_charged(case for case in PLAIN if case.answers == answers)


@pytest.mark.heavy
@pytest.mark.parametrize("answers", [1, 2, 3])
def test_no_two_changelogs_are_told_apart_beyond_the_odds_of_a_joint_group(answers):
    """Whatever it reports; and the odds are attained where nodes suffice."""
    assert_charged(case for case in JOINT if case.answers == answers)


@pytest.mark.heavy
def test_a_store_that_was_put_back_costs_no_more_than_two_lives():
    """All that both lives of a joint group send, over every pair of pairs of changelogs that were one until then."""
    for case in filter(lived, JOINT):
        every = list(changelogs(case.answers, case.calendar, case.constraint))
        stated = lives_cost(case.plan, case.calendar, case.constraint, lives=2)
        assert 0 < log_from_below(worst_of_two_lives(case.plan.groups[0], every)) <= stated, case


SMALL = Calendar(0, 10, 2), Calendar(0, 10, 4)
SIGNED = SignedSubset(MutationSpace(1), Odds(5, 2))


@pytest.mark.parametrize(
    ("randomizer", "calendar", "k", "reported"),
    [
        (KaryResponse(MutationSpace(1), Odds(5, 2)), SMALL[0], 1, None),
        (SignedSubset(MutationSpace(2), Odds(5, 2)), SMALL[0], 1, None),
        (SIGNED, SMALL[1], 2, 2),
        (next(case for case in PLAIN if case.name.startswith("custom ")).plan.tracks[0].randomizer, SMALL[1], 2, 2),
    ],
    ids=["k-rr", "signed", "signed, nodes drawn", "custom, nodes drawn"],
)
def test_every_transcript_listed_literally_gives_the_same_worst_ratio(randomizer, calendar, k, reported):
    """Every choice of nodes and every symbol, against the product of the worst symbols, against all pairs at once."""
    group = Group((Track(1, randomizer, 0, calendar.periods, reported),))
    every = list(changelogs(randomizer.space.answers, calendar, AtMost(k)))
    worst = 0
    for one, other in product(every, every):
        expected = worst_transcript_ratio(group, one, other)
        assert literal_transcript_ratio(group, one, other) == expected
        worst = max(worst, expected)
    assert worst_ratio_of_pairs(group, every) == worst


LAYERS = Group.jointly(
    (
        Track(1, KaryChange(MutationSpace(1), ANY), 0, 2),
        Track(2, SignedSubset(MutationSpace(1), ANY), 0, 2),
    ),
    Joint(Odds(7, 2), 3, (1, 2), (2, 1)),
)
CLOSED = Group.jointly(
    (
        Track(1, KaryResponse(StateSpace(2, null=False), ANY), 0, 1),
        Track(1, SignedSubset(MutationSpace(2, null=False), ANY), 1, 3),
    ),
    Joint(Odds(5, 2), 2, (2, 1), (1, 2)),
)


@pytest.mark.parametrize(
    ("group", "constraint", "closed"), [(LAYERS, AtMost(2), False), (CLOSED, AtMost(3), True)], ids=["open", "closed"]
)
def test_the_worst_transcript_of_a_joint_group_is_the_one_that_is_found(group, constraint, closed):
    """The largest ratio of two laws, symbol by symbol, over all pairs of changelogs."""
    answers, calendar = group.tracks[0].randomizer.space.answers, Calendar(0, 10, group.tracks[-1].last)
    every = [all_inputs(group, states) for states in changelogs(answers, calendar, constraint, closed)]
    laws = [defined_law(group, inputs) for inputs in every]
    assert worst_joint_ratio(group, every) == max(a[sent] / b[sent] for a, b in product(laws, laws) for sent in a)


def test_changelogs_under_a_time_bound_are_those_that_some_times_allow():
    """Against mutation times on a fine grid: the sets of periods are the same."""
    calendar, times = Calendar(0, 10, 4), np.arange(0.5, 40.25, 0.5)
    for bound in (1, 9, 10, 11, 20, 25):
        allowed = {()} | {
            tuple(sorted({calendar.period_of(s), calendar.period_of(t)}))
            for s, t in product(times, times)
            if 0 <= t - s <= bound
        }
        enumerated = set()
        for states in changelogs(1, calendar, TimeBounded(bound)):
            mutated = [i for i in range(1, 5) if states[i] != states[i - 1]]
            enumerated.add(tuple(sorted({*mutated[:1], *mutated[-1:]})))
        assert enumerated == allowed


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(0, 6), st.integers(0, 9))
def test_the_cost_of_a_track_in_closed_form_is_that_of_every_division(losses, most, reports):
    """Whatever the losses are to each other, with fewer nodes than mutations as well."""
    named = Losses(*map(Decimal, losses))
    assert node_cost(named, most, reports) == max(
        s * named.mutations + a * named.appears + b * named.vanishes
        for s, a, b in product(range(most + 1), repeat=3)
        if s + a <= most and s + b <= most and s + a + b <= reports
    )

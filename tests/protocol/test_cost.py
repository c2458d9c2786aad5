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
from changeling_statistics.testing import worst_of_laws, worst_of_two_lives
from hypothesis import given
from hypothesis import strategies as st

from tests.enumeration import changelogs, enumerated_loss, literal_laws, log_from_below, worst_ratio_of_pairs

from ..contracts.randomizers import steep
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


def flat(randomizer, periods, reported=None):
    return Group((Track(1, randomizer, 0, periods, reported),))


LAYERS = (Track(1, KaryChange(MutationSpace(1), ANY), 0, 2), Track(2, SignedSubset(MutationSpace(1), ANY), 0, 2))
ANCHORED = (
    Track(1, KaryResponse(StateSpace(2, null=False), ANY), 0, 1),
    Track(1, SignedSubset(MutationSpace(2, null=False), ANY), 1, 3),
)
LITERAL = {
    "k-rr": (flat(KaryResponse(MutationSpace(1), Odds(5, 2)), 2), 1, False),
    "signed": (flat(SignedSubset(MutationSpace(2), Odds(5, 2)), 2), 1, False),
    "signed, nodes drawn": (flat(SignedSubset(MutationSpace(1), Odds(5, 2)), 4, 2), 2, False),
    "custom, nodes drawn": (flat(steep(MutationSpace(1)), 4, 2), 2, False),
    "joint, open": (Group.jointly(LAYERS, Joint(Odds(7, 2), 3, (1, 2), (2, 1))), 2, False),
    "joint, closed": (Group.jointly(ANCHORED, Joint(Odds(5, 2), 2, (2, 1), (1, 2))), 3, True),
}


@pytest.mark.parametrize("case", LITERAL)
def test_every_transcript_listed_literally_gives_the_same_worst_ratio(case):
    """Every choice of nodes and every symbol, against what follows from the worst symbols of all pairs at once."""
    group, k, closed = LITERAL[case]
    calendar = Calendar(0, 10, group.tracks[-1].last)
    every = list(changelogs(group.tracks[0].randomizer.space.answers, calendar, AtMost(k), closed))
    assert worst_ratio_of_pairs(group, every) == max(map(worst_of_laws, literal_laws(group, every)))


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

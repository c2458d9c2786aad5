"""The charge of a release plan against every pair of changelogs and every transcript."""

from decimal import Decimal
from itertools import product

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    Losses,
    MutationSpace,
    Odds,
    ReleasePlan,
    TimeBounded,
    Track,
    node_cost,
    plan_cost,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.enumeration import (
    changelogs,
    enumerated_loss,
    literal_transcript_ratio,
    worst_ratio_of_pairs,
    worst_transcript_ratio,
)

from .loss_cases import loss_cases

ODDS = Odds(3, 1)
ROUNDING = Decimal("1e-40")


def hierarchy(z: int, T: int, c: int, h: int) -> Group:
    response = KaryResponse(MutationSpace(z), ODDS)
    return Group(tuple(Track(c**i, response, 0, T) for i in range(h)))


def worst_over_pairs(group: Group, T: int, k: int, closed: bool = False) -> Decimal:
    return enumerated_loss(ReleasePlan((group,)), Calendar(0, 10, T), AtMost(k), closed)


CASES = {case.name: case for case in loss_cases()}


REACHED = [(1, 4, 1, 2, 1), (1, 4, 2, 2, 1), (2, 4, 2, 2, 1), (2, 3, 2, 2, 1), (2, 4, 1, 2, 2), (2, 4, 2, 2, 3)]
"""DCR with nodes enough (2κε₀) and with too few (Nε₀), and hierarchies whose layers are worst together."""


@pytest.mark.parametrize(("z", "T", "k", "c", "h"), REACHED)
def test_the_stated_loss_is_reached(z, T, k, c, h):
    """On the named cases a pair of changelogs and a transcript have exactly the stated loss."""
    group = hierarchy(z, T, c, h)
    stated = plan_cost(ReleasePlan((group,)), Calendar(0, 10, T), AtMost(k))
    assert stated - worst_over_pairs(group, T, k) < ROUNDING


@pytest.mark.parametrize(("z", "T", "k", "h"), [(2, 3, 2, 1), (2, 4, 3, 1), (2, 4, 2, 2), (3, 3, 2, 1)])
def test_a_closed_cohort_costs_one_pair_of_insertions_and_the_rest(z, T, k, h):
    """Where everybody has an answer from the first period, the enumerated loss stays within the smaller charge,
    and a flat release reaches it."""
    group = hierarchy(z, T, 2, h)
    plan = ReleasePlan((group,))
    stated = plan_cost(plan, Calendar(0, 10, T), AtMost(k), closed=True)
    worst = worst_over_pairs(group, T, k, closed=True)
    assert worst <= stated
    if h == 1:
        assert stated - worst < ROUNDING
        assert stated < plan_cost(plan, Calendar(0, 10, T), AtMost(k)) or 2 * k >= T


@pytest.mark.parametrize("name", CASES)
def test_every_randomizer_and_assignment_keeps_to_its_charge(name):
    """Over every pair of changelogs, group, draw of nodes and transcript; where it is known that the charge
    is attained, it is: k-RR with 2κ nodes, signed subsets with κ + 1, states at every node."""
    case = CASES[name]
    stated = plan_cost(case.plan, case.calendar, case.constraint, case.closed)
    found = enumerated_loss(case.plan, case.calendar, case.constraint, case.closed)
    assert found <= stated
    if case.reached:
        assert stated - found < ROUNDING


@pytest.mark.parametrize(
    "name", ["krr_z1_T2_k1", "signed_quiet_z1_T4_k2_random2", "signed_z2_T2_k1", "custom_z1_T4_k2_random2"]
)
def test_every_transcript_listed_literally_gives_the_same_worst_ratio(name):
    """Every choice of nodes and every symbol, against the product of the worst symbols, against all pairs at once."""
    case = CASES[name]
    group = case.plan.groups[0]
    every = list(changelogs(group.tracks[0].randomizer.space.answers, case.calendar, case.constraint))
    worst = 0
    for one, other in product(every, every):
        expected = worst_transcript_ratio(group, one, other)
        assert literal_transcript_ratio(group, one, other) == expected
        worst = max(worst, expected)
    assert worst_ratio_of_pairs(group, every) == worst


def test_changelogs_under_a_time_bound_are_those_that_some_times_allow():
    """Against mutation times on a fine grid: the sets of periods are the same."""
    calendar, step = Calendar(0, 10, 4), 0.5
    times = np.arange(step, 40 + step / 2, step)
    for bound in (1, 9, 10, 11, 20, 25):
        allowed = {()} | {(calendar.period_of(t),) for t in times}
        allowed |= {
            tuple(sorted({calendar.period_of(s), calendar.period_of(t)}))
            for s in times
            for t in times
            if 0 <= t - s <= bound
        }
        found = set()
        for states in changelogs(1, calendar, TimeBounded(bound)):
            mutated = [i for i in range(1, 5) if states[i] != states[i - 1]]
            found.add(tuple(sorted({*mutated[:1], *mutated[-1:]})))
        assert found == allowed


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(0, 6), st.integers(0, 9))
def test_the_cost_of_a_track_in_closed_form_is_that_of_every_division(losses, most, reports):
    """Whatever the losses are to each other, with fewer nodes than mutations as well."""
    named = Losses(*map(Decimal, losses))
    assert node_cost(named, most, reports) == max(
        s * named.mutations + a * named.appears + b * named.vanishes
        for s, a, b in product(range(most + 1), repeat=3)
        if s + a <= most and s + b <= most and s + a + b <= reports
    )


def test_groups_cost_the_most_expensive_one():
    """Drawn once and independently of the data, the groups cost their maximum, not their sum."""
    calendar, once = Calendar(0, 10, 4), AtMost(1)
    cheap, dear = hierarchy(2, 4, 2, 1), hierarchy(2, 4, 2, 2)
    assert plan_cost(ReleasePlan((cheap, dear)), calendar, once) == plan_cost(ReleasePlan((dear,)), calendar, once)

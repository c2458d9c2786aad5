"""The charge of joint groups against every pair of changelogs and every transcript, and the law of what is sent."""

from decimal import Decimal
from itertools import product

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
    Track,
    lives_cost,
    plan_cost,
)

from tests.enumeration import all_inputs, changelogs, enumerated_lives_loss, enumerated_loss
from tests.joint_enumeration import defined_law, worst_joint_ratio

from .loss_cases import joint_loss_cases, lived

pytestmark = pytest.mark.heavy

ROUNDING = Decimal("1e-40")
CASES = {case.name: case for case in joint_loss_cases()}
LIVED = [name for name, case in CASES.items() if lived(case) and "_z1_" in name and "_states_" not in name]
ANY = Odds(2, 1)


def jointly(joint, *tracks):
    return Group.jointly(tracks, joint)


SMALL = {
    "layers": (
        jointly(
            Joint(Odds(7, 2), 3, (1, 2), (2, 1)),
            Track(1, KaryChange(MutationSpace(1), ANY), 0, 2),
            Track(2, SignedSubset(MutationSpace(1), ANY), 0, 2),
        ),
        AtMost(2),
        1,
        False,
    ),
    "closed": (
        jointly(
            Joint(Odds(5, 2), 2, (2, 1), (1, 2)),
            Track(1, KaryResponse(StateSpace(2, null=False), ANY), 0, 1),
            Track(1, SignedSubset(MutationSpace(2, null=False), ANY), 1, 3),
        ),
        AtMost(3),
        2,
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_two_changelogs_are_told_apart_beyond_the_odds_of_a_joint_group(name):
    """Over every pair of changelogs, draw of nodes and transcript; and the odds are attained where nodes suffice."""
    case = CASES[name]
    stated = plan_cost(case.plan, case.calendar, case.constraint, case.closed)
    found = enumerated_loss(case.plan, case.calendar, case.constraint, case.closed)
    assert found <= stated
    if case.reached:
        assert stated - found < ROUNDING


@pytest.mark.parametrize("name", LIVED)
def test_a_store_that_was_put_back_costs_no_more_than_two_lives(name):
    """All that both lives send, over every pair of pairs of changelogs that were one until the copy was made."""
    case = CASES[name]
    stated = lives_cost(case.plan, case.calendar, case.constraint, case.closed, lives=2)
    once = enumerated_loss(case.plan, case.calendar, case.constraint, case.closed)
    assert once <= enumerated_lives_loss(case.plan, case.calendar, case.constraint, case.closed) <= stated


@pytest.mark.parametrize("name", SMALL)
def test_the_worst_transcript_listed_literally_is_the_one_that_is_found(name):
    """The largest ratio of two laws, symbol by symbol, over all pairs of changelogs."""
    group, constraint, answers, closed = SMALL[name]
    calendar = Calendar(0, 10, group.tracks[-1].last)
    every = [all_inputs(group, states) for states in changelogs(answers, calendar, constraint, closed)]
    laws = [defined_law(group, inputs) for inputs in every]
    listed = max(one[sent] / other[sent] for one, other in product(laws, laws) for sent in one)
    assert worst_joint_ratio(group, every) == listed

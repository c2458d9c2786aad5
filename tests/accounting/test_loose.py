"""How far the figures of reports with a budget each are above the exact ones: the cases that the documents name."""

from fractions import Fraction
from math import log

import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Track,
    plan_cost,
)
from changeling_statistics import epsilon_at, loss_statement

from tests.enumeration import enumerated_loss

from ..protocol.examples import survey
from .exactly import worst_transcript_curve


@pytest.mark.parametrize(("periods", "charged", "found"), [(3, 5, 4), (4, 6, 5)])
def test_states_beside_changes_are_charged_a_report_too_many(periods, charged, found):
    """Closed, k = 2, two answers, k-RR at 3:1 of states and changes: no pair of changelogs is the worst on both."""
    odds, calendar = Odds(3, 1), Calendar(0, 60, periods)
    states = Track(1, KaryResponse(StateSpace(2, null=False), odds), 0, periods)
    changes = Track(1, KaryResponse(MutationSpace(2, null=False), odds), 1, periods)
    plan = ReleasePlan((Group((states, changes)),))
    assert float(plan_cost(plan, calendar, AtMost(2), closed=True)) == pytest.approx(charged * log(3))
    assert float(enumerated_loss(plan, calendar, AtMost(2), closed=True)) == pytest.approx(found * log(3))


@pytest.mark.parametrize(
    ("delta", "stated", "exact"), [(Fraction(1, 100), 1.813, 1.793), (Fraction(1, 20), 1.729, 1.614)]
)
def test_signed_subsets_in_an_open_cohort_have_a_curve_above_the_exact_one(delta, stated, exact):
    """One answer, four periods, k = 2, odds 5:2: a first mutation is an insertion, and two insertions differ less."""
    group = Group((Track(1, SignedSubset(MutationSpace(1), Odds(5, 2)), 0, 4),))
    made = survey(ReleasePlan((group,)), answers=("a",), calendar=Calendar(0, 60, 4), constraint=AtMost(2))
    assert epsilon_at(made, float(delta)) == pytest.approx(stated, abs=5e-4)
    assert worst_transcript_curve(group, 1, 4, 2).epsilon_at(delta) == pytest.approx(exact, abs=5e-4)
    assert "upper bound" in loss_statement(made, float(delta)).approximate.conditions

"""The groups that a plan may be made of: what they cost, what they say, and which are tried."""

import numpy as np
import pytest
from changeling_protocol import ReleasePlan, TimeBounded, plan_cost
from changeling_statistics.planning.candidates import Maker, closer_look, first_look
from changeling_statistics.planning.prediction import Span

from .wishes import wish


@pytest.mark.heavy
@pytest.mark.parametrize("closed", [False, True])
def test_every_kind_is_tried_and_every_candidate_is_a_plan_within_the_budget(closed):
    """Each group alone charges at most epsilon, whatever it says; all but single reports are joint."""
    of = wish(periods=12, closed=closed)
    found = list(first_look(Maker(of)))
    found += closer_look(Maker(of), found)
    assert {candidate.kind for candidate in found} == {"panel", "changes", "hierarchy", "mix", "history"}
    for candidate in found:
        group = candidate.group
        assert plan_cost(ReleasePlan((group,)), of.calendar, of.constraint, closed) <= of.epsilon
        assert (group.joint is None) == (sum(track.reports for track in group.tracks) == 1)
    assert any(track.reported and track.reports_changes for candidate in found for track in candidate.group.tracks)


def test_changes_of_a_closed_cohort_are_told_without_null_after_the_first_period():
    """Where everybody has an answer, none is wasted on having none."""
    tracks = [track for each in first_look(Maker(wish(periods=9, closed=True))) for track in each.group.tracks]
    assert all(track.randomizer.space.null == (track.first == 0) for track in tracks if track.reports_changes)
    assert not any(track.randomizer.space.null for track in tracks if not track.reports_changes)


def test_the_least_budget_of_all_still_has_candidates():
    """Nothing in them is infinite."""
    found = list(first_look(Maker(wish(epsilon="0.001"))))
    assert found
    assert all(np.isfinite(candidate.rows).all() for candidate in found)


def test_what_has_more_slots_than_a_device_counts_gets_a_budget_for_each_report():
    """Changes that may lie in 300 nodes."""
    of = wish(periods=320, constraint=TimeBounded(300 * 60))
    (candidate,) = Maker(of).candidates("changes", (), (Span(1, 0, 320),), 1)
    assert candidate.group.joint is None
    assert plan_cost(ReleasePlan((candidate.group,)), of.calendar, of.constraint) <= of.epsilon

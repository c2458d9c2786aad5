"""The groups that a plan may be made of, as edges of the release graph."""

from itertools import pairwise

import numpy as np
import pytest
from changeling_protocol import ReleasePlan, plan_cost
from changeling_statistics.estimation.expected import expected_spread, expected_variance
from changeling_statistics.planning.candidates import candidates

from .wishes import wish


@pytest.mark.parametrize("closed", [False, True])
def test_candidates_are_weighed_as_the_estimator_weighs_nodes(closed):
    """Response variance and spread of every edge, N/r of each, against estimation's own, node by node."""
    of = wish(periods=9, closed=closed, first=10**6 if closed else 400_000)
    for candidate in candidates(of)[::7]:
        at = 0
        for track in candidate.group().tracks:
            for node in track.nodes():
                start = node.start if track.reports_changes else 0
                response = expected_variance(track.randomizer, node, of.expected, closed)
                spread = expected_spread(3, of.expected, closed, start, node.end)
                assert (candidate.start[at], candidate.end[at]) == (start, node.end)
                assert candidate.response[at] == pytest.approx(response * track.count / track.reports, rel=1e-6)
                assert candidate.sampling[at] == pytest.approx(spread * track.count / track.reports, abs=1e-12)
                at += 1
        assert at == len(candidate.end)


@pytest.mark.parametrize("closed", [False, True])
def test_every_cadence_width_is_tried_and_every_candidate_is_a_plan_within_the_budget(closed):
    """Widths that tile the horizon and ones that leave a remainder; each group alone charges at most epsilon."""
    of = wish(periods=12, closed=closed)
    found = candidates(of)
    widths = {part.span.width for candidate in found if candidate.kind == "changes" for part in candidate.parts}
    assert widths == set(range(1, 13 - closed)) | ({12} if closed else set())
    assert {candidate.kind for candidate in found} == {"panel", "changes", "hierarchy", "mix"}
    for candidate in found:
        group = candidate.group()
        assert plan_cost(ReleasePlan((group,)), of.calendar, of.constraint, closed) <= of.epsilon


def test_panels_ask_one_node_of_each_stretch_and_stretches_are_apart():
    """r reports lie in r stretches of the horizon that do not overlap."""
    for candidate in candidates(wish(periods=20)):
        if candidate.kind == "panel":
            bounds = [(part.span.first, part.span.last) for part in candidate.parts]
            assert all(one[1] <= other[0] for one, other in pairwise(bounds))
            assert all(part.span.reports == 1 for part in candidate.parts)


def test_a_budget_that_says_nothing_is_refused():
    """At the least epsilon of all there is still a plan; mixes that would leave a part too little are left out."""
    found = candidates(wish(epsilon="0.001"))
    assert found
    assert all(np.isfinite(candidate.variance).all() for candidate in found)

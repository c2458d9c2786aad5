"""The direct sliding-window release on the local side."""

import pytest
from changeling_protocol import Node, plan_cost
from changeling_statistics import sliding_plan

from .wishes import wish


@pytest.mark.parametrize(("window", "slide"), [(4, 1), (4, 2), (4, 4), (6, 3), (16, 8)])
@pytest.mark.parametrize("k", [1, 3])
def test_every_window_that_fits_is_a_node_and_the_charge_is_the_sum(window, slide, k):
    """W/P cadences, charged together: at most epsilon, and nearly all of it."""
    of = wish(periods=16, k=k)
    plan = sliding_plan(of, window, slide)
    windows = {node for track in plan.tracks for node in track.nodes()}
    assert windows == {Node(s, s + window) for s in range(0, 16 - window + 1, slide)}
    cost = plan_cost(plan, of.calendar, of.constraint)
    assert of.epsilon * 999 / 1000 < cost <= of.epsilon


@pytest.mark.parametrize(
    ("window", "slide", "named"),
    [
        (4, 3, "a slide of 3 does not divide windows of 4"),
        (4, 5, "slide by 1 to 4 periods, their length, got 5"),
        (4, 0, "got 0"),
        (17, 1, "17 periods does not fit into 16"),
    ],
)
def test_windows_that_cannot_be_cadences_are_named(window, slide, named):
    """The message holds the values and what would do."""
    with pytest.raises(ValueError, match=named):
        sliding_plan(wish(periods=16), window, slide)


def test_a_budget_that_leaves_a_report_nothing_is_refused():
    """Sixteen cadences share a thousandth of a nat."""
    with pytest.raises(ValueError, match=r"epsilon 0\.01 leaves .* on 16 cadences"):
        sliding_plan(wish(periods=64, epsilon="0.01"), 16)

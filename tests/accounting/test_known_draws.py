"""(ε, δ) and shuffled figures against whoever knows an entry's group and drawn nodes, by exact computation."""

import pytest
from changeling_protocol import KaryResponse, Odds, StateSpace
from changeling_statistics import worst_curve

from .exactly import against, histogram_law, shuffled_pairs
from .known_draws import group_deltas, worst_deltas
from .shuffled_cases import checked_cases
from .test_shuffled import flat, surveyed

EPSILONS = (0.0, 0.2, 0.7, 1.5)


@pytest.mark.parametrize(("seed", "count"), [(3, 25), pytest.param(11, 80, marks=pytest.mark.heavy)])
def test_random_surveys_stay_within_every_stated_figure(seed, count):
    """Small surveys of every kind: of no figure the exact δ exceeds the stated one, and many are reached."""
    found = [ratios for _, ratios in checked_cases(seed, count)]
    assert max(ratios.largest for ratios in found) <= 1
    assert sum(ratios.approximate > 0.999 for ratios in found) > 10
    assert any(ratios.helps for ratios in found)


@pytest.mark.parametrize("entries", [1, 2, 4])
def test_the_enumeration_agrees_with_that_of_histograms_in_fractions(entries):
    """One state, told once: over all inputs of all entries."""
    response = KaryResponse(StateSpace(1), Odds(4, 1))
    curve = worst_curve(shuffled_pairs(response, entries))
    found = worst_deltas(surveyed(flat(response, 1), T=1), entries, EPSILONS)
    assert found == pytest.approx([curve.delta_at(epsilon) for epsilon in EPSILONS], abs=1e-12)


def test_the_enumeration_takes_the_mean_over_what_the_others_draw():
    """Two entries, one node of two: with a chance of one half the other reports elsewhere and hides nothing."""
    response = KaryResponse(StateSpace(1), Odds(4, 1))
    panel = surveyed(flat(response, 2, reported=1))
    alone, beside = (against(*(histogram_law(response, (u, *v)) for u in (0, 1))) for v in ((), (0,)))
    (found,) = group_deltas(panel, 0, 2, (0.3,))
    assert found == pytest.approx((alone.delta_at(0.3) + beside.delta_at(0.3)) / 2, abs=1e-12)

"""Calibrated noise: enough by the exact law of the loss, hardly more than that, and refused where none can be shown."""

from fractions import Fraction
from math import exp, sqrt
from statistics import NormalDist

import pytest
from changeling_central import Law, NodeNoise, calibrated
from changeling_central.noise import least_delta

from .exact_losses import exact_delta

SHIFTS = [{1: 1}, {1: 4}, {1: 2, 3: 1}, {2: 1, 5: 2}, {1: 30}]
BUDGETS = [("0.3", "1e-3"), ("1", "1e-6"), ("1", "1e-12"), ("4", "1e-9"), ("20", "1e-6")]


def drawn(shifts):
    return tuple(shift for shift, count in shifts.items() for _ in range(count))


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize(("shifts", "budget"), [*zip(SHIFTS, BUDGETS, strict=True)], ids=str)
def test_a_scale_is_enough_and_a_scale_one_percent_smaller_is_not(law, shifts, budget):
    """By the exact law of the loss: never less private than stated, and 1% of the scale is all that rounding costs."""
    epsilon, delta = map(Fraction, budget)
    scale = calibrated(shifts, epsilon, delta, law).scale
    assert exact_delta(law, scale, drawn(shifts), float(epsilon)) <= float(delta)
    assert exact_delta(law, scale / 1.01, drawn(shifts), float(epsilon)) > float(delta)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("scale", [0.7, 20.0])
@pytest.mark.parametrize("epsilon", [0.0, 2.0, 30.0])
@pytest.mark.parametrize("shifts", SHIFTS[1:4], ids=str)
def test_a_stated_delta_is_never_below_the_exact_one(law, scale, epsilon, shifts):
    """At any scale, whether it was calibrated or not; and where delta is large, 2% above it at most."""
    exact = exact_delta(law, scale, drawn(shifts), epsilon)
    stated = NodeNoise(law, scale).delta(shifts, epsilon)
    assert exact <= stated
    if exact > 0.1:
        assert stated <= 1.02 * exact


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize(
    ("shifts", "epsilon", "delta"),
    [({1: 1}, "0.05", "0.8"), ({1: 60}, "50", "0.1"), ({40: 1}, "1", "1e-11"), ({1: 60}, "0.05", "1e-11")],
    ids=str,
)
def test_what_is_calibrated_is_what_is_stated(law, epsilon, delta, shifts):
    """The noise states at most the delta it was made for, at budgets far from the usual."""
    noise = calibrated(shifts, Fraction(epsilon), Fraction(delta), law)
    assert noise.delta(shifts, float(epsilon)) <= float(delta)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("delta", ["1e-14", "1e-15", "1e-300"])
def test_a_delta_that_floating_point_hides_is_refused_by_name(law, delta):
    """30 draws: the error says from where on delta can be accounted for."""
    least = least_delta({1: 30})
    with pytest.raises(ValueError, match=f"30 draws delta can be accounted for from {least:.1e}, got "):
        calibrated({1: 30}, Fraction(1), Fraction(delta), law)


@pytest.mark.parametrize("law", Law)
def test_the_least_delta_is_accounted_for_without_waste(law):
    """At the very least delta the scale is enough, and at most 2% above need: it does not climb on the way there."""
    shifts = {1: 30}
    least = Fraction(least_delta(shifts))
    scale = calibrated(shifts, Fraction(1), least, law).scale
    assert exact_delta(law, scale, drawn(shifts), 1.0) <= least
    assert exact_delta(law, scale / 1.02, drawn(shifts), 1.0) > least


@pytest.mark.heavy
@pytest.mark.parametrize("draws", [130, 520])
def test_many_draws_composed_by_stages_lose_no_more_than_few(draws):
    """Their sum is one draw of scale √draws times as wide, to e^(-2π² scale²), shifted by so many."""
    scale = calibrated({1: draws}, Fraction(1), Fraction(1, 10**9), Law.GAUSSIAN).scale

    def exact(scale):
        return exact_delta(Law.GAUSSIAN, scale * sqrt(draws), (draws,), 1.0)

    assert exact(scale) <= 1e-9 < exact(scale / 1.01)


@pytest.mark.parametrize("law", Law)
def test_where_the_grid_grows_coarse_concentrated_privacy_is_stated(law):
    """100,000 draws, rho = 1/80: at most e^(-(1 - rho)² / 4 rho), and above the delta of the continuous normal law."""
    draws, rho = 100_000, 1 / 80
    stated = NodeNoise(law, sqrt(draws / (2 * rho))).delta({1: draws}, 1.0)
    assert stated <= exp(-((1 - rho) ** 2) / (4 * rho)) * (1 + 1e-9)
    mu = sqrt(2 * rho)
    normal = NormalDist()
    assert stated > normal.cdf(mu / 2 - 1 / mu) - exp(1) * normal.cdf(-mu / 2 - 1 / mu)

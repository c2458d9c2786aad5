"""OpenDP's samplers, the pool that draws ahead of need, and the stand-in for both."""

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import exp, sqrt
from multiprocessing import get_context
from statistics import NormalDist

import numpy as np
import pytest
from changeling_central import Law, NodeNoise, OpenDPNoise, PooledNoise, calibrated, concentrated_budget, implied_delta
from changeling_central.noise import least_delta
from changeling_central.testing import NoNoise, SeededNoise

from .examples import exact_delta


def test_noise_of_opendp_does_not_stop_at_32_bits():
    """At scale 2^40 no draw of 200 is another or an end of 32 bits (false alarm 10⁻⁷); beyond 2^56 it is refused."""
    for draw in (OpenDPNoise().laplace, OpenDPNoise().gaussian):
        drawn = draw(2.0**40, 200)
        assert len(set(drawn.tolist())) == 200
        assert np.abs(drawn).max() > 2**32
        with pytest.raises(ValueError, match="2\\^56"):
            draw(2.0**57, 1)


def test_a_pool_hands_out_every_draw_once_and_keeps_none():
    """In the source's order, by law and scale; what was handed out is wiped, and a child process draws anew."""
    last = 0

    class Counting(NoNoise):
        def laplace(self, scale, size):  # noqa: ARG002
            nonlocal last
            last += size
            return np.arange(last - size, last)

    pool = PooledNoise(Counting(), batch=8)
    handed = [*pool.laplace(1.0, 3), *pool.laplace(1.0, 5), *pool.laplace(1.0, 1), *pool.laplace(1.0, 20)]
    assert handed == [*range(9), *range(16, 36)]
    assert pool.laplace(2.0, 2).tolist() == [36, 37]
    assert pool._pools["laplace", 1.0].draws.tolist() == [0, *range(9, 16)]
    forked = get_context("fork")
    queue = forked.SimpleQueue()
    child = forked.Process(target=lambda: queue.put(pool.laplace(2.0, 2).tolist()))
    child.start()
    assert queue.get() == [44, 45]
    child.join()
    assert pool.laplace(2.0, 2).tolist() == [38, 39]


def test_laplace_noise_of_the_stand_in_is_the_law_it_stands_for():
    """The audits of this folder rest on it: chance of 0 within 5 standard errors (false alarm 6·10⁻⁷)."""
    n, scale = 200_000, 3.0
    p = exp(-1 / scale)
    zero = (1 - p) / (1 + p)
    found = np.mean(SeededNoise(0).laplace(scale, n) == 0)
    assert abs(found - zero) < 5 * sqrt(zero * (1 - zero) / n)


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
def test_many_draws_composed_by_stages_lose_no_more_than_few():
    """520: their sum is one draw of scale √draws times as wide, to e^(-2π² scale²), shifted by so many."""
    draws, scale = 520, 130.0

    def exact(scale):
        return exact_delta(Law.GAUSSIAN, scale * sqrt(draws), (draws,), 1.0)

    assert exact(scale) <= NodeNoise(Law.GAUSSIAN, scale).delta({1: draws}, 1.0) < exact(scale / 1.01)


@pytest.mark.parametrize("law", Law)
def test_where_the_grid_grows_coarse_concentrated_privacy_is_stated(law):
    """100,000 draws, rho = 1/80: at most e^(-(1 - rho)² / 4 rho), and above the delta of the continuous normal law."""
    draws, rho = 100_000, 1 / 80
    stated = NodeNoise(law, sqrt(draws / (2 * rho))).delta({1: draws}, 1.0)
    assert stated <= exp(-((1 - rho) ** 2) / (4 * rho)) * (1 + 1e-9)
    mu = sqrt(2 * rho)
    normal = NormalDist()
    assert stated > normal.cdf(mu / 2 - 1 / mu) - exp(1) * normal.cdf(-mu / 2 - 1 / mu)


def least_implied(rho: float, epsilon: Fraction) -> Decimal:
    """min over α > 1 of exp((α-1)(αρ - ε) + α ln(1 - 1/α)) / (α-1), by golden sections of ln(α-1)."""
    rate, stated = Decimal(rho), Decimal(epsilon.numerator) / epsilon.denominator

    def exponent(place: Decimal) -> Decimal:
        alpha = 1 + place.exp()
        return (alpha - 1) * (alpha * rate - stated) + alpha * (1 - 1 / alpha).ln() - place

    low, high, golden = Decimal(-25), Decimal(50), (Decimal(5).sqrt() - 1) / 2
    for _ in range(90):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if exponent(left) < exponent(right) else (left, high)
    return exponent((low + high) / 2).exp()


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), Fraction(1, 10), Fraction(1, 3), Fraction(3), Fraction(1000)])
def test_a_budget_implies_no_more_than_its_delta(epsilon):
    """From a delta of 10^-100 to one of .999; and it is nearly all of it but where delta is close to 1."""
    for delta in (Fraction(1, 10**100), Fraction(1, 10**12), Fraction(1, 100), Fraction(1, 2), Fraction(999, 1000)):
        rho = concentrated_budget(epsilon, delta)
        with localcontext(Context(prec=50)):
            share = least_implied(rho, epsilon) * delta.denominator / delta.numerator
        assert Decimal("0.96") < share <= 1


@pytest.mark.parametrize("rho", [1e-12, 1e-3, 1.0, 50.0])
def test_what_a_rho_implies_is_rounded_up(rho):
    """At an epsilon of 0, where most is implied, and up to 300."""
    for epsilon in (0.0, 1e-9, 0.5, 30.0, 300.0):
        with localcontext(Context(prec=50)):
            least = least_implied(rho, Fraction(epsilon))
        assert Decimal(implied_delta(rho, epsilon)) >= min(least, Decimal(1)) * (1 - Decimal("1e-25"))

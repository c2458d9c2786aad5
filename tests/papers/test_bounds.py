"""The local mechanism RR out of the protocol's k-RR, and the counting argument below every private counter."""

from fractions import Fraction
from itertools import product
from math import exp, log1p, sqrt

import pytest
from changeling_papers import BasicCounting, unbeatable
from changeling_protocol import KaryResponse, Odds, StateSpace
from changeling_statistics import counterpart_of, randomizer_curve

from tests.enumeration import probability

F = Fraction
BIASES = [F(1, 10), F(1, 2), F(7, 9)]


def sign_response(bias):
    """The mechanism RR of the lecture notes, section 1: an answer ±1 is kept with probability (1 + bias)/2."""
    ratio = (1 + bias) / (1 - bias)
    return KaryResponse(StateSpace(1), Odds(ratio.numerator, ratio.denominator))


@pytest.mark.parametrize("bias", BIASES)
def test_the_loss_is_the_log_of_the_odds_and_not_twice_the_bias(bias):
    """ln((1+e)/(1-e)) over all symbols and inputs; at 2e, which is less, δ is above 0."""
    randomizer = sign_response(bias)
    worst = max(
        probability(randomizer, symbol, u) / probability(randomizer, symbol, v)
        for symbol, u, v in product((0, 1), repeat=3)
    )
    assert worst == (1 + bias) / (1 - bias)
    assert float(randomizer.losses.mutations) == pytest.approx(log1p(bias) - log1p(-bias), rel=1e-14)
    curve = randomizer_curve(randomizer)
    assert curve.delta_at_ratio(worst) == 0
    assert curve.delta_at(2 * float(bias)) > 0


@pytest.mark.parametrize(("n", "epsilon"), [(256, F(1)), (65536, F(1)), (65536, F(1, 4)), (10**6, F(2))])
def test_the_lower_bound_is_the_last_block_length_that_contradicts_privacy(n, epsilon):
    """With blocks of 2a a counter that good would give disjoint events more than probability 1; with any longer it
    would not. The events' total: 1/2 for the right place and e^(-2Bε)/2 for every other."""

    def total(length):
        return 0.5 + (n // length - 1) * exp(-2 * length * float(epsilon)) / 2

    length = round(2 * unbeatable(n, epsilon))
    assert length >= 1
    assert total(length) > 1
    assert all(total(longer) <= 1 for longer in range(length + 1, min(n, length + 400)))
    assert [unbeatable(short, F(1)) for short in (1, 2, 3)] == [0, 0, 0], "two blocks that are told apart need more"


def test_the_notes_closed_form_does_not_follow_for_huge_n():
    """Their sum excludes a = ln(n)/4 - 1 until ln n = e⁴ + 4; this one, twice as strong, until 2e⁴ + 4 = 113."""
    for logarithm in (8, 20, 40, 100):
        assert unbeatable(round(exp(logarithm)), F(1)) >= logarithm / 4 - 1
    for logarithm in (130, 200, 700):
        assert unbeatable(round(exp(logarithm)), F(1)) < logarithm / 4 - 1


@pytest.mark.parametrize("bias", BIASES)
def test_the_gap_of_local_to_central_is_the_square_root_of_n(bias):
    """At the same loss the deviations that the two mechanisms state are √(n/2) apart, whatever the bias."""
    loss = F(log1p(bias) - log1p(-bias))
    central = BasicCounting().under(loss, F(0)).variance
    local = counterpart_of(sign_response(bias)).report_covariance(0)[0, 0]
    for n in (100, 10**6):
        assert sqrt(n * local / central) == pytest.approx(sqrt(n / 2), rel=1e-9)


def test_one_central_count_at_loss_2e_deviates_by_more_than_the_notes_say():
    """1/(√2 e) for Laplace noise of scale 1/(2e), not 1/(2e)."""
    bias = F(1, 1000)
    deviation = sqrt(BasicCounting().under(2 * bias, F(0)).variance)
    assert deviation == pytest.approx(1 / (sqrt(2) * bias), rel=1e-3)

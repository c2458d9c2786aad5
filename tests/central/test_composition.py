"""Composition: against closed forms and against dp-accounting."""

from math import comb, exp

import pytest
from changeling_central import Composition, Loss
from dp_accounting.pld import common, privacy_loss_distribution


def optimal_delta(epsilon, k, target):
    """Kairouz, Oh, Viswanath 2015, theorem 3.3, of k pure losses, summed directly."""
    norm = (1 + exp(epsilon)) ** k
    return sum(
        comb(k, i) * max(0.0, exp(epsilon * (k - i)) - exp(target) * exp(epsilon * i)) / norm for i in range(k + 1)
    )


@pytest.mark.parametrize(("epsilon", "k"), [(0.1, 1), (0.1, 20), (0.5, 7), (1.0, 3)])
def test_the_exact_composition_is_the_optimal_one(epsilon, k):
    """Within the grid of the PLD, and never below."""
    composed = Composition.of(Loss(epsilon)) * k
    for target in (0.0, epsilon, epsilon * k / 2):
        exact = optimal_delta(epsilon, k, target)
        assert exact - 1e-9 <= composed.exact_delta(target) <= exact + 1e-3 * k


def test_the_exact_composition_is_that_of_dp_accounting():
    """Of mixed losses with deltas."""
    composed = Composition.of(Loss(0.3, 1e-6)) * 4 + Composition.of(Loss(0.1))
    reference = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0.3, 1e-6)
    ).self_compose(4)
    reference = reference.compose(
        privacy_loss_distribution.from_privacy_parameters(common.DifferentialPrivacyParameters(0.1, 0))
    )
    assert composed.exact_epsilon(1e-5) == pytest.approx(reference.get_epsilon_for_delta(1e-5), rel=1e-3)


@pytest.mark.parametrize(
    ("losses", "delta"),
    [
        ([(1e-4, 0.0, 100)], 1e-9),
        ([(1e-5, 0.0, 700), (3e-6, 0.0, 1000)], 1e-6),
        ([(0.3, 1e-8, 4), (0.07, 0.0, 300)], 1e-6),
        ([(2.0, 0.0, 3), (0.5, 0.0, 1)], 1e-12),
        ([(0.01, 0.0, 10_000)], 1e-6),
    ],
)
def test_the_least_is_never_above_any_of_them_nor_below_what_is_possible(losses, delta):
    """Of losses far finer than a grid of 1e-4, where basic gives .0100 and that grid .0571; and never below the exact
    delta of the queries of one epsilon, summed directly."""
    composed = sum((Composition.of(Loss(a, b)) * n for a, b, n in losses), Composition())
    least = composed.least(delta)
    assert least.delta == delta
    assert least.epsilon <= composed.basic().epsilon * (1 + 1e-12)
    assert least.epsilon <= composed.exact_epsilon(delta)
    if len(losses) == 1 and losses[0][2] <= 500:
        epsilon, _, k = losses[0]
        assert optimal_delta(epsilon, k, least.epsilon) <= delta * (1 + 1e-6) + 1e-15


def test_the_exact_composition_is_rounded_by_a_part_in_a_thousand():
    """Of two epsilons that share no grid, a hundred queries: within 0.2% of a grid four times as fine."""
    composed = Composition.of(Loss(0.011)) * 50 + Composition.of(Loss(0.0173)) * 50
    coarse = composed.exact_epsilon(1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("changeling_central.budget.ROUNDED", 4000)
        fine = composed.exact_epsilon(1e-6)
    assert fine <= coarse <= fine * 1.002


def test_a_delta_below_the_queries_own_is_refused():
    """Nothing finite holds there."""
    with pytest.raises(ValueError, match="deltas of their own"):
        (Composition.of(Loss(0.1, 1e-5)) * 3).least(1e-6)


def test_a_composition_of_compositions_is_the_one_of_all_base_queries():
    """Pan 2023, theorem 2.1 and corollary 2.1: counts add up before anything is computed."""
    one, other = Loss(0.2, 1e-7), Loss(0.4)
    nested = (Composition.of(one) * 2 + Composition.of(other)) + Composition.of(one) * 3
    assert nested == Composition.of(one, one, one, one, one, other)
    assert (nested.basic().epsilon, nested.basic().delta) == (pytest.approx(1.4), pytest.approx(5e-7))
    assert Composition().basic() == Loss(0.0)


@pytest.mark.parametrize("arguments", [(-1.0, 0.0), (1.0, 1.0), (float("inf"), 0.0), (1.0, -0.1)])
def test_impossible_losses_are_refused(arguments):
    """Named with their values; also a sum of deltas that promises nothing."""
    with pytest.raises(ValueError, match="got"):
        Loss(*arguments)


def test_deltas_that_add_up_to_one_are_no_guarantee():
    """Refused, not clipped."""
    with pytest.raises(ValueError, match="delta < 1"):
        (Composition.of(Loss(0.1, 0.4)) * 3).basic()

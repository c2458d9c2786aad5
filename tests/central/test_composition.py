"""Composition: against closed forms and against dp-accounting."""

from math import comb, exp

import pytest
from changeling_central.composition import Composition, Loss, parallel, supremum
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
    assert composed.exact_epsilon(1e-5) == pytest.approx(reference.get_epsilon_for_delta(1e-5))


def test_exact_is_never_worse_than_advanced_nor_advanced_than_basic():
    """At the same delta, for few queries and for many."""
    for k in (1, 5, 50, 500):
        composed = Composition.of(Loss(0.05)) * k
        advanced = composed.advanced(1e-6)
        assert composed.exact_epsilon(1e-6) <= advanced.epsilon + 1e-3 * k**0.5
        assert advanced.epsilon <= composed.basic().epsilon == pytest.approx(0.05 * k)
        assert advanced.delta == pytest.approx(1e-6)
    assert (Composition.of(Loss(0.05)) * 500).advanced(1e-6).epsilon < 8


def test_a_composition_of_compositions_is_the_one_of_all_base_queries():
    """Pan 2023, theorem 2.1 and corollary 2.1: counts add up before anything is computed."""
    one, other = Loss(0.2, 1e-7), Loss(0.4)
    nested = (Composition.of(one) * 2 + Composition.of(other)) + Composition.of(one) * 3
    assert nested == Composition.of(one, one, one, one, one, other)
    assert (nested.basic().epsilon, nested.basic().delta) == (pytest.approx(1.4), pytest.approx(5e-7))
    assert Composition().basic() == Loss(0.0)


def test_parallel_queries_cost_the_supremum_over_entries():
    """In both parts: the entries that are worst in epsilon and in delta may be different ones."""
    queries = {"a": Loss(1.0), "b": Loss(0.5, 1e-6), "c": Loss(0.4, 1e-5)}
    together = parallel(queries, [["a"], ["b", "c"], []])
    assert (together.epsilon, together.delta) == (1.0, pytest.approx(1.1e-5))
    assert supremum([]) == Loss(0.0)


@pytest.mark.parametrize("arguments", [(-1.0, 0.0), (1.0, 1.0), (float("inf"), 0.0), (1.0, -0.1)])
def test_impossible_losses_are_refused(arguments):
    """Named with their values; also a sum of deltas that promises nothing."""
    with pytest.raises(ValueError, match="got"):
        Loss(*arguments)


def test_deltas_that_add_up_to_one_are_no_guarantee():
    """Refused, not clipped."""
    with pytest.raises(ValueError, match="delta < 1"):
        (Composition.of(Loss(0.1, 0.4)) * 3).basic()

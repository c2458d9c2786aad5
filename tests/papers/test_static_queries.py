"""Counting and sets of linear queries: noise for what one item does, prices, refusals."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from changeling_central.concentrated import concentrated_budget, implied_delta
from changeling_central.node_noise import Law
from changeling_papers import BasicCounting, LinearQueries, MultiplicativeWeights

from tests.central.stand_ins import Scales

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)


TABLE = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])


def test_a_count_gets_laplace_noise_of_one_over_epsilon():
    """Sensitivity 1; delta is not used by Laplace noise."""
    scales = Scales()
    assert BasicCounting().under(Fraction(1, 2), DELTA).release(7, scales) == 7
    assert scales.asked == [("laplace", 2.0, 1)]


def test_linear_queries_get_noise_for_what_one_item_does_to_all_of_them():
    """The worst item of this table is in three queries: L1 length 3, L2 length √3."""
    scales, data = Scales(), np.array([1, 2, 3, 4])
    for law in Law:
        answers = LinearQueries(TABLE, law=law).under(EPSILON, DELTA).release(data, scales)
        assert answers.tolist() == [3, 5, 10]
    rho = concentrated_budget(EPSILON, DELTA)
    assert scales.asked[0] == ("laplace", 3.0, 3)
    assert scales.asked[1] == ("gaussian", pytest.approx(sqrt(3 / (2 * rho)), rel=1e-8), 3)


def test_queries_between_0_and_1_are_answered_in_multiples_of_the_grain():
    """f = 1/4 and 3/4 of two items: answers and noise count quarters."""
    scales = Scales()
    answers = LinearQueries(np.array([[1, 3]]), grain=4).under(EPSILON, Fraction(0)).release(np.array([2, 2]), scales)
    assert answers.tolist() == [8]
    assert scales.asked == [("laplace", 3.0, 1)]


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize(("dtype", "grain"), [(np.uint8, 200), (np.int8, 127), (np.int16, 300), (np.int64, 10**6)])
def test_what_an_item_does_is_added_up_without_wrapping(law, dtype, grain):
    """Tables of few bits: 200² is 64 in 8 bits, and δ at ε = 1 would be 0.99. What is too fine for 64 is refused."""
    table = np.full((2, 3), grain, dtype)
    queries, wide = LinearQueries(table, grain, law), LinearQueries(table.astype(np.int64), grain, law)
    assert queries.under(EPSILON, DELTA).drawn == wide.under(EPSILON, DELTA).drawn
    assert wide.under(EPSILON, DELTA).drawn.scale == pytest.approx(
        2 * grain if law is Law.LAPLACE else sqrt(2 * grain**2 / (2 * concentrated_budget(EPSILON, DELTA)))
    )
    assert queries.truth(np.array([1, 1, 1])).tolist() == [3 * grain] * 2
    with pytest.raises(ValueError, match="too fine"):
        LinearQueries(np.array([[1], [0]]), grain=2**31 + 1)


def test_a_table_that_is_changed_afterwards_changes_no_query():
    """Its sensitivity was taken when it was made."""
    table = TABLE.copy()
    queries = LinearQueries(table)
    table[:] = 1
    assert queries.truth(np.array([0, 0, 0, 1])).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="read-only"):
        queries.table[0, 0] = 0


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(8)])
def test_the_concentrated_budget_never_exceeds_the_price(epsilon):
    """The implied delta is within the price, nearly reaches it, and covers the Gaussian law's exact delta."""
    from changeling_central.node_noise import NodeNoise

    rho = concentrated_budget(epsilon, DELTA)
    assert 0.999 * float(DELTA) < implied_delta(rho, float(epsilon)) <= float(DELTA)
    assert NodeNoise(Law.GAUSSIAN, sqrt(1 / (2 * rho))).delta({1: 1}, float(epsilon)) <= float(DELTA)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: LinearQueries(np.array([[2]])), "between 0 and the grain"),
        (lambda: LinearQueries(np.array([[0, 0]])), "nothing to ask"),
        (lambda: LinearQueries(np.array([1, 0])), "shape"),
        (lambda: MultiplicativeWeights(TABLE, most_rounds=0), "at least one round"),
        (lambda: BasicCounting().under(Fraction(0), DELTA), "epsilon > 0"),
        (lambda: BasicCounting(Law.GAUSSIAN).under(EPSILON, Fraction(0)), "delta"),
        (lambda: LinearQueries(TABLE).checked(np.array([1, 2])), "histogram of 4"),
        (lambda: LinearQueries(TABLE).checked(np.array([1.0, 2, 3, 4])), "histogram of 4"),
        (lambda: BasicCounting().checked(1.5), "whole number"),
        (lambda: BasicCounting().checked(True), "whole number"),
    ],
)
def test_what_is_no_query_dataset_or_price_is_refused(make, what):
    """Named, with nothing drawn."""
    with pytest.raises(ValueError, match=what):
        make()

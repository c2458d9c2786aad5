"""Static mechanisms: noise for what one item does, prices, refusals; what multiplicative weights learn."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from changeling_central import Law, concentrated_budget
from changeling_central.testing import NoNoise, RecordedNoise, SeededNoise
from changeling_papers import BasicCounting, LinearQueries, MultiplicativeWeights
from changeling_papers.static import PricedWeights

from tests.central.examples import Listed

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)


TABLE = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])


def test_answers_get_noise_for_what_one_item_does_to_all_of_them():
    """The worst item of the table is in three queries: L1 length 3, L2 length √3. Laplace noise uses no delta."""
    rho, data = concentrated_budget(EPSILON, DELTA), np.array([1, 2, 3, 4])
    for queries, asked, answers, drawn in (
        (BasicCounting(), 7, 7, ("laplace", 1.0, 1)),
        (LinearQueries(TABLE), data, [3, 5, 10], ("laplace", 3.0, 3)),
        (
            LinearQueries(TABLE, law=Law.GAUSSIAN),
            data,
            [3, 5, 10],
            ("gaussian", pytest.approx(sqrt(3 / (2 * rho)), rel=1e-8), 3),
        ),
        (LinearQueries(np.array([[1, 3]])), np.array([2, 2]), [8], ("laplace", 3.0, 1)),
    ):
        scales = RecordedNoise()
        assert np.array_equal(queries.under(EPSILON, DELTA).release(asked, scales), answers)
        assert scales.asked == [drawn]


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize(("dtype", "most"), [(np.uint8, 200), (np.int8, 127), (np.int16, 300), (np.int64, 10**6)])
def test_what_an_item_does_is_added_up_without_wrapping(law, dtype, most):
    """Tables of few bits: 200² is 64 in 8 bits, and δ at ε = 1 would be 0.99. What is too much for 64 is refused."""
    table = np.full((2, 3), most, dtype)
    queries, wide = LinearQueries(table, law), LinearQueries(table.astype(np.int64), law)
    assert queries.under(EPSILON, DELTA).drawn == wide.under(EPSILON, DELTA).drawn
    assert wide.under(EPSILON, DELTA).drawn.scale == pytest.approx(
        2 * most if law is Law.LAPLACE else sqrt(2 * most**2 / (2 * concentrated_budget(EPSILON, DELTA)))
    )
    assert queries.truth(np.array([1, 1, 1])).tolist() == [3 * most] * 2
    with pytest.raises(ValueError, match="too much"):
        LinearQueries(np.array([[2**31 + 1], [0]]))


def test_a_table_that_is_changed_afterwards_changes_no_query():
    """Its sensitivity was taken when it was made."""
    table = TABLE.copy()
    queries = LinearQueries(table)
    table[:] = 1
    assert queries.truth(np.array([0, 0, 0, 1])).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="read-only"):
        queries.table[0, 0] = 0


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: LinearQueries(np.array([[-1, 2]])), "0 or more, got -1"),
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


@pytest.mark.parametrize("delta", [Fraction(0), DELTA])
@pytest.mark.parametrize("rounds", [1, 3, 30])
def test_what_multiplicative_weights_draw_adds_up_to_the_price(delta, rounds):
    """One size; then per round a score for each query, of which an item moves the difference of two by 2·2, and one
    measurement; nothing else. In epsilon, or in rho."""
    scales, law = RecordedNoise(), "gaussian" if delta else "laplace"
    weights = MultiplicativeWeights(TABLE * 2, rounds).under(EPSILON, delta)
    weights.release(np.array([10**6, 0, 0, 0]), scales)
    (_, size, _), (_, choice, _), (_, measurement, _) = scales.asked[:3]
    of_a_round = [("laplace", choice, 3), (law, measurement, 1)]
    assert scales.asked == [(law, size, 1), *of_a_round * rounds]
    if delta == 0:
        spent, price = 1 / size + rounds * (4 / choice + 2 / measurement), 1.0
    else:
        spent = 1 / (2 * size**2) + rounds * ((4 / choice) ** 2 / 2 + 4 / (2 * measurement**2))
        price = concentrated_budget(EPSILON, delta)
    assert 0.999 < spent / price <= 1 + 1e-12


@pytest.mark.parametrize("most", [1, 2])
def test_the_choice_of_a_round_as_it_is_coded_is_private_by_enumeration(monkeypatch, most):
    """Two queries: the choice depends on the difference of their noises alone, so the code is run on every one of them.

    Of neighbours whose item is in both queries, of which one is answered too high and one too low, so that the scores
    move apart by 2: the log ratio is within the round's half, and above half of it.
    """
    asked = []

    def measured(self, value, scale, noise):  # noqa: ARG001
        asked.append(value)
        return value

    monkeypatch.setattr(PricedWeights, "_measured", measured)
    weights = MultiplicativeWeights(np.array([[1, 1, 0], [1, 0, 1]]) * most).under(Fraction(8, 3), Fraction(0))
    scale, _ = weights.round_scales(1)
    assert 2 * most / Fraction(scale) <= 1, "ε·3/4, of which half is the choice's"
    K = int(40 * scale)
    law = np.exp(-np.abs(np.arange(-K, K + 1)) / scale)
    law = np.convolve(law / law.sum(), law / law.sum())

    def chances(data):
        truth, first = weights.queries.truth(data), 0.0
        assert truth[0] != truth[1]
        for difference, mass in zip(range(-2 * K, 2 * K + 1), law.tolist(), strict=True):
            asked.clear()
            weights._fitted(truth, 30, 1, Listed([difference, 0]))
            first += mass * (asked == [truth[0]])
        return np.array([first, 1 - first])

    ratios = np.abs(np.log(chances(np.array([4, 0, 30])) / chances(np.array([5, 0, 30]))))
    assert 0.5 < ratios.max() <= 1


def test_multiplicative_weights_learn_a_skewed_dataset():
    """With much budget the answers come close; with next to none they are those of a flat dataset of the noisy size."""
    random = np.random.default_rng(1)
    table = random.integers(0, 2, (40, 16))
    data = np.zeros(16, np.int64)
    data[:3] = [4000, 2000, 1000]
    close = MultiplicativeWeights(table).under(Fraction(50), Fraction(0)).release(data, SeededNoise(2))
    flat = MultiplicativeWeights(table).under(Fraction(1, 10**6), Fraction(0)).release(data, NoNoise())
    truth = table @ data
    assert np.abs(close - truth).max() < 0.1 * data.sum()
    assert np.abs(flat - truth).max() > 0.2 * data.sum()
    assert np.abs(flat - table.mean(1) * data.sum()).max() <= 0.5


def test_a_dataset_too_small_to_fit_spends_the_rounds_on_its_size():
    """Two measurements, of a quarter of the budget and of the rest, weighted by their precision."""
    for delta in (Fraction(0), DELTA):
        scales, weights = RecordedNoise(), MultiplicativeWeights(TABLE).under(Fraction(1, 100), delta)
        assert weights.release(np.array([1, 1, 1, 1]), scales).tolist() == [2, 2, 4]
        (_, first, _), (_, rest, _) = scales.asked
        spent = 1 / first + 1 / rest if delta == 0 else 1 / (2 * first**2) + 1 / (2 * rest**2)
        budget = 1 / 100 if delta == 0 else concentrated_budget(Fraction(1, 100), delta)
        assert 0.999 * budget < spent <= budget * (1 + 1e-12)

"""Static mechanisms: their noise is what their price says, and no more is told apart than that."""

from fractions import Fraction
from itertools import product
from math import exp, sqrt

import numpy as np
import pytest
from changeling_aggregator.central.node_noise import Law
from changeling_aggregator.central.noise import OpenDPNoise
from changeling_aggregator.central.static import BasicCounting, LinearQueries, MultiplicativeWeights
from changeling_aggregator.central.static.concentrated import concentrated_budget, implied_delta
from changeling_aggregator.central.static.weights import PricedWeights

from .stand_ins import FastNoise, NoNoise

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
TABLE = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])


class Scales(NoNoise):
    def __init__(self):
        self.asked = []

    def laplace(self, scale, size):
        self.asked.append(("laplace", scale, size))
        return np.zeros(size, np.int64)

    def gaussian(self, scale, size):
        self.asked.append(("gaussian", scale, size))
        return np.zeros(size, np.int64)


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
    from changeling_aggregator.central.node_noise import NodeNoise

    rho = concentrated_budget(epsilon, DELTA)
    assert 0.999 * float(DELTA) < implied_delta(rho, float(epsilon)) <= float(DELTA)
    assert NodeNoise(Law.GAUSSIAN, sqrt(1 / (2 * rho))).delta({1: 1}, float(epsilon)) <= float(DELTA)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_the_budgets_of_the_rounds_of_multiplicative_weights_add_up_to_the_price(delta):
    """Size, and per round a choice of sensitivity 2·grain for the maximum and a measurement, in epsilon or in rho."""
    for rounds in (1, 3, 30):
        weights = MultiplicativeWeights(TABLE * 2, grain=2).under(EPSILON, delta)
        scales = weights.scales(rounds)
        if delta == 0:
            spent = 1 / scales.size + rounds * (4 / scales.choice + 2 / scales.measurement)
            assert 0.999 < spent <= 1 + 1e-12
        else:
            rho = 1 / (2 * scales.size**2) + rounds * ((4 / scales.choice) ** 2 / 2 + 4 / (2 * scales.measurement**2))
            assert 0.999 < rho / concentrated_budget(EPSILON, delta) <= 1


def test_multiplicative_weights_draw_what_their_scales_say():
    """One size; then per round one score a query, and one measurement; nothing else."""
    scales = Scales()
    weights = MultiplicativeWeights(TABLE, most_rounds=4).under(Fraction(8), Fraction(0))
    weights.release(np.array([400, 0, 0, 0]), scales)
    of = weights.scales(4)
    assert scales.asked == [("laplace", of.size, 1), *[("laplace", of.choice, 3), ("laplace", of.measurement, 1)] * 4]


def test_report_noisy_max_of_the_rounds_is_private_by_enumeration():
    """Every choice of a round, over all noise on a truncated grid: log ratio within the round's epsilon, 0.4.

    The scores of neighbours differ by 1 each, in any direction; noise of half the scale would break it.
    """
    epsilon = 0.4

    def chances(scores, scale):
        K = 60
        grid = np.arange(-K, K + 1)
        law = np.exp(-np.abs(grid) / scale)
        law /= law.sum()
        win = np.zeros(len(scores))
        for index in range(len(scores)):
            others = np.ones_like(law)
            for other in range(len(scores)):
                if other != index:
                    below = [
                        law[
                            (scores[other] + grid < scores[index] + x)
                            if other < index
                            else (scores[other] + grid <= scores[index] + x)
                        ].sum()
                        for x in grid
                    ]
                    others = others * np.array(below)
            win[index] = (law * others).sum()
        return win

    worst, wrong = 0.0, 0.0
    base = np.array([0, 3, 3])
    for moves in product((-1, 0, 1), repeat=3):
        one, other = chances(base, 2 / epsilon), chances(base + np.array(moves), 2 / epsilon)
        worst = max(worst, np.abs(np.log(one / other)).max())
        one, other = chances(base, 1 / epsilon), chances(base + np.array(moves), 1 / epsilon)
        wrong = max(wrong, np.abs(np.log(one / other)).max())
    assert worst <= epsilon
    assert wrong > epsilon


@pytest.mark.parametrize("grain", [1, 3])
def test_the_choice_of_a_round_as_it_is_coded_is_private_by_enumeration(monkeypatch, grain):
    """Two queries: the choice depends on the difference of their noises alone, so the code is run on every one of them.

    Of neighbours whose item is in both queries, of which one is answered too high and one too low, so that the scores
    move apart by 2: the log ratio is within the round's half, and above half of it.
    """
    asked = []

    def measured(self, value, scale, noise):  # noqa: ARG001
        asked.append(value)
        return value

    monkeypatch.setattr(PricedWeights, "_measured", measured)
    weights = MultiplicativeWeights(np.array([[1, 1, 0], [1, 0, 1]]) * grain, grain).under(Fraction(8, 3), Fraction(0))
    scale = weights.scales(1).choice
    assert 2 * grain / Fraction(scale) <= 1, "ε·3/4, of which half is the choice's"
    K = int(40 * scale)
    law = np.exp(-np.abs(np.arange(-K, K + 1)) / scale)
    law = np.convolve(law / law.sum(), law / law.sum())

    class Given(NoNoise):
        def laplace(self, scale, size):  # noqa: ARG002
            return np.array([self.difference, 0])

    def chances(data):
        truth, noise, first = weights.queries.truth(data), Given(), 0.0
        assert truth[0] != truth[1]
        for noise.difference, mass in zip(range(-2 * K, 2 * K + 1), law.tolist(), strict=True):
            asked.clear()
            weights._fitted(truth, 30, 1, noise)
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
    close = MultiplicativeWeights(table).under(Fraction(50), Fraction(0)).release(data, FastNoise(2))
    flat = MultiplicativeWeights(table).under(Fraction(1, 10**6), Fraction(0)).release(data, NoNoise())
    truth = table @ data
    assert np.abs(close - truth).max() < 0.1 * data.sum()
    assert np.abs(flat - truth).max() > 0.2 * data.sum()
    assert np.abs(flat - table.mean(1) * data.sum()).max() <= 0.5


def test_opendp_answers_too():
    """All three with the real sampler; within what 40 scales allow, so never false."""
    noise = OpenDPNoise()
    assert abs(BasicCounting().under(EPSILON, DELTA).release(100, noise) - 100) < 60
    assert np.abs(LinearQueries(TABLE).under(EPSILON, DELTA).release(np.ones(4, int), noise) - [2, 2, 4]).max() < 150
    assert MultiplicativeWeights(TABLE).under(EPSILON, DELTA).release(np.array([90, 0, 0, 9]), noise).shape == (3,)


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


def test_noise_of_opendp_does_not_stop_at_32_bits():
    """At scale 2^40 no draw of 200 is another or an end of 32 bits (false alarm 10⁻⁷); beyond 2^56 it is refused."""
    for draw in (OpenDPNoise().laplace, OpenDPNoise().gaussian):
        drawn = draw(2.0**40, 200)
        assert len(set(drawn.tolist())) == 200
        assert np.abs(drawn).max() > 2**32
        with pytest.raises(ValueError, match="2\\^56"):
            draw(2.0**57, 1)


def test_a_dataset_too_small_to_fit_spends_the_rounds_on_its_size():
    """Two measurements, of a quarter of the budget and of the rest, weighted by their precision."""
    for delta in (Fraction(0), DELTA):
        scales, weights = Scales(), MultiplicativeWeights(TABLE).under(Fraction(1, 100), delta)
        assert weights.release(np.array([1, 1, 1, 1]), scales).tolist() == [2, 2, 4]
        (_, first, _), (_, rest, _) = scales.asked
        spent = 1 / first + 1 / rest if delta == 0 else 1 / (2 * first**2) + 1 / (2 * rest**2)
        budget = 1 / 100 if delta == 0 else concentrated_budget(Fraction(1, 100), delta)
        assert 0.999 * budget < spent <= budget * (1 + 1e-12)


def test_a_pool_hands_out_every_draw_once_and_keeps_none():
    """In the source's order, by law and scale; what was handed out is wiped."""
    from changeling_aggregator.central.pooled_noise import PooledNoise

    class Counting(NoNoise):
        last = 0

        def laplace(self, scale, size):  # noqa: ARG002
            self.last += size
            return np.arange(self.last - size, self.last)

    pool = PooledNoise(Counting(), batch=8)
    handed = [*pool.laplace(1.0, 3), *pool.laplace(1.0, 5), *pool.laplace(1.0, 1), *pool.laplace(1.0, 20)]
    assert handed == [*range(9), *range(16, 36)]
    assert pool.laplace(2.0, 2).tolist() == [36, 37]
    assert pool._pools["laplace", 1.0].draws.tolist() == [0, *range(9, 16)]


def test_a_child_process_never_repeats_its_parents_draws():
    """After a fork the pool is drawn anew."""
    import os

    from changeling_aggregator.central.pooled_noise import PooledNoise

    pool = PooledNoise(OpenDPNoise(), batch=64)
    pool.laplace(1000.0, 1)
    pool._process = os.getpid() + 1  # as a child finds it
    held = pool._pools["laplace", 1000.0].draws.copy()
    assert pool.laplace(1000.0, 60).tolist() != held[1:61].tolist()


def test_laplace_noise_of_the_stand_in_is_the_law_it_stands_for():
    """The audits of this folder rest on it: chance of 0 within 5 standard errors (false alarm 6·10⁻⁷)."""
    n, scale = 200_000, 3.0
    p = exp(-1 / scale)
    zero = (1 - p) / (1 + p)
    found = np.mean(FastNoise(0).laplace(scale, n) == 0)
    assert abs(found - zero) < 5 * sqrt(zero * (1 - zero) / n)

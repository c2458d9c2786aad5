"""The evolving count: what it promises under its assumptions, and that it promises nothing without."""

from fractions import Fraction
from itertools import pairwise, product
from math import exp

import numpy as np
import pytest
from changeling_aggregator.central.errors import BadState, BudgetExhausted
from changeling_aggregator.central.noise import OpenDPNoise
from changeling_aggregator.central.sigma import Assumed, Domain, Evolving, Query

from .stand_ins import Forbidden

HERE = Domain.of(here=[False, True])
QUERY = Query.of(HERE, "here")
T, REACH = 3, 4
HALF = Fraction(1, 2)
"""The increments' ratio p = e^-η of the discrete Laplace law: η = ln 2."""


def table(n):
    return HERE.table({"here": np.ones(n, bool)})


class Given:
    """Noise that was decided elsewhere."""

    def __init__(self, value):
        self.value = value

    def laplace(self, scale, size):  # noqa: ARG002
        return np.full(size, self.value, np.int64)


def law(ratio, k):
    """Discrete Laplace: Pr(k) ∝ ratio^|k|, exactly."""
    return (1 - ratio) / (1 + ratio) * ratio ** abs(k)


def values(mechanism, counts, drawn):
    """What the mechanism says of these counts when its noise is `drawn`."""
    state, said = mechanism.start(), []
    for count in counts:
        state, value = mechanism.step(state, table(count), Given(drawn))
        said.append(value)
    return tuple(said)


def outputs(mechanism, paths, moves, ratio):
    """The exact law of the values, over noise, the others' changes and the entry's path; keyed by values."""
    found = {}
    for drawn, path, others in product(range(-REACH, REACH + 1), paths, moves):
        counts = 20 + np.array([0, *np.cumsum([step for step, _ in others])]) + np.array(path)
        chance = law(ratio, drawn) * paths[path]
        for _, likely in others:
            chance *= likely
        said = values(mechanism, counts.tolist(), drawn)
        found[said] = found.get(said, 0) + chance
    return found


def chain(survival):
    """Every path of an entry that begins in the count, with its probability."""
    return {
        (1, a, b): (survival if a else 1 - survival) * (survival if a == b else 1 - survival)
        for a, b in product((0, 1), repeat=2)
    }


def test_true_differences_are_refused_without_assumptions():
    """No assumption, no mechanism; and none where what is assumed costs more than the budget."""
    with pytest.raises(ValueError, match="true differences are not private"):
        Evolving(QUERY, T, Fraction(1), None)
    with pytest.raises(ValueError, match="nothing of 1 is left"):
        Evolving(QUERY, 1000, Fraction(1), Assumed(Fraction(2), Fraction(9, 10)))
    for bad in ((Fraction(1, 2), HALF), (Fraction(2), Fraction(3, 2)), (Fraction(2), Fraction(-1, 2))):
        with pytest.raises(ValueError, match="needs spread"):
            Assumed(*bad)


def test_the_theorem_s_own_assumptions_do_not_make_it_private():
    """Others who never move are a Markov process with independent increments; the entry's leaving is then certain.

    Values that its absence cannot give come with the probability that it leaves: no epsilon covers that, whatever the
    survival. This fails on the paper's theorem 5, which states a finite one.
    """
    mechanism = Evolving(QUERY, T, Fraction(1), Assumed(Fraction(1), Fraction(9, 10)))
    still = [((0, Fraction(1)), (0, Fraction(1)))]
    survival = Fraction(9, 10)
    present = outputs(mechanism, chain(survival), still, HALF)
    absent = outputs(mechanism, {(0, 0, 0): Fraction(1)}, still, HALF)
    impossible = sum((chance for said, chance in present.items() if said not in absent), Fraction(0))
    within = sum(law(HALF, k) for k in range(-REACH, REACH + 1))
    assert impossible >= (1 - survival**2) * within - 2 * law(HALF, REACH)
    assert impossible > Fraction(1, 10)


@pytest.mark.parametrize("survival", [Fraction(1, 2), Fraction(9, 10), Fraction(1)])
def test_under_its_assumptions_no_values_tell_more_than_stated(survival):
    """Exact law of three values, the others' changes two-sided geometric with ratio 2: within the bound, and near it.

    Values are compared where every way to them is within reach of the enumeration.
    """
    assumed = Assumed(Fraction(2), survival)
    budget = Fraction(7, 10) + assumed.loss(T)
    mechanism = Evolving(QUERY, T, budget, assumed)
    noise = Fraction(exp(-1 / mechanism.noise.scale)).limit_denominator(10**12)
    moves = list(product([(k, law(HALF, k)) for k in range(-REACH, REACH + 1)], repeat=T - 1))
    present = outputs(mechanism, chain(survival), moves, noise)
    absent = outputs(mechanism, {(0, 0, 0): Fraction(1)}, moves, noise)
    inner = [
        said for said in absent if abs(said[0] - 20) < REACH and all(abs(b - a) < REACH for a, b in pairwise(said))
    ]
    assert len(inner) > 200
    ratios = [float(present[said] / absent[said]) for said in inner]
    bound = exp(float(mechanism.guarantee.epsilon))
    assert max(*ratios, *(1 / ratio for ratio in ratios)) <= bound * (1 + 1e-9)
    assert max(ratios) >= bound * (0.99 if survival == 1 else 0.6)


def test_the_loss_of_no_change_is_nothing_and_of_certain_change_all():
    """An entry that surely stays costs ε₁ alone; one that may do anything costs η a step."""
    assert Assumed(Fraction(2), Fraction(1)).loss(100) == 0
    assert float(Assumed(Fraction(2), Fraction(0)).loss(3)) == pytest.approx(2 * np.log(2), rel=1e-12)


def test_differences_are_the_true_ones_and_the_noise_is_drawn_once():
    """After the first value nothing is drawn; a saved state goes on; after the last value it stops."""
    mechanism = Evolving(QUERY, T, Fraction(1), Assumed(Fraction(2), Fraction(1)))
    state, first = mechanism.step(mechanism.start(), table(5), OpenDPNoise())
    state, second = mechanism.step(type(state).from_fields(state.as_fields()), table(9), Forbidden())
    state, third = mechanism.step(state, table(2), Forbidden())
    assert (second - first, third - second) == (4, -7)
    with pytest.raises(BudgetExhausted):
        mechanism.step(state, table(2), Forbidden())
    for bad in (None, {}, {"steps": -1, "before": 0, "true": 0}, {"steps": 1, "before": "0", "true": 0}):
        with pytest.raises(BadState):
            type(state).from_fields(bad)

"""The evolving count: what it promises under its assumptions, and that it promises nothing without."""

from fractions import Fraction
from itertools import pairwise, product
from math import exp, prod

import numpy as np
import pytest
from changeling_central import BadState, BudgetExhausted, OpenDPNoise
from changeling_central.testing import Forbidden
from changeling_papers import Assumed, Domain, Evolving, Query

from tests.central.saved_fields import fields_of, resumed

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


def chain(survival, steps=T, begins=1):
    """Every path of an entry that begins in the count, or out of it, and may come back, with its probability."""
    return {
        path: prod((survival if a == b else 1 - survival for a, b in pairwise(path)), start=Fraction(1))
        for path in product((0, 1), repeat=steps)
        if path[0] == begins
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


@pytest.mark.parametrize("begins", [0, 1], ids=["out", "in"])
@pytest.mark.parametrize("survival", [Fraction(0), Fraction(1, 100), HALF, Fraction(9, 10), Fraction(1)], ids=str)
@pytest.mark.parametrize("steps", [2, 3])
def test_under_its_assumptions_no_values_tell_more_than_stated(steps, survival, begins):
    """Exact law of the values, the others' changes two-sided geometric with ratio 2: within the bound, both ways.

    With two values the bound is reached by an entry that is in the count at first. Values are compared where every
    way to them is within reach of the enumeration.
    """
    assumed = Assumed(Fraction(2), survival)
    mechanism = Evolving(QUERY, steps, Fraction(7, 10) + assumed.loss(steps), assumed)
    noise = Fraction(exp(-1 / mechanism.noise.scale)).limit_denominator(10**12)
    moves = list(product([(k, law(HALF, k)) for k in range(-REACH, REACH + 1)], repeat=steps - 1))
    present = outputs(mechanism, chain(survival, steps, begins), moves, noise)
    absent = outputs(mechanism, {(0,) * steps: Fraction(1)}, moves, noise)
    inner = [
        said for said in absent if abs(said[0] - 20) < REACH and all(abs(b - a) < REACH for a, b in pairwise(said))
    ]
    assert len(inner) == (2 * REACH - 1) ** steps
    ratios = [float(present[said] / absent[said]) for said in inner]
    bound = exp(float(mechanism.guarantee.epsilon))
    assert max(*ratios, *(1 / ratio for ratio in ratios)) <= bound * (1 + 1e-9)
    if steps == 2 and begins:
        assert max(ratios) >= bound * (1 - 1e-9)


def test_changes_that_the_first_count_gives_away_hide_nothing():
    """Why `Assumed` asks for changes independent of the first count: where it is ten times the change, all is lost.

    The changes are spread as stated, the entry stays with probability 1/2; the exact law of two values exceeds the
    bound all the same.
    """
    assumed = Assumed(Fraction(2), HALF)
    mechanism = Evolving(QUERY, 2, Fraction(1) + assumed.loss(2), assumed)
    noise = Fraction(exp(-1 / mechanism.noise.scale)).limit_denominator(10**12)

    def likely(said, paths):
        chances = []
        for path, move in product(paths, range(-REACH, REACH + 1)):
            first = 50 + 10 * move + path[0]
            if values(mechanism, (first, first + move + path[1] - path[0]), said[0] - first) == said:
                chances.append(paths[path] * law(HALF, move) * law(noise, said[0] - first))
        return sum(chances, Fraction(0))

    said = (51, 50)  # the others' first count says that they do not change, so that one has left
    told = likely(said, chain(HALF, 2)) / likely(said, {(0, 0): Fraction(1)})
    assert told > 100 * exp(float(mechanism.guarantee.epsilon))


def test_the_loss_of_no_change_is_nothing_and_of_certain_change_all():
    """An entry that surely stays costs ε₁ alone; one that may do anything costs η a step."""
    assert Assumed(Fraction(2), Fraction(1)).loss(100) == 0
    assert float(Assumed(Fraction(2), Fraction(0)).loss(3)) == pytest.approx(2 * np.log(2), rel=1e-12)


def test_differences_are_the_true_ones_and_the_noise_is_drawn_once():
    """After the first value nothing is drawn; a saved state goes on; after the last value it stops."""
    mechanism = Evolving(QUERY, T, Fraction(1), Assumed(Fraction(2), Fraction(1)))
    state, first = mechanism.step(mechanism.start(), table(5), OpenDPNoise())
    assert "true" not in repr(state)
    state, second = mechanism.step(mechanism.resumed(mechanism.saved(state)), table(9), Forbidden())
    state, third = mechanism.step(state, table(2), Forbidden())
    assert (second - first, third - second) == (4, -7)
    with pytest.raises(BudgetExhausted):
        mechanism.step(state, table(2), Forbidden())
    fields = fields_of(mechanism, state)
    for bad in (None, {}, {**fields, "steps": -1}, {**fields, "before": "0"}, {**fields, "more": 1}):
        with pytest.raises(BadState):
            resumed(mechanism, bad)


def test_noise_that_was_drawn_never_serves_another_promise():
    """One value's noise under two queries, or resumed where less was to be spent on it, is covered by no guarantee."""
    assumed = Assumed(Fraction(2), Fraction(9, 10))
    mechanism = Evolving(QUERY, T, Fraction(1), assumed)
    saved = mechanism.saved(mechanism.start())
    gone = Query.of(HERE, "not here")
    for other in (Evolving(gone, T, Fraction(1), assumed), Evolving(QUERY, T + 1, Fraction(1), assumed)):
        with pytest.raises(BadState):
            other.resumed(saved)
    longer = Evolving(QUERY, T + 1, Fraction(1) + assumed.loss(2), assumed)  # pays for the step, at the same noise
    assert longer.resumed(saved) == longer.start()

"""Fresh levels: whom their promise is made to, and how far they err."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from changeling_central import (
    Asked,
    Law,
    LinearQuery,
    answer_query,
    clipped_sum,
    compared,
    counting,
    histogram_query,
    offered,
)
from changeling_central.levels import gaussian_levels, laplace_levels
from changeling_central.noise import concentrated_length, told_apart
from changeling_central.testing import SeededNoise
from changeling_protocol import AtMost, Calendar

ONE, SMALL = Fraction(1), Fraction(1, 10**6)
COUNT = counting(["a", "b"], ["a"], "a")
HISTOGRAM = histogram_query(["a", "b"], ["a", "b"])
SUM = clipped_sum({"a": -2.0, "b": 3.0}, ["a", "b"], -2, 3)
FIXED = histogram_query(["a", "b"], ["a", "b"], fixed=True)
MEAN = LinearQuery(("v", "w"), ((0, 0), (2, 1), (-2, 1)), (2, 1), (4, 1), corners=((0, 0), (2, 1), (-2, 1)))
LENGTH = told_apart(ONE, SMALL)


@pytest.mark.parametrize(
    "query", [COUNT, HISTOGRAM, SUM, FIXED, MEAN], ids=["count", "histogram", "sum", "fixed", "mean"]
)
def test_the_promise_of_fresh_levels_is_of_entries_that_do_whatever_they_like(query):
    """And of no less noise than was drawn. What entries lose is enumerated in test_draws_attacked.py."""
    gaussian = gaussian_levels(query, Calendar(0, 1, 5), LENGTH, ONE, SMALL)
    assert gaussian.costs_at_most(LENGTH, AtMost(1000))
    assert not gaussian.costs_at_most(LENGTH * (1 - 1e-6), AtMost(1000))
    assert laplace_levels(query, Calendar(0, 1, 5), ONE).costs_at_most(0.0, AtMost(1000))


def test_a_draw_in_common_halves_the_error_of_a_count_and_more():
    """Mean squared errors over 20 periods: 293 in place of 800 at epsilon 1, 7.5 in place of 20 at rho 1/2."""
    year = Calendar(0, 1, 20)
    assert laplace_levels(COUNT, year, ONE).variance(1) == pytest.approx((1 + 20 ** (2 / 3)) ** 3 / 2, rel=0.01)
    root = gaussian_levels(COUNT, year, concentrated_length(Fraction(1, 2)), ONE, SMALL)
    assert root.variance(1) == pytest.approx(((1 + sqrt(20)) / 2) ** 2, rel=0.01)
    panel = histogram_query(list("abcdefgh"), list("abcdefgh"))
    assert laplace_levels(panel, year, ONE).variance(1) <= 28.4**2
    assert gaussian_levels(panel, year, concentrated_length(Fraction(1, 2)), ONE, SMALL).variance(1) <= 4.47**2


@pytest.mark.parametrize("budget", [(Fraction(0), None), (SMALL, None), (Fraction(0), Fraction(1, 2))])
def test_where_entries_mutate_often_fresh_levels_are_chosen_and_go_on_as_begun(budget):
    """At a pure epsilon, with a delta and at rho; the promise needs no bound on mutations."""
    delta, rho = budget
    year = Calendar(0, 1, 20)
    asked = Asked(COUNT, year, AtMost(20), ONE, delta, rho=rho)
    best = compared(asked)[0]
    assert best.name == "fresh"
    assert best.made.guarantee.rho == rho
    assert best.made.covers(COUNT, year, AtMost(1000))
    again = offered(None).made(Asked(COUNT, year, AtMost(8), ONE, delta, None, best.made.made_with(), rho=rho))
    assert again.identity() == best.made.identity()
    assert not again.covers(COUNT, Calendar(0, 1, 9), AtMost(8))
    assert compared(Asked(COUNT, Calendar(0, 1, 48), AtMost(2), ONE, delta, rho=rho))[0].name != "fresh"


def test_what_levels_have_in_common_cancels_in_a_window():
    """The stated variance of a window's change is the measured one, within 6 standard errors of 20,000 runs."""
    wide = answer_query("each answer", ["a"], ["a"])
    made = laplace_levels(wide, Calendar(0, 1, 6), Fraction(1, 4))
    assert made.common
    noise, changes = SeededNoise(5), []
    for _ in range(20_000):
        state, levels = made.start(), []
        for _ in range(3):
            state, level = made.step(state, np.array([0]), noise)
            levels.append(level.values[0])
        changes.append(levels[2] - levels[0])
    assert np.var(changes) == pytest.approx(made.window_variance(3, 2), rel=6 * sqrt(5 / 20_000))
    assert made.window_variance(2, 2) == made.variance(1)


def test_what_cannot_be_asked_of_fresh_levels_is_refused():
    """No budget, nothing that is counted, Gaussian noise without a delta."""
    year = Calendar(0, 1, 4)
    with pytest.raises(ValueError, match="epsilon > 0"):
        laplace_levels(COUNT, year, Fraction(0))
    with pytest.raises(ValueError, match="needs a delta"):
        offered("fresh").made(Asked(COUNT, year, AtMost(2), ONE, law=Law.GAUSSIAN))

"""Searched matrices: what every history loses by them, how near they are to what is possible, and exact undoing."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import sqrt

import numpy as np
import pytest
from changeling_central import Asked, Law, all_offers, clipped_sum, compared, counting, histogram_query
from changeling_central.noise import concentrated_length, told_apart
from changeling_central.offers import in_words, root_mean_square
from changeling_central.optimised import best_factorisation, optimised, solved
from changeling_central.testing import SeededNoise
from changeling_protocol import AtMost, AtMostWithin, Calendar

ONE, SMALL = Fraction(1), Fraction(1, 10**6)
COUNT = counting(["a", "b"], ["a"], "a")
QUERIES = {
    "count": COUNT,
    "histogram": histogram_query(["a", "b"], ["a", "b"]),
    "sum": clipped_sum({"a": -2.0, "b": 3.0}, ["a", "b"], -2, 3),
    "fixed": histogram_query(["a", "b"], ["a", "b"], fixed=True),
}
CONSTRAINTS = {"three": AtMost(3), "three within": AtMostWithin(3, 2)}
LENGTH = told_apart(ONE, SMALL)


def lives(query, periods, constraint):
    """The changes of every entry that keeps to the constraint, shape (T, w), from all histories of its answers."""
    span = constraint.seconds if isinstance(constraint, AtMostWithin) else periods
    for states in product(range(len(query.table)), repeat=periods):
        moved = [t for t in range(periods) if states[t] != (states[t - 1] if t else 0)]
        other = query.fixed and len({state for state in states if state}) > 1
        if moved and len(moved) <= constraint.k and moved[-1] - moved[0] <= span and not other:
            yield np.diff(np.array(query.table)[list(states)], axis=0, prepend=0)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("within", CONSTRAINTS)
@pytest.mark.parametrize("name", QUERIES)
def test_no_history_loses_more_than_is_stated(name, within, law):
    """Every history of five periods, on the lattice, in whole numbers; and of most queries one attains it."""
    query, constraint, calendar = QUERIES[name], CONSTRAINTS[within], Calendar(0, 1, 5)
    if law is Law.LAPLACE:
        made = optimised(query, calendar, constraint, ONE)
        lost = [
            Fraction(int(np.abs(made.coefficients @ x).sum())) / Fraction(made.scale)
            for x in lives(query, 5, constraint)
        ]
        stated = made.epsilon
    else:
        made = optimised(query, calendar, constraint, ONE, SMALL, LENGTH)
        squares = [int(((made.coefficients @ x) ** 2).sum()) for x in lives(query, 5, constraint)]
        lost, stated = [sqrt(square) * 2.0**made.shift / made.scale for square in squares], LENGTH
    assert max(lost) <= stated
    assert max(lost) >= 0.999 * stated
    assert made.costs_at_most(LENGTH, constraint)
    assert not made.costs_at_most(LENGTH * (1 - 1e-6), AtMost(4))


@pytest.mark.parametrize("law", Law)
def test_what_is_published_is_one_function_of_what_is_measured(law):
    """True changes that are added to the measurements come out whole, to the last bit, whatever the draws; and with
    Gaussian noise what is published until a period does not know of later draws."""
    length = None if law is Law.LAPLACE else LENGTH
    made = optimised(COUNT, Calendar(0, 1, 6), AtMost(3), ONE, SMALL * (length is not None), length)
    random = np.random.default_rng(3)
    for _ in range(20):
        z = np.rint(made.scale * random.normal(size=(6, 2))).astype(np.int64)
        x = random.integers(-50, 50, (6, 2))
        undone = solved(made.coefficients, z, made.bits, made.shift)
        moved = made.coefficients.astype(object) @ x << made.shift
        assert np.array_equal(
            solved(made.coefficients, (z + moved).astype(np.int64), made.bits, made.shift), undone + (x << made.bits)
        )
        exact = np.linalg.solve(made.coefficients * 2.0**made.shift, z.astype(float))
        assert undone * 2.0**-made.bits == pytest.approx(exact, rel=1e-6, abs=1e-5)
        z[4:] += 10**6
        early = solved(made.coefficients, z, made.bits, made.shift)[:4]
        assert np.array_equal(early, undone[:4]) == (law is Law.GAUSSIAN)


def mean_variance(made, periods):
    return float(np.mean([made.variance(step) for step in range(1, periods + 1)]))


@pytest.mark.parametrize(("periods", "k"), [(1, 1), (8, 2), (12, 3), (8, 8)])
def test_gaussian_matrices_are_certified(periods, k):
    """Within .2% of what no matrix goes below, which a law over what entries do proves; over 8 periods at k = 2 that
    is 2.66 at rho 1/2, where the square root errs by 3.38."""
    made = optimised(COUNT, Calendar(0, 1, periods), AtMost(k), ONE, SMALL, concentrated_length(ONE / 2))
    least = best_factorisation(COUNT, Calendar(0, 1, periods), AtMost(k), Law.GAUSSIAN).least
    assert least <= mean_variance(made, periods) <= 1.002 * least + 1e-9
    if (periods, k) == (8, 2):
        assert mean_variance(made, periods) == pytest.approx(2.66, abs=0.01)


def test_laplace_matrices_beat_trees_and_levels_where_entries_mutate_often():
    """Eight periods: by a third where entries mutate as they like, within a factor of 1.7 of what is possible; it is
    said that the search may not have found the best."""
    asked = Asked(COUNT, Calendar(0, 1, 8), AtMost(8), ONE)
    predicted = {one.name: one for one in compared(asked)}
    assert "its matrix was searched, a better one may exist" in in_words(asked, compared(asked))
    assert predicted["optimised"].error ** 2 < 0.67 * predicted["fresh"].error ** 2
    assert (
        predicted["optimised"].least ** 2
        <= predicted["optimised"].error ** 2
        <= 1.7 * predicted["optimised"].least ** 2
    )


@pytest.mark.parametrize(("query", "periods", "k"), [("count", 12, 1), ("histogram", 8, 2), ("sum", 8, 2)])
def test_whatever_is_offered_errs_no_less_than_what_is_chosen(query, periods, k):
    """At a pure epsilon and with a delta."""
    for delta in (Fraction(0), SMALL):
        asked = Asked(QUERIES[query], Calendar(0, 1, periods), AtMost(k), ONE, delta)
        best = compared(asked)[0]
        for offer in all_offers():
            try:
                other = offer.make(asked)
            except ValueError:
                continue
            known = root_mean_square(other.variance, asked.query, periods)
            assert known is None or other.shows or best.error <= known * (1 + 1e-9), offer.name


@pytest.mark.parametrize("law", Law)
def test_the_variance_is_that_of_what_is_published(law):
    """Of 500 columns at once, the mean square of every level's noise within 6 standard errors of what is stated."""
    wide, runs = histogram_query([str(n) for n in range(500)], [str(n) for n in range(500)]), 500
    length = None if law is Law.LAPLACE else LENGTH
    one = optimised(COUNT, Calendar(0, 1, 4), AtMost(3), ONE, SMALL * (length is not None), length)
    made = replace(one, query=wide)
    state, noise = made.start(), SeededNoise(5)
    for period in range(4):
        state, level = made.step(state, np.zeros(runs, np.int64), noise)
        assert float(np.mean(level.values**2)) == pytest.approx(made.variance(period + 1), rel=6 * sqrt(5 / runs))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((COUNT, Calendar(0, 1, 65), AtMost(3), ONE, SMALL, LENGTH), "up to 64 periods"),
        ((COUNT, Calendar(0, 1, 30), AtMost(30), ONE), "too much"),
        ((COUNT, Calendar(0, 1, 8), AtMost(3), Fraction(0)), "epsilon > 0"),
    ],
)
def test_what_no_matrix_is_searched_for_is_refused(asked, words):
    """By the calendar, what entries may do, the constraint or the budget, in words."""
    with pytest.raises(ValueError, match=words):
        optimised(*asked)

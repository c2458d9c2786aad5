"""What an entry can do, enumerated within periods too, against what is stated; and the square root mechanism: nothing
leaks through rounding, stated errors."""

import sys
from fractions import Fraction
from itertools import pairwise
from math import sqrt
from random import Random

import numpy as np
import pytest
from changeling_central import (
    Blocks,
    LinearQuery,
    Shape,
    answer_query,
    clipped_sum,
    counting,
    drawn_ahead,
    histogram_query,
    square_root,
    square_root_coefficients,
    square_root_concentrated,
)
from changeling_central.linear_query import Reach
from changeling_central.noise import SLACK, implied_epsilon
from changeling_central.square_root import (
    _alternating,
    _within,
    lattice_coefficients,
    lattice_sensitivity,
    most_moved,
    most_of_patterns,
    squared_sensitivity,
    window_variances,
)
from changeling_central.testing import SeededNoise
from changeling_protocol import AtMost, AtMostWithin, Calendar, Hybrid, TimeBounded
from scipy.linalg import toeplitz
from scipy.stats import norm

from .examples import QUERIES, Listed, histories, stepped

T = 7
CALENDAR, ONE, SMALL = Calendar(0, 1, T), Fraction(1), Fraction(1, 10**6)
COUNT = QUERIES["count"]


def strategy(periods, band):
    c = np.zeros(periods)
    c[:band] = square_root_coefficients(band)
    return toeplitz(c, np.zeros(periods))


MOVED = [
    counting("ab", "a", "a"),
    histogram_query("abc", ["a"], other=True),
    histogram_query("abc", ["a"], other=True, fixed=True),
    clipped_sum({"a": 5.0, "b": 7.0}, "abc", 5, 7),
    clipped_sum({"a": 5.0, "b": -7.0}, "abc", -7, 5, fixed=True),
    answer_query("mean of answer from -2 to 8", ["-2", "8"], None, True),
    answer_query("mean of answer from -2 to 8", ["-2", "8"], weight=1.5),
    answer_query("mean of answer from -2 to 8", ["-2", "8"], weight=None),
    answer_query("mean of answer from 0 to 5 by 2", ["0", "3", "x"]),
]
CONSTRAINTS = [
    AtMost(1), AtMost(2), AtMost(4), AtMost(5), TimeBounded(1), TimeBounded(3),
    AtMostWithin(2, 1), AtMostWithin(3, 2), AtMostWithin(3, 5),
    AtMostWithin(4, 100), Hybrid((AtMost(3), TimeBounded(2))),
]  # fmt: skip
WIDTHS = [(1,), (1, 2), (1, 3), (1, 2, 4), (1, 8)]


@pytest.mark.parametrize("patterns", [True, False])
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_no_entry_moves_more_than_is_stated_and_one_moves_as_much(constraint, patterns, monkeypatch):
    """Wherever in a period it mutates: five periods of one second, where one moves as much, and three of two. Of the
    square root at every band, from place to place and by the patterns of a short window; of trees of any shape, which
    are exact for few mutations anywhere in the calendar."""
    most_of_patterns.cache_clear()
    if not patterns:
        monkeypatch.setattr(sys.modules["changeling_central.square_root"], "MOST_PATTERNS", 0)
    random = Random(str(constraint))
    for periods, seconds in ((5, 1), (3, 2)):
        calendar = Calendar(0, seconds, periods)
        for query in MOVED:
            lives = {(0, *states)[::seconds] for states in histories(3, constraint, periods * seconds, query.fixed)}
            lives = {tuple(min(state, len(query.table) - 1) for state in life) for life in lives}
            x = np.diff(np.array(query.table)[np.array(sorted(lives))], axis=1)
            assert (stated := most_moved(query, calendar, constraint)) >= (moved := np.abs(x).sum((1, 2)).max())
            exact = seconds == 1 and query is not MOVED[-1]
            assert not exact or stated == moved
            for band in range(1, periods + 1):
                squares = (np.einsum("ij,njw->niw", strategy(periods, band), x) ** 2).sum((1, 2)).max()
                assert squares <= (stated := squared_sensitivity(query, calendar, constraint, band))
                assert not exact or stated == pytest.approx(squares, rel=1e-8)
            for widths in WIDTHS * patterns:
                if len(widths) > 1 and widths[-2] >= periods:
                    continue
                curves = tuple((random.gauss(0, 1.5), random.gauss(0, 1.5), random.gauss(0, 2)) for _ in widths[1:])
                tree = drawn_ahead(query, calendar, constraint, Fraction(1), Shape(Blocks(periods, widths), curves))
                lost = 0.0
                for width, scales in zip(widths, tree.shape.scales(tree.rate), strict=True):
                    sums = np.add.reduceat(x, range(0, periods, width), axis=1)
                    lost = lost + (np.abs(sums).sum(2) / scales).sum(1)
                assert np.max(lost) <= 1
                assert tree.costs_at_most(0.0, constraint)
                if exact and isinstance(constraint, AtMost) and (constraint.k <= 3 or query is MOVED[0]):
                    assert np.max(lost) == pytest.approx(1, rel=1e-8)


def test_the_intervals_that_fit_into_a_window_are_a_bound_whatever_its_width(monkeypatch):
    """Cut into pieces, a wide window is bounded by no less than in one piece."""
    whole = _within.__wrapped__(40, 39)
    monkeypatch.setattr(sys.modules["changeling_central.square_root"], "LARGEST_WINDOW", 10)
    assert _within.__wrapped__(40, 39) >= whole


@pytest.mark.parametrize("band", [40, 6])
def test_what_is_published_follows_from_what_is_measured_to_the_last_bit(band):
    """The draws z on x, and z + Ĉ(x - y) on y, are one measurement: they publish the same floats, so rounding tells
    nothing that the measurement does not."""
    calendar = Calendar(0, 1, 40)
    mechanism = square_root(COUNT, calendar, AtMost(2), ONE, SMALL, band)
    random = np.random.default_rng(1)
    x, y = random.integers(-9, 9, 40), random.integers(-9, 9, 40)
    z = SeededNoise(2).gaussian(mechanism.scale, 40)
    c = np.zeros(40, np.int64)
    c[:band] = lattice_coefficients(band, mechanism.bits)
    moved = z + toeplitz(c, np.zeros(40, np.int64)).astype(np.int64) @ (x - y)
    (state, seen), (_, others) = (
        stepped(mechanism, changes[:, None], Listed(draws)) for changes, draws in ((x, z), (y, moved))
    )
    assert [level.values.tolist() for level in seen] == [level.values.tolist() for level in others]
    assert len(state.whole) == band - 1


def test_the_lattice_rounds_what_an_entry_moves_upwards():
    """Ĉ's own rows, with whole numbers: no entry moves it by more than the bound with its half steps."""
    for bits in (3, 8, 30):
        C = toeplitz(lattice_coefficients(T, bits), np.zeros(T))
        for constraint in (AtMost(1), AtMost(3), TimeBounded(3)):
            held = np.array(COUNT.table)[list(histories(2, constraint, T))]
            moved = (C @ np.diff(held, axis=1, prepend=0)) ** 2
            assert sqrt(moved.sum((1, 2)).max()) <= lattice_sensitivity(COUNT, CALENDAR, constraint, T, bits)


def test_the_discrete_law_is_the_rounded_one_within_the_stated_bound():
    """At small scales, where both can be summed; the bound shrinks with the scale squared, at 2^47 below SLACK."""
    for scale in (2.0, 5.0, 11.0):
        z = np.arange(-int(6 * scale), 1)
        discrete = np.exp(-(z**2) / (2 * scale**2))
        normal = scale * sqrt(2 * np.pi)
        rounded = norm.cdf((z + 0.5) / scale) - norm.cdf((z - 0.5) / scale)
        ratio = np.abs(np.log(discrete / normal) - np.log(rounded))
        assert np.all(ratio <= (36 + 1) / (8 * scale**2))
    assert SLACK > 2 * 1e6 * 1e3 * (14**2 + 1) / (8 * 2.0**94)


@pytest.mark.parametrize("band", [30, 11, 1])
def test_levels_vary_as_the_matrices_say(band):
    """The rows of A C⁻¹, materialised; and the whole root is a root."""
    C, A = strategy(30, band), np.tril(np.ones((30, 30)))
    assert window_variances(30, band, 30) == pytest.approx(((A @ np.linalg.inv(C)) ** 2).sum(1))
    if band == 30:
        assert pytest.approx(A) == C @ C


def test_concentrated_privacy_is_half_the_square_of_the_length():
    """rho = ‖Ĉx‖² / 2·scale², the whole of it; and the (epsilon, delta) that is stated is that of this length."""
    mechanism = square_root_concentrated(COUNT, CALENDAR, AtMost(2), Fraction(1, 2), SMALL)
    moved = lattice_sensitivity(COUNT, CALENDAR, AtMost(2), T, mechanism.bits) / mechanism.scale
    assert 0.5 * (1 - 1e-9) <= moved**2 / 2 <= 0.5
    assert mechanism.guarantee.epsilon == implied_epsilon(1 / (1 + 1e-12), SMALL)


def test_the_coefficients_fall_and_are_convex():
    """What the proofs of the sensitivities rest on."""
    c = square_root_coefficients(500).tolist()
    steps = [a - b for a, b in pairwise(c)]
    assert all(step > 0 for step in steps)
    assert all(a >= b for a, b in pairwise(steps))


def test_a_release_of_many_columns_holds_no_more_numbers_than_memory_is_for():
    """Cut off earlier, for the square root; in smaller blocks, for a tree drawn ahead."""
    columns = 2**22 // 1000
    names, counted = tuple(map(str, range(columns))), (1, *(0,) * (columns - 1))
    wide = LinearQuery(names, ((0,) * columns, counted), (1,), (1,), fixed=True)
    calendar = Calendar(0, 1, 2000)
    assert square_root(wide, calendar, AtMost(2), ONE, SMALL).band == 1000
    assert drawn_ahead(wide, calendar, AtMost(2), ONE).widths[-1] <= 1000


COUNTED = ((0,), (1,))


def searched(*arguments):
    """Not remembered, so that what a test changes has its effect."""
    return most_of_patterns.__wrapped__(*arguments)


@pytest.mark.parametrize(("k", "periods", "band"), [(3, 2000, 2000), (3, 2000, 300), (4, 200, 200), (5, 60, 60)])
def test_calendars_of_thousands_and_of_hundreds_of_periods_gain_by_it(k, periods, band):
    """The bound in closed form is above it, and entries at random places are below."""
    stated = searched(COUNTED, k, periods, band, periods - 1)
    assert stated <= _alternating(periods, band, Reach(k, periods - 1)) * (1 + 1e-9)
    c, random = square_root_coefficients(band), np.random.default_rng(k)
    for _ in range(100):
        x = np.zeros(periods)
        x[np.sort(random.choice(periods, k, replace=False))] = [(-1) ** i for i in range(k)]
        assert float((np.convolve(x, c)[:periods] ** 2).sum()) <= stated * (1 + 1e-12)


def test_as_often_as_it_will_within_a_short_window_gains_by_it():
    """Sixteen periods of a calendar of 500: the intervals that fit are a fifth above; there is an end to looking."""
    assert searched(COUNTED, 16, 500, 500, 15) * 1.2 < _alternating(500, 500, Reach(16, 15))
    assert searched(COUNTED, 40, 500, 500, 400) == np.inf
    assert searched(COUNTED, 5, 1000, 1000, 999) == np.inf

"""What an entry can do, enumerated within periods too, against what is stated."""

import sys
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from changeling_central import (
    Blocks,
    Shape,
    answer_query,
    clipped_sum,
    counting,
    drawn_ahead,
    histogram_query,
    square_root_coefficients,
)
from changeling_central.noise import gaussian_delta, implied_epsilon, told_apart
from changeling_central.square_root import most_moved, most_of_patterns, squared_sensitivity
from changeling_protocol import AtMost, AtMostWithin, Calendar, Hybrid, TimeBounded
from scipy.linalg import toeplitz
from scipy.special import log_ndtr

from .examples import histories

QUERIES = [
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
        for query in QUERIES:
            lives = {(0, *states)[::seconds] for states in histories(3, constraint, periods * seconds, query.fixed)}
            lives = {tuple(min(state, len(query.table) - 1) for state in life) for life in lives}
            x = np.diff(np.array(query.table)[np.array(sorted(lives))], axis=1)
            assert (stated := most_moved(query, calendar, constraint)) >= (moved := np.abs(x).sum((1, 2)).max())
            exact = seconds == 1 and query is not QUERIES[-1]
            assert not exact or stated == moved
            for band in range(1, periods + 1):
                c = np.zeros(periods)
                c[:band] = square_root_coefficients(band)
                squares = (np.einsum("ij,njw->niw", toeplitz(c, np.zeros(periods)), x) ** 2).sum((1, 2)).max()
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
                if exact and isinstance(constraint, AtMost) and (constraint.k <= 3 or query is QUERIES[0]):
                    assert np.max(lost) == pytest.approx(1, rel=1e-8)


@pytest.mark.parametrize("epsilon", ["1/10000", "1/100", "1", "10", "1000"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-6", "0.3", "0.999"])
def test_the_shift_of_the_least_and_the_largest_budgets_costs_no_more(epsilon, delta):
    """δ(ε) = ∫ (1 - e^(ε - loss)) over the normal tail, where nothing cancels; so does the ε that it implies."""
    allowed = Fraction(delta)
    try:
        length = told_apart(Fraction(epsilon), allowed)
    except ValueError:
        assert Fraction(epsilon) < Fraction(1, 1000)
        return
    if allowed < 1 / 2:  # else delta hardly grows
        assert gaussian_delta(length * 1.00001, float(Fraction(epsilon))) > float(allowed), "the length is the largest"
    for stated in (float(Fraction(epsilon)), float(implied_epsilon(length, allowed))):
        # losses above ε have x > ε/μ - μ/2 =: b under the shifted law; δ = ∫_b φ(x) (1 - e^(-μ(x - b))) dx
        b = stated / length - length / 2
        reach = max(b, 0.0) + 40
        x, h = np.linspace(b, reach if b > -40 else 40.0, 400_001, retstep=True)
        y = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * -np.expm1(-length * (x - b))
        found = h / 3 * (y[0] + 4 * y[1::2].sum() + 2 * y[2:-1:2].sum() + y[-1])
        assert found <= float(allowed) * (1 + 1e-9)
        assert np.log(found) <= log_ndtr(-b)

"""How far an entry moves a Toeplitz strategy, searched: against every pattern where these are few, with its gap."""

from itertools import product

import numpy as np
import pytest
from changeling_central import sensitivity, square_root_coefficients
from changeling_central.linear_query import Reach
from changeling_central.sensitivity import _alternating, _between_columns
from scipy.linalg import toeplitz

COUNTED = ((0,), (1,))
STATES = {
    "count": COUNTED,
    "signed sum": ((3,), (-2,)),
    "mean": ((0, 0), (5, 7), (-5, 7)),
    "three columns": ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)),
}
T = 7


def searched(*arguments):
    """Not remembered, so that what a test changes has its effect."""
    return sensitivity.most_of_patterns.__wrapped__(*arguments)


def strategy(periods, band):
    c = np.zeros(periods)
    c[:band] = square_root_coefficients(band)
    return toeplitz(c, np.zeros(periods))


def most(states, k, periods, band, span):
    """The largest ‖C x‖² over every way through the states, of at most k mutations within span + 1 periods."""
    corners, C, found = [(0,) * len(states[0]), *states], strategy(periods, band), 0.0
    for way in product(range(len(corners)), repeat=periods):
        held = np.array([corners[0], *(corners[at] for at in way)])
        jumps = np.diff(held, axis=0)
        times = np.flatnonzero(jumps.any(1))
        if 0 < len(times) <= k and times[-1] - times[0] <= span:
            found = max(found, float(((C @ jumps) ** 2).sum()))
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("band", [T, 4])
@pytest.mark.parametrize("name", STATES)
def test_the_search_ends_at_the_most_of_all_patterns(name, band, monkeypatch):
    """Every way through the states over five or seven periods, up to five mutations, every window."""
    monkeypatch.setattr(sensitivity, "MOST_PATTERNS", 0)
    monkeypatch.setattr(sensitivity, "MOST_MUTATIONS", (5, 5))
    states, periods = STATES[name], T if len(STATES[name]) < 3 else 5
    for k, span in product(range(1, 6), range(1, periods)):
        found, stated = most(states, k, periods, min(band, periods), span), searched(states, k, periods, band, span)
        assert stated.bound == pytest.approx(found, rel=1e-9), (k, span)
        assert stated.attained == pytest.approx(found, rel=1e-9), (k, span)


@pytest.mark.parametrize("band", [T, 4])
@pytest.mark.parametrize("name", ["count", "signed sum"])
def test_three_and_four_mutations_are_exact_within_every_window(name, band, monkeypatch):
    """By the search and by looking at every pattern of a short window, against every pattern."""
    for k, span in product((3, 4), (2, 4, T - 1)):
        found = most(STATES[name], k, T, band, span)
        assert searched(STATES[name], k, T, band, span).bound == pytest.approx(found, rel=1e-9)
        with monkeypatch.context() as all_searched:
            all_searched.setattr(sensitivity, "MOST_PATTERNS", 0)
            stated = searched(STATES[name], k, T, band, span)
        assert (stated.bound, stated.attained) == pytest.approx((found, found), rel=1e-9)


@pytest.mark.parametrize(("k", "periods", "band"), [(3, 3000, 3000), (3, 3000, 500), (4, 400, 400), (5, 60, 60)])
def test_the_search_ends_on_calendars_of_thousands_and_of_hundreds_of_periods(k, periods, band):
    """What is stated is attained by an entry, and the bound in closed form is above it."""
    stated = searched(COUNTED, k, periods, band, periods - 1)
    assert stated.bound == pytest.approx(stated.attained, rel=1e-8)
    assert stated.bound <= _alternating(periods, band, Reach(k, periods - 1)) * (1 + 1e-9)


@pytest.mark.heavy
def test_on_longer_calendars_and_with_more_mutations_the_gap_is_small_and_known():
    """Of the square: 0.1% at three mutations in 10,000 periods, or 5,000 between columns; 1% at four in 2,000."""
    asked = ((COUNTED, 3, 10_000, 1.001), (COUNTED, 4, 2_000, 1.01), (STATES["three columns"], 3, 5_000, 1.001))
    for states, k, periods, gap in asked:
        stated = searched(states, k, periods, periods, periods - 1)
        assert stated.attained <= stated.bound <= gap * stated.attained
    assert stated.bound < _between_columns(5_000, 5_000, Reach(3, 4_999))


def test_as_often_as_it_will_within_a_short_window_is_exact():
    """Sixteen periods of a calendar of 500: every pattern is looked at; the intervals that fit are a quarter above."""
    stated = searched(COUNTED, 16, 500, 500, 15)
    assert stated.attained == stated.bound
    assert stated.bound * 1.2 < _alternating(500, 500, Reach(16, 15))
    assert searched(COUNTED, 40, 500, 500, 400).bound == np.inf


@pytest.mark.parametrize("band", [40, 11])
def test_with_columns_left_out_the_search_stays_on_the_safe_side(band, monkeypatch):
    """Every third, fifth or tenth period is looked at: what is stated is above the most, what is attained below."""
    exact = searched(COUNTED, 3, 40, band, 39).bound
    within = searched(COUNTED, 3, 40, band, 21).bound
    for points in (14, 9, 5):
        monkeypatch.setattr("changeling_central.sensitivity.MOST_COLUMNS", points)
        for span, found in ((39, exact), (21, within)):
            stated = searched(COUNTED, 3, 40, band, span)
            assert stated.attained <= found * (1 + 1e-12)
            assert found <= stated.bound * (1 + 1e-12)


def test_a_search_that_is_cut_short_is_a_bound(monkeypatch):
    """However few boxes are looked at."""
    exact = searched(COUNTED, 4, 100, 100, 99)
    for boxes in (1, 100, 3000):
        monkeypatch.setattr(sensitivity, "MOST_BOXES", boxes)
        stated = searched(COUNTED, 4, 100, 100, 99)
        assert stated.attained <= exact.bound * (1 + 1e-9)
        assert exact.bound <= stated.bound * (1 + 1e-9)

"""How far an entry moves a Toeplitz strategy: against every pattern, written out."""

import sys
from itertools import product

import numpy as np
import pytest
from changeling_central import square_root_coefficients
from changeling_central.linear_query import Reach
from changeling_central.square_root import _alternating, most_of_patterns
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
    return most_of_patterns.__wrapped__(*arguments)


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


@pytest.mark.parametrize("band", [T, 4])
@pytest.mark.parametrize("name", STATES)
def test_few_mutations_are_exact_within_every_window(name, band, monkeypatch):
    """Every way through the states over five or seven periods, up to five mutations, from place to place."""
    monkeypatch.setattr(sys.modules["changeling_central.square_root"], "MOST_PATTERNS", 0)
    states, periods = STATES[name], T if len(STATES[name]) < 3 else 4
    for k, span in product(range(1, 6), range(1, periods)):
        found = most(states, k, periods, min(band, periods), span)
        assert searched(states, k, periods, min(band, periods), span) == pytest.approx(found, rel=1e-9), (k, span)


@pytest.mark.parametrize("band", [T, 4])
@pytest.mark.parametrize("name", ["count", "signed sum"])
def test_every_pattern_of_a_short_window_is_exact(name, band):
    """As often as an entry will, too."""
    for k, span in product((3, 4, T), (2, 4, T - 1)):
        found = most(STATES[name], k, T, band, span)
        assert searched(STATES[name], k, T, band, span) == pytest.approx(found, rel=1e-9)


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

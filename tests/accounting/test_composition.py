"""Basic, advanced, exact and parallel composition, against closed forms."""

from math import comb, exp, expm1, log, sqrt

import pytest
from changeling_aggregator.accounting.composition import advanced, basic, exact, parallel
from hypothesis import given, settings
from hypothesis import strategies as st


def kairouz(epsilon, times, step):
    """(ε_i, δ_i) of k ε-private mechanisms: ((k - 2i)ε, Σ_{l<i} C(k,l)(e^((k-l)ε) - e^((k-2i+l)ε)) / (1+e^ε)^k)."""
    terms = (
        comb(times, low) * (exp((times - low) * epsilon) - exp((times - 2 * step + low) * epsilon))
        for low in range(step)
    )
    return (times - 2 * step) * epsilon, sum(terms) / (1 + exp(epsilon)) ** times


@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 10), (0.5, 7), (1.0, 30), (0.02, 100)])
def test_exact_composition_is_the_closed_form(epsilon, times):
    """Kairouz, Oh, Viswanath 2017, theorem 3.3, at each of its corners that delta can name."""
    for step in range(1, times // 2):
        corner, delta = kairouz(epsilon, times, step)
        if 1e-10 < delta < 1:
            assert exact([(epsilon, 0.0)] * times, delta) == pytest.approx(corner, rel=1e-5, abs=1e-9)


def test_advanced_composition_is_the_closed_form():
    """ε√(2k ln 1/δ') + kε(e^ε - 1), at kδ + δ'."""
    epsilon, delta = advanced(0.01, 1e-8, 1000, 1e-6)
    assert epsilon == pytest.approx(0.01 * sqrt(2000 * log(1e6)) + 10 * expm1(0.01))
    assert delta == pytest.approx(1e-5 + 1e-6)


def test_basic_and_parallel_composition():
    """Sums, rounded up; and largest ones."""
    releases = [(0.1, 1e-6), (0.2, 0.0), (0.3, 2e-6)]
    assert basic(releases) == pytest.approx((0.6, 3e-6))
    assert basic(releases)[0] >= 0.1 + 0.2 + 0.3 - 1e-16
    assert parallel(releases) == (0.3, 2e-6)
    assert parallel([]) == (0.0, 0.0)


@given(
    releases=st.lists(st.tuples(st.floats(0.01, 2), st.sampled_from([0.0, 1e-9, 1e-7])), min_size=1, max_size=6),
    delta=st.floats(1e-5, 0.2),
)
@settings(max_examples=40, deadline=None)
def test_exact_is_never_above_basic_or_advanced(releases, delta):
    """And no order of mechanisms matters."""
    found = exact(releases, delta)
    assert found <= basic(releases)[0]
    assert found == pytest.approx(exact(releases[::-1], delta), rel=1e-9)
    epsilon, each = releases[0]
    slack = delta - 4 * each
    assert exact([releases[0]] * 4, delta) <= advanced(epsilon, each, 4, slack)[0] * (1 + 1e-2)


def test_bad_arguments_are_named():
    """Deltas already spent, and guarantees that are none."""
    with pytest.raises(ValueError, match=r"delta must be above 0\.5 and below 1, got 0\.25"):
        exact([(1.0, 0.5)], 0.25)
    with pytest.raises(ValueError, match="a guarantee has a finite epsilon"):
        basic([(-1.0, 0.0)])
    with pytest.raises(ValueError, match="times >= 1 and a slack in"):
        advanced(1.0, 0.0, 0, 1e-6)

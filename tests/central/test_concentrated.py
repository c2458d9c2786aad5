"""The conversion of zCDP is never less private than it says, against the same minimum to 40 digits."""

from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest
from changeling_central import concentrated_budget, implied_delta


def least_delta(rho: float, epsilon: Fraction) -> Decimal:
    """min over α > 1 of exp((α-1)(αρ - ε) + α ln(1 - 1/α)) / (α-1), by golden sections of ln(α-1)."""
    rate, stated = Decimal(rho), Decimal(epsilon.numerator) / epsilon.denominator

    def exponent(place: Decimal) -> Decimal:
        alpha = 1 + place.exp()
        return (alpha - 1) * (alpha * rate - stated) + alpha * (1 - 1 / alpha).ln() - place

    low, high, golden = Decimal(-25), Decimal(50), (Decimal(5).sqrt() - 1) / 2
    for _ in range(90):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if exponent(left) < exponent(right) else (left, high)
    return exponent((low + high) / 2).exp()


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), Fraction(1, 10), Fraction(1, 3), Fraction(3), Fraction(1000)])
def test_a_budget_implies_no_more_than_its_delta(epsilon):
    """From a delta of 10^-100 to one of .999; and it is nearly all of it but where delta is close to 1."""
    for delta in (Fraction(1, 10**100), Fraction(1, 10**12), Fraction(1, 100), Fraction(1, 2), Fraction(999, 1000)):
        rho = concentrated_budget(epsilon, delta)
        with localcontext(Context(prec=50)):
            share = least_delta(rho, epsilon) * delta.denominator / delta.numerator
        assert Decimal("0.96") < share <= 1


@pytest.mark.parametrize("rho", [1e-12, 1e-3, 1.0, 50.0])
def test_what_a_rho_implies_is_rounded_up(rho):
    """At an epsilon of 0, where most is implied, and up to 300."""
    for epsilon in (0.0, 1e-9, 0.5, 30.0, 300.0):
        with localcontext(Context(prec=50)):
            least = least_delta(rho, Fraction(epsilon))
        assert Decimal(implied_delta(rho, epsilon)) >= min(least, Decimal(1)) * (1 - Decimal("1e-25"))

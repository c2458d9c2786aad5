"""Epsilons in whole millionths, as surveys are signed and devices add them up: always rounded up."""

from decimal import ROUND_CEILING, Decimal

from .expectation import MICRO
from .upwards import upwards

WEEK = 604_800
"""The seconds of a week."""


def micro(epsilon: Decimal) -> int:
    """An epsilon in millionths, rounded up."""
    with upwards():
        return int((epsilon * MICRO).to_integral_value(ROUND_CEILING))


def from_micro(epsilon_micro: int) -> Decimal:
    """The epsilon of so many millionths."""
    with upwards():
        return Decimal(epsilon_micro) / MICRO


def per_week(epsilon: Decimal, seconds: int) -> Decimal:
    """An epsilon that is spent over so many seconds, for each week of them, rounded up to millionths.

    >>> per_week(Decimal(8), 2 * WEEK)
    Decimal('4')
    """
    with upwards():
        return from_micro(micro(epsilon * WEEK / seconds))

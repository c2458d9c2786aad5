"""Exact likelihood ratios, and the losses that follow from them: decimal numbers, always rounded up.

Losses are added and compared on devices, inside apps that may have set a decimal context of their own. No result here
depends on it: a context of one digit would take 18 for 10.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import lru_cache
from math import gcd, inf, nextafter

MICRO = 10**6
"""Surveys are signed in whole millionths, of epsilons and of expected changes."""
WEEK = 604_800
"""The seconds of a week."""
MOST_EPSILON = 43
"""The largest loss for which odds are made: they stay below 2^63, as integers in signed bytes must."""
_LN_ERROR = Decimal("1e-45")
"""Decimal.ln is correctly rounded to 50 digits whatever the context's rounding; this covers it upwards."""
_UPWARDS = Context(
    prec=50,
    rounding=ROUND_CEILING,
    Emin=-999_999,
    Emax=999_999,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""Written out whole: what is left open would come from `decimal.DefaultContext`, which an app may change as well."""


def upwards() -> AbstractContextManager[Context]:
    """A context for a `with` statement, in which decimal arithmetic has 50 digits and rounds up."""
    return localcontext(_UPWARDS)


@dataclass(frozen=True, slots=True)
class Odds:
    """A likelihood ratio of exactly `favoured` to `other`; epsilon is its logarithm, rounded up.

    favoured: at least `other`.
    other: at least 1.
    Raises ValueError outside these ranges.
    """

    favoured: int
    other: int

    def __post_init__(self) -> None:
        if not self.favoured >= self.other >= 1:
            raise ValueError(f"odds must be favoured >= other >= 1, got {self.favoured}:{self.other}")

    @property
    def epsilon(self) -> Decimal:
        """ln(favoured / other), rounded up."""
        return log_ratio(self.favoured, self.other)

    def in_lowest_terms(self) -> "Odds":
        """The same ratio without a common factor."""
        divisor = gcd(self.favoured, self.other)
        return Odds(self.favoured // divisor, self.other // divisor)

    @classmethod
    def within(cls, epsilon: Decimal | float) -> "Odds":
        """The largest odds, in integers of about 2^40, whose loss does not exceed an epsilon.

        epsilon: above 0, at most MOST_EPSILON. Raises ValueError outside.
        """
        with upwards():
            most = Decimal(epsilon)
            if most.is_nan() or not 0 < most <= MOST_EPSILON:
                raise ValueError(f"a loss must be above 0 and at most {MOST_EPSILON}, got {epsilon}")
            ratio = most.exp() * (1 - _LN_ERROR)
            other = max(1, int(2**40 / ratio))
            odds = cls(max(other, int(other * ratio)), other)
            while odds.epsilon > most:
                odds = cls(odds.favoured - 1, other)
            return odds


@lru_cache(maxsize=1024)
def log_ratio(numerator: int, denominator: int) -> Decimal:
    """The logarithm of a fraction to some 45 digits, rounded up; exactly 0 for equal integers."""
    if numerator == denominator:
        return Decimal(0)
    with upwards():
        return (Decimal(numerator) / denominator).ln() + _LN_ERROR


def rounded_up(loss: Decimal) -> float:
    """The least float that is not below `loss`."""
    nearest = float(loss)
    with upwards():
        return nearest if Decimal(nearest) >= loss else nextafter(nearest, inf)


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

"""Exact likelihood ratios, and losses rounded up from them.

All decimal work is done in a context of its own, whatever the app has set.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import gcd, inf, nextafter

from ..upwards import upwards

MOST_EPSILON = 43
"""The largest loss for which odds are made: they stay below 2^63, as integers in signed bytes must."""
_LN_ERROR = Decimal("1e-45")
"""Decimal.ln is correctly rounded to 50 digits whatever the context's rounding; this covers it upwards."""


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

    @classmethod
    def of_bias(cls, bias: Fraction) -> "Odds":
        """The odds (1 + e) : (1 - e) of an answer ±1 that is kept with probability (1 + e)/2, and else turned round.

        bias: e, from 0 to below 1. The loss is ln((1 + e)/(1 - e)), which is above 2e. Raises ValueError outside.
        `KaryResponse` over two states with these odds is the local mechanism RR of the lecture notes, section 1: let
        those who hold a state answer -1, and let Σ be the sum of all n reports. Then the notes' estimate n/2 - Σ/(2e)
        of how many hold it is P⁻¹O, with standard deviation √((1 - e²)n)/(2e).

        >>> Odds.of_bias(Fraction(1, 2))
        Odds(favoured=3, other=1)
        """
        if not 0 <= bias < 1:
            raise ValueError(f"the bias of an answer is from 0 to below 1, got {bias}")
        ratio = (1 + bias) / (1 - bias)
        return cls(ratio.numerator, ratio.denominator)


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

"""What an adversary can at most conclude from what a survey costs, as probabilities, always rounded against us.

Reports that are at most e^epsilon times likelier under one history than under another move whoever sees them from a
probability p to one between p / (p + (1 - p) e^epsilon) and p e^epsilon / (p e^epsilon + 1 - p). That holds for
whatever else they know, and for any question about one entry's answers.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

from changeling_protocol import upwards

PLACES = 12
"""Bounds are rounded to so many decimal places."""
BEFORE = (Decimal("0.01"), Decimal("0.1"), Decimal("0.5"))
"""The probabilities from which an adversary is taken to start, where examples are given."""

_EXP_ERROR = Decimal("1e-45")
"""Decimal.exp is correctly rounded to 50 digits whatever the context's rounding; this covers it upwards."""
_ENOUGH = Decimal(100)
"""From here on the bounds, rounded, are 0 and 1 for every p in BEFORE, and are taken to be so for all."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How far an adversary can be moved.

    before: how likely the adversary thought it was, above 0 and below 1.
    at_most: the most that it can come to think, rounded up. at_least: the least, rounded down.
    """

    before: Decimal
    at_most: Decimal
    at_least: Decimal


def conclude(before: Decimal, epsilon: Decimal) -> Conclusion:
    """What whoever thought something `before` likely can come to think, once they have seen all that epsilon covers.

    before: above 0 and below 1. epsilon: 0 or more. Raises ValueError outside.

    >>> conclude(Decimal("0.1"), Decimal(1))
    Conclusion(before=Decimal('0.1'), at_most=Decimal('0.231969316685'), at_least=Decimal('0.039270300550'))
    """
    if not (0 < before < 1 and epsilon >= 0):
        raise ValueError(f"a probability between 0 and 1 and an epsilon of 0 or more, got {before} and {epsilon}")
    if epsilon >= _ENOUGH:
        return Conclusion(before, Decimal(1), Decimal(0))
    p, ratio = Fraction(before), _exp_above(epsilon)
    above, below = p * ratio / (p * ratio + 1 - p), p / (p + (1 - p) * ratio)
    return Conclusion(
        before,
        at_most=Decimal(f"{ceil(above * 10**PLACES)}e-{PLACES}"),
        at_least=Decimal(f"{floor(below * 10**PLACES)}e-{PLACES}"),
    )


def percent_up(share: Decimal | Fraction) -> str:
    """A probability as a percentage to two digits, or two beyond the nines, rounded up.

    >>> [percent_up(Decimal(share)) for share in ("0.2319", "0.0161", "0.99951", "1")]
    ['24%', '1.7%', '99.951%', '100%']
    """
    share, shift = Fraction(share), _shift(share)
    return _written(ceil(share * 10 ** (2 + shift)), shift)


def percent_down(share: Decimal | Fraction) -> str:
    """The same, rounded down.

    >>> [percent_down(Decimal(share)) for share in ("0.2319", "0.0369", "0.00004", "0")]
    ['23%', '3.6%', '0.004%', '0%']
    """
    share, shift = Fraction(share), _shift(share)
    return _written(floor(share * 10 ** (2 + shift)), shift)


def _exp_above(epsilon: Decimal) -> Fraction:
    """e^epsilon, rounded up; exactly 1 for 0."""
    if epsilon == 0:
        return Fraction(1)
    with upwards():
        return Fraction(epsilon.exp() * (1 + _EXP_ERROR))


def _shift(share: Fraction) -> int:
    """How many places behind the point a percentage is given, so that two digits tell it from 0% and from 100%."""
    gap, shift = min(share, 1 - share), 0
    while 0 < gap * 10 ** (1 + shift) < 1 and shift < 6:
        shift += 1
    return shift


def _written(scaled: int, shift: int) -> str:
    whole, rest = divmod(scaled, 10**shift)
    behind = f"{rest:0{shift}d}".rstrip("0") if shift else ""
    return f"{whole}.{behind}%" if behind else f"{whole}%"

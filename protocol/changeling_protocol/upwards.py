"""Decimal arithmetic that is the same in every program: 50 digits, rounded up.

Losses are added and compared on devices, inside apps that may have set a decimal context of their own. No result here
depends on it: a context of one digit would take 18 for 10.
"""

from contextlib import AbstractContextManager
from decimal import ROUND_CEILING, Context, DivisionByZero, InvalidOperation, Overflow, localcontext

UPWARDS = Context(
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
    """What a `with` statement needs to run decimal arithmetic to 50 digits and rounded up."""
    return localcontext(UPWARDS)

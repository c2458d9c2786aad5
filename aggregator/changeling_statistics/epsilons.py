"""Epsilons as people write them on a command line: `8`, `0.5`."""

from decimal import Decimal, InvalidOperation


def parse_epsilon(text: str) -> Decimal:
    """The epsilon, exactly as written. Raises ValueError for what is no number above 0.

    >>> parse_epsilon("0.5")
    Decimal('0.5')
    """
    try:
        epsilon = Decimal(text)
    except InvalidOperation:
        epsilon = Decimal("nan")
    if not epsilon.is_finite():
        raise ValueError(f"epsilon is a number such as 8 or 0.5, got {text!r}")
    if epsilon <= 0:
        raise ValueError(f"epsilon must be above 0, got {text}")
    return epsilon

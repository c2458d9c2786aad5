"""Numbers of people or devices as they are written on a command line: `20000`, `1e6`."""

from decimal import Decimal, InvalidOperation


def parse_count(text: str) -> int:
    """A whole number, at least 1. Raises ValueError for anything else.

    >>> parse_count("1.5e5")
    150000
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"write a number such as 20000 or 1e6, got {text!r}") from None
    if not (value.is_finite() and value == value.to_integral_value()):
        raise ValueError(f"write a whole number such as 20000 or 1e6, got {text}")
    if value < 1:
        raise ValueError(f"there must be at least one, got {text}")
    return int(value)

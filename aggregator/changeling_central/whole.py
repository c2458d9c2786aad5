"""Whole numbers as callers bring them: Python's and NumPy's."""

import numpy as np


def whole(value: object) -> int | None:
    """The whole number, as Python's own; None for anything else, a bool and a float without a fraction included."""
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None

"""The products of a Toeplitz strategy's columns, which is all that is needed of it to say how far an entry moves it.

    G(i, j) = Σ_s c_s c_{s+j-i}  over the rows that both columns have,  i <= j

c falls and is never negative, so G rises in i and falls in j, and is 0 for a column beyond the calendar. Reads no data.
"""

from dataclasses import dataclass

import numpy as np
from changeling_statistics import Floats

from .toeplitz import square_root_coefficients

MOST_POINTS = 3001
"""Columns whose products are held: 72 MB. Of more columns every second one is looked at, every third, and so on."""


@dataclass(frozen=True, slots=True)
class Products:
    """G of the columns 0, step, 2·step, …, and of one beyond the calendar where `last` of `products` reaches it.

    table: shape (n, n), of which the part above the diagonal is told. whole: how many of its columns lie within `last`.
    """

    table: Floats
    step: int
    whole: int


def products(periods: int, band: int, last: int) -> Products:
    """Of the columns up to `last`, at most the calendar's number of periods, which stands for no column at all.

    Columns that are looked at may reach beyond `last` by less than a step. band: how many coefficients c has.
    """
    step = -(-(last + 1) // MOST_POINTS)
    count = -(-last // step) + 1
    columns = step * np.arange(count)
    c = square_root_coefficients(band)
    table = np.zeros((count, count))
    for apart in range(count):
        lag = apart * step
        if lag >= band:
            break
        sums = np.concatenate([[0.0], np.cumsum(c[: band - lag] * c[lag:])])
        rows = np.clip(periods - columns[apart:], 0, band - lag)
        table[np.arange(count - apart), np.arange(apart, count)] = sums[rows]
    return Products(table, step, last // step + 1)

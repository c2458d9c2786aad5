"""The square root of counting: a strategy C whose rows are one sequence, shifted, and what its levels then vary by.

    C_ts = c_{t-s},  c_0 = 1,  c_i = c_{i-1} (1 - 1/2i)          levels = A x + A C⁻¹ z,  A all ones below the diagonal

C² = A, so the whole root measures C x and adds it up with C again. Cut off after `band` coefficients it needs a memory
of so many numbers for each column, and errs more. Source: Fichtenberger, Henzinger, Upadhyay 2023; Henzinger,
Upadhyay, Upadhyay 2023; cut off: Kalinin, Lampert 2024. Reads no data.
"""

from functools import lru_cache

import numpy as np
from changeling_statistics import Floats

MOST_BAND = 2**14
"""Of coefficients, so that a column's memory is at most 256 KiB; longer streams take the banded form."""
MOST_NUMBERS = 2**22
"""Of noise that a release holds for all columns together."""


def band_of(periods: int, width: int) -> int:
    """How many coefficients a stream of so many periods and columns is released with: all, or as memory allows."""
    return min(periods, MOST_BAND, max(1, MOST_NUMBERS // width))


@lru_cache(maxsize=16)
def square_root_coefficients(band: int) -> Floats:
    """c_0 to c_{band-1}, falling and convex; written over by nobody.

    >>> square_root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    i = np.arange(1, band)
    c: Floats = np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * i))])
    c.flags.writeable = False
    return c


@lru_cache(maxsize=16)
def level_variances(periods: int, band: int) -> Floats:
    """The variance of the level at the end of each period, in variances of one draw of noise; shape (periods,).

    Σ_{i < t} β_i²,   β the sums of the coefficients of 1 / c(x)
    """
    variances: Floats = np.cumsum(_level_coefficients(periods, band) ** 2)
    variances.flags.writeable = False
    return variances


@lru_cache(maxsize=16)
def window_variances(periods: int, band: int, window: int) -> Floats:
    """The variance of what a level differs by from that of `window` periods before, as of `level_variances`.

    Σ_{i < t} (β_i - β_{i - window})²,   β_i = 0 for i < 0: before the first period the level is 0, without noise
    """
    beta = _level_coefficients(periods, band)
    variances: Floats = np.cumsum((beta - np.concatenate([np.zeros(window), beta])[:periods]) ** 2)
    variances.flags.writeable = False
    return variances


def _level_coefficients(periods: int, band: int) -> Floats:
    """β, the sums of the coefficients of 1 / c(x): how much of each draw is in a level."""
    if band == periods:
        return square_root_coefficients(periods)
    c = np.zeros(periods)
    c[:band] = square_root_coefficients(band)
    beta: Floats = np.cumsum(_reciprocal(c))
    return beta


def _reciprocal(c: Floats) -> Floats:
    """The coefficients of 1 / c(x), by Newton's g ← g (2 - c g), which doubles how many are right."""
    inverse, known = np.array([1 / c[0]]), 1
    while known < len(c):
        known = min(2 * known, len(c))
        points = 1 << (3 * known - 1).bit_length()
        of_c, of_g = np.fft.rfft(c[:known], points), np.fft.rfft(inverse, points)
        inverse = np.fft.irfft(of_g * (2 - of_c * of_g), points)[:known]
    return inverse

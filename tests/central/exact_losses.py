"""What shifts of independent draws really cost: the exact law of the loss, by convolving positive numbers directly."""

from functools import lru_cache

import numpy as np
from changeling_central import Law

REACH = 9
"""Gaussian draws are followed to so many scales."""


@lru_cache(maxsize=4096)
def exact_delta(law, scale, shifts, epsilon):
    """The least delta of one draw per shift: Σ p(loss) (1 - e^(epsilon - loss)) over losses above epsilon.

    Gaussian: the loss of draws x shifted by s is (Σs² - 2Σs·x) / 2 scale². Laplace: Σ (|x - s| - |x|) / scale.
    """
    total, zero, step = np.ones(1), 0, 1 / scale if law is Law.LAPLACE else 1 / scale**2
    for shift in shifts:
        spread, at = _laplace(scale, shift) if law is Law.LAPLACE else _gaussian(scale, shift)
        total, zero = np.convolve(total, spread), zero + at
    # Positions count from the loss Σs² / 2 scale², and 0.
    middle = sum(s * s for s in shifts) * step / 2 if law is Law.GAUSSIAN else 0.0
    loss = middle + (np.arange(len(total)) - zero) * step
    return float(total @ np.maximum(0, -np.expm1(epsilon - loss)))


def _gaussian(scale, shift):
    reach = int(REACH * scale) + 1
    x = np.arange(-reach, reach + 1)
    law = np.exp(-(x**2) / (2 * scale**2))
    spread = np.zeros(2 * reach * shift + 1)
    spread[::shift] = law / law.sum()
    return spread, reach * shift


def _laplace(scale, shift):
    """The loss is shift - 2x where 0 <= x <= shift, and stays at both ends beyond; in units of 1 / scale."""
    p = np.exp(-1 / scale)
    at = (1 - p) / (1 + p) * p ** np.arange(shift + 1)
    end = 1 / (1 + p)
    spread = np.zeros(2 * shift + 1)
    spread[::2] = at[::-1]
    spread[-1], spread[0] = end, end * p**shift
    return spread, shift

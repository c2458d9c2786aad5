"""Histograms as people expect to see them: no answer below zero, and everybody counted.

Estimates themselves are never clipped. What is displayed is the closest consistent histogram. It is biased, so it is
for the eye alone: no estimate, difference or region is computed from it.
"""

import numpy as np

from ..estimate import Floats


def displayed(values: Floats, population: float, *, null: bool = True) -> Floats:
    """The histogram without negative counts that is closest to an estimate (least squares) and fits the population.

    values: of one or more estimates, shape (..., z), in entries.
    population: how many entries there are, at least 0.
    null: whether entries may have no answer. If so, the answers add up to the population at most; if not, exactly.
    Negative counts become 0, and the same number is taken from, or added to, each of the others (projection on the
    simplex, Duchi et al. 2008; "norm-sub" in Wang et al. 2020).
    Raises ValueError for a population below 0, or values that are not finite.
    """
    if not population >= 0:
        raise ValueError(f"a population has 0 entries or more, got {population}")
    values = np.asarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("an estimate that is not finite cannot be displayed")
    whole = values
    if null:
        whole = np.concatenate([values, population - values.sum(-1, keepdims=True)], axis=-1)
    shown: Floats = _on_simplex(whole, population)
    return shown[..., : values.shape[-1]]


def _on_simplex(values: Floats, total: float) -> Floats:
    """max(values - θ, 0), θ such that they sum to the total."""
    falling = -np.sort(-values, axis=-1)
    theta = (falling.cumsum(-1) - total) / np.arange(1, values.shape[-1] + 1)
    last = np.maximum((falling > theta).sum(-1, keepdims=True), 1) - 1
    return np.maximum(values - np.take_along_axis(theta, last, axis=-1), 0.0)

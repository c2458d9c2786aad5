"""Histograms as people expect them: nobody below zero, everybody somewhere. A step of its own, after estimation.

Estimates are never clipped; what is displayed is the closest consistent histogram, which is biased, and never goes
back into an estimate, a difference or a region.
"""

import numpy as np

from ..estimate import Floats


def displayed(values: Floats, population: float, *, null: bool = True) -> Floats:
    """The non-negative histogram closest to `values` (least squares) that accounts for the population.

    values: shape (..., z), in entries. population: how many entries there are. null: whether some may have no
    answer; the answers then sum to the population at most, NULL taking part as one more, and else exactly.
    Every negative answer becomes 0 and the others give way alike (projection on the simplex, Duchi et al. 2008;
    "norm-sub" in Wang et al. 2020). Raises ValueError for a population below 0 or values that are not numbers.
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

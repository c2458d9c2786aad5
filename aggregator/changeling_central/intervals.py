"""Intervals with the coverage they state, for sums of independent noise with known weights.

Laplace noise has heavier tails than the normal law, so ±1.96 standard errors would not hold 95%. The law of
Σ w·X is read off its characteristic function, Π φ(w·s); an interval that cannot hold exactly the level asked for, as
noise is whole, states the level that it does hold. Reads no data.

    φ(s) = (1 - p)² / (1 - 2p·cos s + p²),  p = e^(-1/scale)         discrete Laplace
    φ(s) = exp(-σ²r²/2), r = s mod 2π in [-π, π]                      discrete Gaussian, scale 2 and above
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_statistics import Floats

from .ahead import AheadTree, level_weights
from .noise import Law, NodeNoise
from .square_root import SquareRoot

GRID = 2**15
REACH = 24.0
"""The grid spans so many standard deviations."""
BLUR = 2.0
"""Standard deviation, in grid steps, of a smoothing that keeps atoms from ringing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The estimate ± half_width holds the truth with probability `level`, which is at least what was asked for."""

    half_width: float
    level: float


def sum_interval(noise: NodeNoise, draws: int, level: float = 0.95) -> Interval:
    """The interval around a sum of independent draws, such as a prefix sum of a DCR, a cover sum or a counter.

    noise: of each draw. draws: how many were added. level: the coverage asked for, between 0 and 1 (ValueError).
    """
    return weighted_interval(noise, (1.0,), (draws,), level)


def online_interval(noise: NodeNoise, branching: int, layers: int, period: int, level: float = 0.95) -> Interval:
    """The interval around the best online estimate of a hierarchy.

    noise: of each node. branching, layers: of the hierarchy. period: at whose end the estimate is, from 1 on.
    level: the coverage asked for, between 0 and 1 (ValueError).
    """
    weights, counts = _online_weights(branching, layers, period)
    return weighted_interval(noise, weights, counts, level)


def ahead_interval(tree: AheadTree, period: int, level: float = 0.95) -> Interval:
    """The interval around a level of a tree drawn ahead.

    tree: it. period: at whose end the level is, from 1 on. level: the coverage asked for, between 0 and 1 (ValueError).
    """
    terms: dict[tuple[float, float], int] = {}
    scales = tree.shape.scales(tree.rate)
    for layer, weights in enumerate(level_weights(tree.shape.blocks, tree.shape.weights(tree.rate), period)):
        for scale, weight in zip(scales[layer].tolist(), weights.tolist(), strict=True):
            if weight:
                key = scale, abs(round(weight, 12))
                terms[key] = terms.get(key, 0) + 1
    noises = tuple((NodeNoise(Law.LAPLACE, scale), weight, count) for (scale, weight), count in terms.items())
    return _interval(noises, level)


def square_root_interval(root: SquareRoot, period: int, level: float = 0.95) -> Interval:
    """The interval around a level of the square root mechanism, whose noise is normal to more digits than count.

    Arguments as of `ahead_interval`.
    """
    from scipy.special import ndtri  # loads slowly

    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, got {level}")
    return Interval(float(ndtri((1 + level) / 2)) * root.variance(period) ** 0.5, level)


@lru_cache(maxsize=4096)
def weighted_interval(
    noise: NodeNoise, weights: tuple[float, ...], counts: tuple[int, ...], level: float = 0.95
) -> Interval:
    """The interval around Σ w·X, a sum of draws with known weights.

    weights: w. counts: how many draws have each. level: the coverage asked for.
    ValueError for a level not between 0 and 1, and for Gaussian noise of a scale below 2.
    """
    if noise.law is Law.GAUSSIAN and noise.scale < 2:
        raise ValueError(f"intervals around Gaussian noise need a scale of at least 2, got {noise.scale}")
    return _interval(tuple((noise, weight, count) for weight, count in zip(weights, counts, strict=True)), level)


def _interval(terms: tuple[tuple[NodeNoise, float, int], ...], level: float) -> Interval:
    """Around a sum of draws: of each noise, with a weight, so many."""
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, got {level}")
    spread = float(np.sqrt(sum(noise.variance * count * weight**2 for noise, weight, count in terms)))
    whole = len({weight for _, weight, _ in terms}) == 1  # then the sum lies on a lattice, and the grid is that
    first = terms[0][1]
    points = 1 << int(np.ceil(np.log2(REACH * spread / first))) if whole else GRID
    step = first if whole else REACH * spread / GRID
    s: Floats = np.asarray(2 * np.pi * np.fft.rfftfreq(points, step), np.float64)
    law = np.ones(len(s)) if whole else np.exp(-((BLUR * step * s) ** 2) / 2)
    for noise, weight, count in terms:
        law = law * _characteristic(noise, weight * s) ** count
    mass = np.fft.irfft(law, points)
    inside = mass[0] + np.concatenate([[0.0], 2 * np.cumsum(mass[1 : points // 2])])
    at = int(np.argmax(inside >= level))
    if not whole:
        at = min(at + round(4 * BLUR), len(inside) - 1)
    return Interval((at + 0.5) * step, float(min(inside[at], 1.0)))


def _characteristic(noise: NodeNoise, s: Floats) -> Floats:
    if noise.law is Law.GAUSSIAN:
        r = s - 2 * np.pi * np.rint(s / (2 * np.pi))
        gaussian: Floats = np.exp(-((noise.scale * r) ** 2) / 2)
        return gaussian
    p = np.exp(-1 / noise.scale)
    laplace: Floats = (1 - p) ** 2 / (1 - 2 * p * np.cos(s) + p * p)
    return laplace


@lru_cache(maxsize=4096)
def _online_weights(branching: int, layers: int, period: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The weights of nodes in the best online estimate, and how many have each.

    A tree's estimate is α·(its root) + (1 - α)·(its c trees), α = c·v/(c·v + 1) of the trees' variance v.
    """
    if period < 1:
        raise ValueError(f"periods are numbered from 1, got {period}")
    trees: list[dict[float, int]] = [{1.0: 1}]
    v = 1.0
    for _ in range(layers - 1):
        alpha = branching * v / (branching * v + 1)
        tree = {alpha: 1}
        for weight, count in trees[-1].items():
            scaled = (1 - alpha) * weight
            tree[scaled] = tree.get(scaled, 0) + branching * count
        trees.append(tree)
        v = alpha
    together: dict[float, int] = {}
    t = period
    for layer, tree in enumerate(trees):
        digit = t % branching if layer < layers - 1 else t
        for weight, count in tree.items():
            together[weight] = together.get(weight, 0) + digit * count
        t //= branching
    used: Sequence[tuple[float, int]] = [(w, n) for w, n in together.items() if n]
    return tuple(w for w, _ in used), tuple(n for _, n in used)

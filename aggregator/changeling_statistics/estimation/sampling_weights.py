"""What reports of one entry have in common, as a weighted sum of what tallies tell: the weights, and the sum."""

from dataclasses import dataclass

import numpy as np

from ..estimate import Floats
from .sampling_forms import Design


@dataclass(frozen=True, slots=True, eq=False)
class SamplingWeights:
    """A covariance as a weighted sum of what tallies tell.

        Σ_e edges[e] Q̂_e + diag(Σ_t times[t] v̂_t) - m 1' - 1 m' + n·flat·11',      m = Σ_t level[t] v̂_t

    From the sampling error products of means are taken off. The weights depend on the plan and on how many reported,
    never on what was answered.

    edges: the weight of each Q̂_e, shape (E,).
    times: the weight of the histogram at each time, shape (periods + 1,).
    level: the weight of the histogram at each time in m, shape (periods + 1,).
    flat: how often the number of entries n is added to every pair of answers.
    omega: how often each of the K pairs of means is taken off, shape (K,).
    means: the pairs, as weights of histograms, each of shape (K, periods + 1); the last is of what is estimated.
    spans: how often the square of each edge's own mean is taken off, shape (E,).
    bounded: whether the sum is an upper bound.
    entries: n, how many entries the histograms are of.
    """

    edges: Floats
    times: Floats
    level: Floats
    flat: float
    omega: Floats
    means: tuple[Floats, Floats]
    spans: Floats
    bounded: bool
    entries: float


def weighed(weights: SamplingWeights, design: Design, products: Floats, histograms: Floats) -> Floats:
    """The covariance that follows from some weights, shape (..., z, z), in entries squared.

    products: Q̂, shape (..., E, z, z). histograms: v̂, shape (..., periods + 1, z).
    """
    z, n = histograms.shape[-1], weights.entries
    on_answers, level = (np.einsum("t,...tz->...z", on, histograms) for on in (weights.times, weights.level))
    spread: Floats = np.einsum("e,...eyz->...yz", weights.edges, products) + on_answers[..., None] * np.eye(z)
    spread += n * weights.flat - level[..., :, None] - level[..., None, :]
    if len(weights.omega):
        left, right = (mean @ histograms for mean in weights.means)
        moved = histograms[..., design.end, :] - histograms[..., design.start, :]
        centre = np.einsum("k,...ky,...kz->...yz", weights.omega, left, right)
        centre += np.einsum("e,...ey,...ez->...yz", weights.spans, moved, moved)
        spread -= centre / n
    return 0.5 * (spread + np.swapaxes(spread, -1, -2))

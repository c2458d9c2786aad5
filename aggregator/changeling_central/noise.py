"""Noise for central releases: OpenDP's exact discrete samplers, drawn from the operating system's generator.

Counts get integer noise. A scale says what it is for: a sensitivity over an epsilon. Never a float generator.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from changeling_statistics import Counts
from numpy.typing import NDArray

if TYPE_CHECKING:
    from opendp.mod import Measurement

MOST_SCALE = 2.0**56
"""The sampler stops at 2^63, where noise would show what it hides; at this scale with probability below e^-127."""


class Noise(Protocol):
    """A source of independent integer noise. Mechanisms take it as an argument; tests may bring a list."""

    def laplace(self, scale: float, size: int) -> Counts:
        """`size` draws of the discrete Laplace law, Pr(x) ∝ exp(-|x| / scale); variance about 2·scale²."""
        ...

    def gaussian(self, scale: float, size: int) -> Counts:
        """`size` draws of the discrete Gaussian law, Pr(x) ∝ exp(-x² / (2·scale²)); variance about scale²."""
        ...


class OpenDPNoise:
    """The samplers of OpenDP (Ghazi et al. 2020; Canonne, Kamath, Steinke 2020): exact, and slow by design."""

    def laplace(self, scale: float, size: int) -> Counts:
        """Exact draws of the discrete Laplace law. ValueError for a scale that is none, or above 2^56."""
        return _drawn("laplace", scale, size)

    def gaussian(self, scale: float, size: int) -> Counts:
        """Exact draws of the discrete Gaussian law. ValueError for a scale that is none, or above 2^56."""
        return _drawn("gaussian", scale, size)


def _drawn(law: str, scale: float, size: int) -> Counts:
    if not 0 < scale <= MOST_SCALE:
        raise ValueError(f"the scale of {law} noise must be above 0 and at most 2^56, got {scale}")
    if size == 0:
        return np.zeros(0, np.int64)
    drawn: NDArray[np.int64] = np.array(_measurement(law, scale)([0] * size), dtype=np.int64)
    return drawn


@lru_cache(maxsize=256)
def _measurement(law: str, scale: float) -> "Measurement":
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))  # its plain int has 32 bits, and noise would stop at 2^31
    if law == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=scale)

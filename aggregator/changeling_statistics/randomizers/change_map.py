"""M_δv: by how much each input of a randomizer changes the histogram, and products with that matrix.

Its column for the input (old, new) is +1 at `new` and -1 at `old`; NULL has no row. The matrix is never built: every
product here is a sum over inputs, O(m).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import Space
from numpy.typing import NDArray

from ..estimate import Floats


@dataclass(frozen=True, slots=True, eq=False)
class ChangeMap:
    """M_δv, of shape (z, m), for a space of m inputs over z answers.

    answers: z. old, new: the states of each input, shape (m,).
    """

    answers: int
    old: NDArray[np.intp]
    new: NDArray[np.intp]

    def apply(self, weights: Floats) -> Floats:
        """M_δv w: shape (m,) to shape (z,)."""
        d = self.answers + 1
        return (_sums(self.new, weights, d) - _sums(self.old, weights, d))[1:]

    def sandwich(self, weights: Floats) -> Floats:
        """M_δv diag(w) M_δv': shape (m,) to shape (z, z)."""
        d = self.answers + 1
        W = _sums(self.old * d + self.new, weights, d * d).reshape(d, d)
        return (np.diag(W.sum(0) + W.sum(1)) - W - W.T)[1:, 1:]


@lru_cache(maxsize=64)
def change_map(space: Space) -> ChangeMap:
    """The M_δv of a space."""
    old, new = np.array([space.pair(index) for index in range(space.size)], dtype=np.intp).T
    return ChangeMap(space.answers, old, new)


def _sums(index: NDArray[np.intp], weights: Floats, size: int) -> Floats:
    return np.bincount(index, weights, size).astype(np.float64, copy=False)

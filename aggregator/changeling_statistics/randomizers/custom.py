"""Custom randomizers: everything is read off their matrix P, decoded by a left inverse. The planner offers none."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import CustomResponse
from numpy.typing import NDArray

from ..estimate import Estimate, Floats, NodeTally
from .counted import CountedCounterpart
from .counterpart import R_co, change_map, register_counterpart

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Listed(CountedCounterpart[R_co]):
    """The decoder A = M_δv (P'D⁻¹P)⁺P'D⁻¹, D the diagonal of the mean of P's columns.

    Of all unbiased decoders it has the least variance if all inputs are equally frequent. It is dense, and takes
    O(symbols·m²) steps once.
    """

    def estimate(self, tally: NodeTally) -> Estimate:
        """A O, with the covariance A diag(O) A' - M_δv diag(ŝ) M_δv'.

        If the symbols do not tell the last term it is left out, and the covariance is an upper bound.
        Raises ValueError if there is no unbiased decoder.
        """
        O = tally.slots.astype(np.float64)
        covariance = (self._weights * O) @ self._weights.T
        if self._identified:
            covariance = covariance - (self._map * (self._inverse @ O)) @ self._map.T
        return Estimate(self._weights @ O, covariance, not self._identified)

    def report_covariance(self, true: int) -> Floats:
        """A diag(P's column) A' - δδ'."""
        old, new = self.randomizer.space.pair(true)
        delta = np.zeros(self.randomizer.space.answers + 1)
        delta[new] += 1
        delta[old] -= 1
        covariance: Floats = (self._weights * self.probabilities[true]) @ self._weights.T
        return covariance - np.outer(delta[1:], delta[1:])

    @cached_property
    def _identified(self) -> bool:
        """True if M_δv diag(s) M_δv' can be estimated without bias from the symbols."""
        products = (self._map[:, None] * self._map[None, :]).reshape(-1, self._map.shape[1])
        return _same(products @ self._inverse @ self._matrix, products)

    @cached_property
    def _possible(self) -> NDArray[np.intp]:
        """The inputs that occur: all but the paper's pairs (r, r), which are reported as no change."""
        inputs, pairs = np.arange(self.randomizer.space.size), change_map(self.randomizer.space)
        possible = (inputs == 0) | (pairs.old != pairs.new) | (not self.randomizer.space.reports_changes)
        return np.flatnonzero(possible)

    @cached_property
    def _matrix(self) -> Floats:
        """P, shape (symbols, possible inputs)."""
        return np.ascontiguousarray(self.probabilities.T)[:, self._possible]

    @cached_property
    def _map(self) -> Floats:
        """M_δv, shape (z, possible inputs)."""
        pairs, z = change_map(self.randomizer.space), self.randomizer.space.answers
        states = np.eye(z + 1)
        return (states[:, pairs.new] - states[:, pairs.old])[1:, self._possible]

    @cached_property
    def _inverse(self) -> Floats:
        """(P'D⁻¹P)⁺P'D⁻¹, by way of the pseudo-inverse of D^(-1/2)P."""
        root = np.sqrt(self._matrix.mean(1))
        inverse: Floats = np.linalg.pinv(self._matrix / root[:, None], rcond=1e-12) / root
        return inverse

    @cached_property
    def _weights(self) -> Floats:
        """A, shape (z, symbols)."""
        weights = self._map @ self._inverse
        if not _same(weights @ self._matrix, self._map):
            raise ValueError(
                "this randomizer cannot be decoded without bias: two mixtures of inputs that change the histogram "
                "differently send the same symbols equally often"
            )
        return weights


def _same(product: Floats, wanted: Floats) -> bool:
    return bool(np.abs(product - wanted).max() < _TOLERANCE)


register_counterpart(CustomResponse, Listed)

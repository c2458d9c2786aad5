"""Decoding k-ary randomized response: a closed form, O(m), never a matrix over the alphabet."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import KaryResponse

from ...tallies import NodeTally
from ..change_map import ChangeMap, change_map
from ..estimate import Estimate, Floats
from .inputs import mean_over_kinds


@dataclass(frozen=True)
class KaryDecoder:
    """A's column of symbol o is (M_o - q·U) / (p - q) with U = M_δv 1, which spares the matrix P⁻¹."""

    randomizer: KaryResponse

    def __post_init__(self) -> None:
        odds = self.randomizer.odds
        if odds.favoured == odds.other:
            raise ValueError(f"odds of {odds.favoured}:{odds.other} say nothing: choose favoured > other")

    def input_counts(self, tally: NodeTally) -> Floats:
        """ŝ = P⁻¹O = (O - n·q) / (p - q), shape (m,)."""
        return (tally.slots.astype(np.float64) - tally.reports * self._q) / self._gap

    def estimate(self, tally: NodeTally) -> Estimate:
        q, M, U = self._q, self._map, self._sum
        O, s = tally.slots.astype(np.float64), self.input_counts(tally)
        cross = q * np.outer(M.apply(O), U)
        ADA = (M.sandwich(O) - cross - cross.T + q * q * tally.reports * np.outer(U, U)) / self._gap**2
        return Estimate(M.apply(s), ADA - M.sandwich(s))

    def report_covariance(self, true: int) -> Floats:
        """{ q·M M' + (p-q) δδ' - μμ' } / (p-q)²,  μ = q·U + (p-q) δ."""
        self.randomizer.space.pair(true)
        delta = self._map.apply(np.eye(1, self.randomizer.symbols, true)[0])
        mean = self._q * self._sum + self._gap * delta
        second = self._q * self._square + self._gap * np.outer(delta, delta)
        return (second - np.outer(mean, mean)) / self._gap**2

    def mean_variances(self) -> tuple[float, float]:
        return mean_over_kinds(self.randomizer.space, self._mean_variance)

    def _mean_variance(self, shares: Floats) -> float:
        """The variance averaged over answers and over inputs with these shares, shape (m,)."""
        first, second = self._map.apply(shares), np.diag(self._map.sandwich(shares))
        q, gap, U = self._q, self._gap, self._sum
        square = q * np.diag(self._square) + gap * second
        mean_squared = q * q * U * U + 2 * q * gap * U * first + gap * gap * second
        return float((square - mean_squared).mean() / gap**2)

    @property
    def _q(self) -> float:
        return self.randomizer.odds.other / self.randomizer.total()

    @property
    def _gap(self) -> float:
        """p - q, without cancellation."""
        return (self.randomizer.odds.favoured - self.randomizer.odds.other) / self.randomizer.total()

    @property
    def _map(self) -> ChangeMap:
        return change_map(self.randomizer.space)

    @cached_property
    def _sum(self) -> Floats:
        return self._map.apply(np.ones(self.randomizer.symbols))

    @cached_property
    def _square(self) -> Floats:
        return self._map.sandwich(np.ones(self.randomizer.symbols))

"""Reports that name some states, and the state that the entry holds more often than others: sets and bits.

They are decoded from how often each state was named.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate import Estimate, Floats
from ..tallies import Counts, NodeTally
from .counterpart import R_co
from .likelihoods import PairKind, one_pair
from .symbol_contents import WithContents


@dataclass(frozen=True, slots=True)
class Naming:
    """How likely a report names states.

    held: p, that it names the state the entry holds.
    other: q, that it names a certain other state.
    held_other: that it names both the state held and a certain other one.
    others: that it names two certain other states.
    """

    held: float
    other: float
    held_other: float
    others: float


@dataclass(frozen=True)
class NamedStates(WithContents[R_co]):
    """Decodes how often each state was named, S_v, to ŝ_v = (S_v - n·q) / (p - q), how many entries hold it.

    The covariance is Σ_v ŝ_v C_v, where C_v is that of one report of the state v. It is unbiased, as S tells ŝ.
    """

    answers_alike = True

    @property
    @abstractmethod
    def naming(self) -> Naming:
        """How likely a report names states."""

    @property
    def sum_slots(self) -> int:
        """One for each state."""
        return self.randomizer.space.size

    def added_up(self, symbols: NDArray[np.uint64]) -> Counts:
        """How many of the reports name each state."""
        named: Counts = np.count_nonzero(self.contents(symbols), axis=0).astype(np.int64)
        return named

    def estimate(self, tally: NodeTally) -> Estimate:
        """ŝ of the answers, and Σ_v ŝ_v C_v."""
        named = tally.slots.astype(np.float64)
        if self.counts_symbols:
            named = named @ self.all_contents
        p, q = self.naming.held, self.naming.other
        counts = (named - tally.reports * q) / (p - q)
        return Estimate(counts[self._answers], self._covariance(counts, tally.reports))

    def report_covariance(self, true: int) -> Floats:
        """C_v of the state v."""
        self.randomizer.space.pair(true)  # raises outside the space
        return self._covariance(np.eye(1, self.randomizer.space.size, true)[0], 1)

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """One pair, as all are told apart equally well."""
        return one_pair(self.randomizer.space, kind)

    def _covariance(self, counts: Floats, reports: int) -> Floats:
        """Σ_v counts_v C_v, shape (z, z).

        counts: how many of the reports are of each state, shape (m,). reports: how many there are in all.
        """
        named = self.naming
        p, q = named.held, named.other
        pairs = counts[:, None] + counts[None, :]
        covariance = pairs * (named.held_other - p * q) + (reports - pairs) * (named.others - q * q)
        np.fill_diagonal(covariance, counts * p * (1 - p) + (reports - counts) * q * (1 - q))
        within: Floats = covariance[self._answers, self._answers] / (p - q) ** 2
        return within

    @property
    def _answers(self) -> slice:
        """The states without NULL."""
        return slice(self.randomizer.space.size - self.randomizer.space.answers, None)

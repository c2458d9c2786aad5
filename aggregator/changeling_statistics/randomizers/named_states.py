"""Sets and bits: a state is named more often by those who hold it, so counting names decodes them."""

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
    """Probabilities that a report names an input: `held` the truth, `other` another; two at once: `held_other`
    the truth and another, `others` two others."""

    held: float
    other: float
    held_other: float
    others: float


@dataclass(frozen=True)
class NamedStates(WithContents[R_co]):
    """ŝ = (S - n·q) / (p - q), S how often each input was named, p and q how often if it is held, or not.

    The covariance is Σ_v s_v C_v, C_v that of one report from the input v: exact, as S identifies s.
    """

    answers_alike = True

    @property
    @abstractmethod
    def naming(self) -> Naming: ...

    @property
    def sum_slots(self) -> int:
        """How many reports named each input."""
        return self.randomizer.space.size

    def added_up(self, symbols: NDArray[np.uint64]) -> Counts:
        named: Counts = np.count_nonzero(self.contents(symbols), axis=0).astype(np.int64)
        return named

    def estimate(self, tally: NodeTally) -> Estimate:
        named = tally.slots.astype(np.float64)
        if self.counts_symbols:
            named = named @ self.all_contents
        p, q = self.naming.held, self.naming.other
        counts = (named - tally.reports * q) / (p - q)
        return Estimate(counts[self._answers], self._covariance(counts, tally.reports))

    def report_covariance(self, true: int) -> Floats:
        self.randomizer.space.pair(true)
        return self._covariance(np.eye(1, self.randomizer.space.size, true)[0], 1)

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        return one_pair(self.randomizer.space, kind)

    def _covariance(self, counts: Floats, reports: int) -> Floats:
        """Σ_v counts_v C_v over the answers, shape (z, z), of so many reports in all."""
        named = self.naming
        p, q = named.held, named.other
        pairs = counts[:, None] + counts[None, :]
        covariance = pairs * (named.held_other - p * q) + (reports - pairs) * (named.others - q * q)
        np.fill_diagonal(covariance, counts * p * (1 - p) + (reports - counts) * q * (1 - q))
        within: Floats = covariance[self._answers, self._answers] / (p - q) ** 2
        return within

    @property
    def _answers(self) -> slice:
        """The inputs that are answers; NULL is none."""
        return slice(self.randomizer.space.size - self.randomizer.space.answers, None)

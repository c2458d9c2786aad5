"""Decoding sets and bits: a state is named more often by those who hold it, so counting names is enough."""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from changeling_protocol import SubsetSelection, UnaryEncoding

from ...symbol_contents import all_contents
from ...tallies import NodeTally, counts_symbols
from ..estimate import Estimate, Floats


@dataclass(frozen=True, slots=True)
class Naming:
    """Probabilities that a report names an input: `held` the truth, `other` another; two at once: `held_other`
    the truth and another, `others` two others."""

    held: float
    other: float
    held_other: float
    others: float


@dataclass(frozen=True)
class StateDecoder:
    """ŝ = (S - n·q) / (p - q), S how often each input was named, p and q how often if it is held, or not.

    The covariance is Σ_v s_v C_v, C_v that of one report from the input v: exact, as S identifies s.
    """

    randomizer: SubsetSelection | UnaryEncoding

    def estimate(self, tally: NodeTally) -> Estimate:
        named = tally.slots.astype(np.float64)
        if counts_symbols(self.randomizer):
            named = named @ all_contents(self.randomizer)
        p, q = self._naming.held, self._naming.other
        counts = (named - tally.reports * q) / (p - q)
        return Estimate(counts[self._answers], self._covariance(counts, tally.reports))

    def report_covariance(self, true: int) -> Floats:
        self.randomizer.space.pair(true)
        return self._covariance(np.eye(1, self.randomizer.space.size, true)[0], 1)

    def mean_variances(self) -> tuple[float, float]:
        m, p, q = self.randomizer.space.size, self._naming.held, self._naming.other
        mean = (p * (1 - p) / m + q * (1 - q) * (1 - 1 / m)) / (p - q) ** 2
        return mean, mean

    def _covariance(self, counts: Floats, reports: int) -> Floats:
        """Σ_v counts_v C_v over the answers, shape (z, z), of so many reports in all."""
        named = self._naming
        p, q = named.held, named.other
        pairs = counts[:, None] + counts[None, :]
        covariance = pairs * (named.held_other - p * q) + (reports - pairs) * (named.others - q * q)
        np.fill_diagonal(covariance, counts * p * (1 - p) + (reports - counts) * q * (1 - q))
        within: Floats = covariance[self._answers, self._answers] / (p - q) ** 2
        return within

    @property
    def _answers(self) -> slice:
        """The inputs that are answers; NULL is none."""
        return slice(int(self.randomizer.space.null), None)

    @cached_property
    def _naming(self) -> Naming:
        randomizer, m = self.randomizer, self.randomizer.space.size
        a, b = randomizer.odds.favoured, randomizer.odds.other
        if isinstance(randomizer, UnaryEncoding):
            q = b / (a + b)
            return Naming(held=0.5, other=q, held_other=0.5 * q, others=q * q)
        size, total = randomizer.chosen, randomizer.total()
        return Naming(
            held=a * _sets(m - 1, size - 1) / total,
            other=(a * _sets(m - 2, size - 2) + b * _sets(m - 2, size - 1)) / total,
            held_other=a * _sets(m - 2, size - 2) / total,
            others=(a * _sets(m - 3, size - 3) + b * _sets(m - 3, size - 2)) / total,
        )


def _sets(of: int, size: int) -> int:
    return comb(of, size) if of >= 0 and size >= 0 else 0

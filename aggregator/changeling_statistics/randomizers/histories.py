"""What histories add to the statistics: the law of one report, and how the reports of a possible history covary.

With probability γ an entry of a history group tells the truth at all times; else it sends a possible history that has
nothing to do with its own, the base. So a report by itself is the truth, or else a state as the base has it at that
time. And two reports y and y' of one entry, decoded, covary by

    Cov(y, y') = (1 - γ)/γ · (h - B)(h' - B')ᵀ + (1 - γ)/γ² · C

h is the state as a unit vector, B the base's mean there, and C the covariance of the base between the two times, which
is known whatever anybody holds. docs/histories.md.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from changeling_protocol import BasedResponse, Group, History, HistoryKernel, PossibleHistories

from ..estimate import Counts, Estimate, Floats, NodeTally
from .counted import CountedCounterpart
from .counterpart import PairKind, register_counterpart


@dataclass(frozen=True)
class BasedCounterpart(CountedCounterpart[BasedResponse]):
    """The counterpart of a state that is told, or else drawn from a base: v̂ = (O - n·q) / γ, answer by answer.

    q is how often the base is sent, and is an answer: `answer` over the sum of the weights.
    """

    answers_alike = True

    @property
    def told(self) -> float:
        """γ, how likely the truth is told."""
        return self.randomizer.truth / self.randomizer.total()

    @property
    def _q(self) -> float:
        return self.randomizer.answer / self.randomizer.total()

    def estimate(self, tally: NodeTally) -> Estimate:
        """The values, with the covariance A diag(O) A' - diag(v̂)."""
        values: Floats = (tally.slots[1:].astype(np.float64) - tally.reports * self._q) / self.told
        return Estimate(values, self.squares(tally) - np.diag(values))

    def squares(self, tally: NodeTally) -> Floats:
        """{ diag(O) - O q' - q O' + n q q' } / γ²."""
        O, q = tally.slots[1:].astype(np.float64), self._q
        squares: Floats = (np.diag(O) - q * (O[:, None] + O[None, :]) + tally.reports * q * q) / self.told**2
        return squares

    def report_covariance(self, true: int) -> Floats:
        """{ diag(p) - p p' } / γ², p being how likely each answer is sent."""
        self.randomizer.space.pair(true)  # raises outside the space
        p = self._q + self.told * np.eye(self.randomizer.symbols)[true, 1:]
        covariance: Floats = (np.diag(p) - np.outer(p, p)) / self.told**2
        return covariance

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:  # noqa: ARG002
        """NULL against an answer, an answer against NULL, and one answer against another."""
        return [(0, 1), (1, 0), (1, 2)][: 3 if self.randomizer.space.answers > 1 else 2]

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """A report is the truth with probability γ, and else drawn from the base."""
        kept: Counts = generator.binomial(counts, self.told)
        base = np.full(self.randomizer.symbols, float(self.randomizer.answer))
        base[0] = self.randomizer.null
        others: Counts = generator.multinomial(counts.sum(1) - kept.sum(1), base / base.sum())
        return kept + others


register_counterpart(BasedResponse, BasedCounterpart)


@dataclass(frozen=True)
class HistoryBase:
    """The base of a history group's reports: what is known of them, whatever its entries hold.

    kernel: the distribution of its histories.
    """

    kernel: HistoryKernel

    @classmethod
    def of(cls, group: Group) -> "HistoryBase | None":
        """The base of a group; None if it is no history group."""
        return _base(group.histories) if isinstance(group.joint, History) else None

    @cached_property
    def rho(self) -> float:
        """(1 - γ)/γ, by which what two reports of one entry tell about the base's mean covaries."""
        told = self.kernel.told
        return float((1 - told) / told)

    @cached_property
    def scatter(self) -> tuple[Floats, Floats]:
        """(1 - γ)/γ² · C between two times, for one answer and for two different ones, each of shape (m, m).

        In entries squared, of one entry; 0 on the diagonal, as one report's own variance is its randomizer's.
        """
        d, r = self.kernel.possible.states, self.returns
        if self.kernel.possible.null:
            g, between = r[0, 1:], r[1:, 1:]
            mean = (1 - g) / d
            earlier = np.minimum.outer(np.arange(len(g)), np.arange(len(g)))
            first, last = g[earlier], g[np.maximum.outer(np.arange(len(g)), np.arange(len(g)))]
            same = (1 - first + (d - 1) * (between - last)) / d**2 - np.outer(mean, mean)
            other = (1 - first - between + last) / d**2 - np.outer(mean, mean)
        else:
            same, other = (d - 1) / d**2 * r[1:, 1:], -1 / d**2 * r[1:, 1:]
        scale = float((1 - self.kernel.told) / self.kernel.told**2)
        np.fill_diagonal(same, 0.0)
        np.fill_diagonal(other, 0.0)
        return scale * same, scale * other

    @cached_property
    def returns(self) -> Floats:
        """E (-1/(d - 1))^c for the changes c that the base shows between two of the times 0..m, symmetric.

        In a closed cohort row and column 0 have no meaning, and are 1.
        """
        possible, m = self.kernel.possible, self.kernel.possible.times
        returns, count = np.ones((m + 1, m + 1)), possible.count
        if possible.null and possible.limits.span == m - 1 and not possible.limits.either:
            by_length = np.array([possible.alternating(0, length) / count for length in range(m + 1)])
            returns[:] = by_length[np.abs(np.subtract.outer(np.arange(m + 1), np.arange(m + 1)))]
            return returns
        whole = np.full((m + 1, m + 1), 1 / count) if possible.null else np.zeros((m + 1, m + 1))
        for first in range(1, m + 1 if possible.null else 2):
            whole += _after_first(possible, first, count)
        upper = np.triu(whole, 1)
        returns[:] = upper + upper.T + np.eye(m + 1)
        if not possible.null:
            returns[0] = returns[:, 0] = 1.0
        return returns


@lru_cache(maxsize=256)
def _base(kernel: HistoryKernel) -> HistoryBase:
    return HistoryBase(kernel)


def _after_first(possible: PossibleHistories, first: int, count: int) -> Floats:
    """The part of `returns` by histories whose first answer is in a report, for start < end; shape (m + 1, m + 1)."""
    m = possible.times
    gone = np.clip(np.arange(m + 1) - first, 0, None)
    counted = np.minimum(gone, possible.limits.span)
    inside, within = (np.maximum(0, each[None, :] - each[:, None]) for each in (gone, counted))
    codes = inside * (m + 1) + within
    ways = np.zeros((m + 1) ** 2)
    for code in np.flatnonzero(np.bincount(codes.ravel())).tolist():
        ways[code] = possible.answered(first, *divmod(code, m + 1)) / count
    if not possible.null:
        every: Floats = possible.states * ways[codes]
        return every
    times = np.arange(m + 1)
    shown = (times[:, None] < first) & (first <= times[None, :])
    signed: Floats = np.where(shown, -1.0, possible.states - 1.0) * ways[codes]
    return signed

"""Private multiplicative weights: many linear queries from one synthetic dataset, whose error grows with the size.

Guarantee: (epsilon, delta) for all answers of one release together; delta = 0 is pure. Neighbours: datasets that
differ by one item; so the size is private, and measured first. Each round finds a query that the synthetic dataset
answers badly (report noisy max), measures it, and reweights. delta = 0: budgets of rounds add up; delta > 0: they add
up as zCDP, an epsilon-private choice being epsilon²/2-zCDP.
Source: Hardt, Rothblum 2010; Hardt, Ligett, McSherry 2012; Dwork, Roth 2014, claim 3.9 (report noisy max, scale
2/epsilon as scores may move either way); Bun, Steinke 2016. The answers are biased: they come from what the weights
know so far.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log, sqrt

import numpy as np
from changeling_statistics import Counts, Floats

from ..concentrated import ABOVE, concentrated_budget, gaussian_scale
from ..node_noise import calibrated
from ..noise import Noise
from .interface import check_price
from .linear import QueryTable

SIZE_SHARE = Fraction(1, 4)
"""Of the budget: what the size costs."""
PASSES = 20
"""How often the measurements are gone over after each round; costs no privacy."""


@dataclass(frozen=True, slots=True)
class Scales:
    """How much noise each step gets.

    size: on the dataset's size. choice: on each score of a round. measurement: on the query that a round chose.
    gaussian: whether size and measurement are of Gaussian noise; scores are always of Laplace noise.
    """

    size: float
    choice: float
    measurement: float
    gaussian: bool


@dataclass(frozen=True, slots=True)
class PricedWeights:
    """Multiplicative weights at the price (epsilon, delta)."""

    queries: "MultiplicativeWeights"
    epsilon: Fraction
    delta: Fraction

    @property
    def variance(self) -> None:
        """None: the answers come from a fitted dataset, and are biased."""
        return None

    def release(self, data: Counts, noise: Noise) -> Counts:
        """Answers on the reweighted dataset, shape (q,), in multiples of 1/grain.

        Where the noisy size is worth no round, they are those of a flat dataset, and what the rounds would have cost
        measures the size a second time, as a flat dataset is nothing but its size.
        """
        table, weights = self.queries.table, np.zeros(self.queries.items)
        size = self._measured(self.queries.size(data), self.scales(1).size, noise)
        if rounds := self.rounds(size):
            weights = self._fitted(self.queries.truth(data), size, rounds, noise)
            return np.rint(table @ _shares(weights) * size).astype(np.int64)
        again = self._measured(self.queries.size(data), self.rest_scale(), noise)
        trust = (self.rest_scale() / self.scales(1).size) ** 2
        return np.rint(table @ _shares(weights) * (trust * size + again) / (trust + 1)).astype(np.int64)

    def _fitted(self, truth: Counts, size: int, rounds: int, noise: Noise) -> Floats:
        table, grain, scales = self.queries.table, self.queries.grain, self.scales(rounds)
        weights = np.zeros(self.queries.items)
        asked: list[int] = []
        measured: list[float] = []
        for _ in range(rounds):
            answers = np.rint(table @ _shares(weights) * size).astype(np.int64)
            worst = int(np.argmax(np.abs(truth - answers) + noise.laplace(scales.choice, len(table))))
            asked.append(worst)
            measured.append(self._measured(int(truth[worst]), scales.measurement, noise) / grain)
            weights = _reweighted(weights, table[asked] / grain, np.array(measured), size)
        return weights

    def rounds(self, size: int) -> int:
        """How many rounds a dataset of this noisy size is worth: the fit of n√(ln x / rounds) against the noise."""
        n, x, q = max(size, 0), self.queries.items, len(self.queries.table)
        if self.delta == 0:
            worth = (n * float(self.epsilon) * sqrt(log(x)) / (4 * log(q + 1))) ** (2 / 3)
        else:
            worth = n * sqrt(concentrated_budget(self.epsilon, self.delta) * log(x)) / (2 * log(q + 1))
        return min(int(worth), self.queries.most_rounds)

    def scales(self, rounds: int) -> Scales:
        """The noise under which the size and this many rounds cost the price."""
        grain = self.queries.grain
        if self.delta == 0:
            of_size, of_round = self.epsilon * SIZE_SHARE, self.epsilon * (1 - SIZE_SHARE) / rounds
            return Scales(
                calibrated({1: 1}, of_size).scale,
                calibrated({2 * grain: 1}, of_round / 2).scale,
                calibrated({grain: 1}, of_round / 2).scale,
                False,
            )
        rho = concentrated_budget(self.epsilon, self.delta)
        rho_size, of_half = rho * float(SIZE_SHARE), rho * float(1 - SIZE_SHARE) / (2 * rounds)
        return Scales(
            gaussian_scale(1, rho_size),
            2 * grain / sqrt(2 * of_half) * ABOVE,
            gaussian_scale(grain**2, of_half),
            True,
        )

    def rest_scale(self) -> float:
        """Of the noise on the size where all that the rounds would cost is spent on it."""
        if self.delta == 0:
            return calibrated({1: 1}, self.epsilon * (1 - SIZE_SHARE)).scale
        return gaussian_scale(1, concentrated_budget(self.epsilon, self.delta) * float(1 - SIZE_SHARE))

    def _measured(self, value: int, scale: float, noise: Noise) -> int:
        drawn = noise.gaussian(scale, 1) if self.delta else noise.laplace(scale, 1)
        return value + int(drawn[0])


@dataclass(frozen=True, slots=True, eq=False)
class MultiplicativeWeights(QueryTable):
    """Multiplicative weights for the queries of a table. most_rounds: of one release."""

    most_rounds: int = 30

    def __post_init__(self) -> None:
        QueryTable.__post_init__(self)
        if self.most_rounds < 1:
            raise ValueError(f"there must be at least one round, got {self.most_rounds}")

    @property
    def source(self) -> str:
        """Where the guarantee is proved."""
        return "Hardt, Ligett, McSherry 2012; Dwork, Roth 2014, claim 3.9; Bun, Steinke 2016"

    def under(self, epsilon: Fraction, delta: Fraction) -> PricedWeights:
        """The mechanism at (epsilon, delta). ValueError for a delta above 0 that no zCDP implies."""
        check_price(epsilon, delta)
        if delta:
            concentrated_budget(epsilon, delta)
        return PricedWeights(self, epsilon, delta)


def _shares(weights: Floats) -> Floats:
    """A distribution from the logarithms of its weights."""
    raised = np.exp(weights - weights.max())
    shares: Floats = raised / raised.sum()
    return shares


def _reweighted(weights: Floats, asked: Floats, measured: Floats, size: float) -> Floats:
    """ln w += f·(measured - f(w)) / 2n for every measurement, several times over."""
    for _ in range(ceil(PASSES / len(asked))):
        for f, m in zip(asked[::-1], measured[::-1], strict=True):
            weights = weights + f * np.clip((m - size * float(f @ _shares(weights))) / (2 * size), -1, 1)
    return weights

"""Sets of linear queries, each answer with its own noise: the queries are composed.

Guarantee: (epsilon, delta) for all answers of one release together. Laplace noise is of scale max_x Σ_q f_q(x) over
epsilon (basic composition, sharpened to what one item can do to all queries), Gaussian noise of L2 length
max_x √Σ_q f_q(x)² under concentrated composition. Neighbours: datasets that differ by one item.
Source: Qiu, Yi, appendix A.1; Canonne, Kamath, Steinke 2020.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from changeling_statistics import Counts

from ..concentrated import concentrated_budget, gaussian_scale
from ..node_noise import Law, NodeNoise, calibrated
from ..noise import Noise
from .interface import check_price


@dataclass(frozen=True, slots=True, eq=False)
class QueryTable:
    """f: q queries of x items as integers 0..grain, in multiples of 1/grain; table: shape (q, x), kept as a copy."""

    table: Counts
    grain: int = 1

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or 0 in self.table.shape or self.table.dtype.kind not in "iu":
            raise ValueError(f"a table of queries is integers of shape (q, x), got {self.table.shape}")
        if self.grain < 1 or self.table.min() < 0 or self.table.max() > self.grain:
            raise ValueError(f"queries lie between 0 and the grain {self.grain}, got {self.table.min()} and more")
        if not self.table.any():
            raise ValueError("every query is 0 of every item: there is nothing to ask")
        if self.grain**2 * len(self.table) >= 2**63:  # sums of squares would wrap, and understate what an item does
            raise ValueError(f"a grain of {self.grain} is too fine for {len(self.table)} queries in 64 bits")
        table = self.table.astype(np.int64)
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    @property
    def items(self) -> int:
        """How many items there are, x."""
        return int(self.table.shape[1])

    def gathered(self, items: list[int]) -> Counts:
        """The histogram of these items, shape (x,)."""
        return np.bincount(np.asarray(items, np.int64), minlength=self.items).astype(np.int64)

    def size(self, data: Counts) -> int:
        """How many items the histogram counts."""
        return int(data.sum())

    def checked(self, data: Counts) -> Counts:
        """The dataset as int64. ValueError for what is no histogram of the items."""
        histogram = np.asarray(data)
        if histogram.shape != (self.items,) or histogram.dtype.kind not in "iu":
            raise ValueError(f"a dataset is a histogram of {self.items} items, got shape {histogram.shape}")
        return histogram.astype(np.int64)

    def zero(self) -> Counts:
        """Answers on no items, shape (q,)."""
        return np.zeros(len(self.table), np.int64)

    def truth(self, data: Counts) -> Counts:
        """Answers without noise, shape (q,), in multiples of 1/grain."""
        answers: Counts = self.table @ data
        return answers


@dataclass(frozen=True, slots=True)
class PricedQueries:
    """The queries of a table, each answer with noise of its own from `drawn`."""

    queries: QueryTable
    drawn: NodeNoise

    @property
    def variance(self) -> float:
        """Of each answer, in multiples of 1/grain squared."""
        return self.drawn.variance

    def release(self, data: Counts, noise: Noise) -> Counts:
        """The noisy answers, shape (q,)."""
        return self.queries.truth(data) + self.drawn.draw(noise, len(self.queries.table))


@dataclass(frozen=True, slots=True, eq=False)
class LinearQueries(QueryTable):
    """All the queries of a table, with noise of one law."""

    law: Law = Law.LAPLACE
    _moved: int = field(init=False)
    _squared: int = field(init=False)

    def __post_init__(self) -> None:
        QueryTable.__post_init__(self)
        object.__setattr__(self, "_moved", int(self.table.sum(0).max()))
        object.__setattr__(self, "_squared", int((self.table**2).sum(0).max()))

    @property
    def source(self) -> str:
        """Where the guarantee is proved."""
        return "Qiu, Yi, appendix A.1; Canonne, Kamath, Steinke 2020"

    def under(self, epsilon: Fraction, delta: Fraction) -> PricedQueries:
        """All the queries at (epsilon, delta). ValueError for Gaussian noise without a delta."""
        check_price(epsilon, delta)
        if self.law is Law.LAPLACE:
            return PricedQueries(self, calibrated({self._moved: 1}, epsilon))
        scale = gaussian_scale(self._squared, concentrated_budget(epsilon, delta))
        return PricedQueries(self, NodeNoise(Law.GAUSSIAN, scale))

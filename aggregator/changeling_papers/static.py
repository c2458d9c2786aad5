"""Static mechanisms: linear queries of one dataset, behind one interface that every dynamic mechanism takes.

    BasicCounting           how many items there are; Laplace or Gaussian noise
    LinearQueries           a table of queries, each answer with noise of its own (the queries are composed)
    MultiplicativeWeights   many queries, answered from one synthetic dataset that is fitted to a few measurements
    Metered                 any of them as a `Mechanism`, asked again and again until its odometer refuses

Guarantee: (epsilon, delta) for all answers of one release together. Neighbours: datasets that differ by one item.
Sources: Dwork, McSherry, Nissim, Smith 2006; Qiu, Yi, appendix A.1; Canonne, Kamath, Steinke 2020; Hardt, Rothblum
2010; Hardt, Ligett, McSherry 2012; Dwork, Roth 2014, claim 3.9; Bun, Steinke 2016.

A dataset is its histogram over the items 0..x-1, or one number where there is but one item; answers are integers, so
that they add up exactly over disjoint datasets, and states hold no floats.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, log, sqrt
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
from changeling_central import (
    ABOVE,
    BadState,
    BudgetExhausted,
    Law,
    Mechanism,
    NodeNoise,
    Noise,
    calibrated,
    check_counts,
    concentrated_budget,
    gaussian_scale,
    whole,
)
from changeling_statistics import Counts, Floats

if TYPE_CHECKING:
    Data = TypeVar("Data", int, Counts)
    """A dataset, or answers: a number, or counts of shape (x,) and (q,)."""
else:
    Data = TypeVar("Data")  # msgspec reads states by their types, and knows no constraints

NEIGHBOURS = "datasets that differ by one item"


@dataclass(frozen=True, slots=True)
class Odometer:
    """A budget and what is spent of it, added up exactly (basic composition). Charging returns a new odometer.

    epsilon, delta: the budget. spent_epsilon, spent_delta: the cost of what was released. ValueError unless epsilon > 0
    and 0 <= delta < 1.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    spent_epsilon: Fraction = Fraction(0)
    spent_delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        check_price(self.epsilon, self.delta)

    def charged(self, epsilon: Fraction, delta: Fraction = Fraction(0)) -> "Odometer":
        """The odometer after a release of this cost. Raises BudgetExhausted where it is more than what is left."""
        if epsilon < 0 or delta < 0:
            raise ValueError(f"a cost is not negative, got {epsilon} and {delta}")
        after = replace(self, spent_epsilon=self.spent_epsilon + epsilon, spent_delta=self.spent_delta + delta)
        if after.spent_epsilon > self.epsilon or after.spent_delta > self.delta:
            raise BudgetExhausted(
                f"this release costs epsilon {float(epsilon):g}, delta {float(delta):g}; left are "
                f"{float(self.epsilon - self.spent_epsilon):g} and {float(self.delta - self.spent_delta):g}"
            )
        return after


class Priced(Protocol[Data]):
    """A static mechanism at its price."""

    @property
    def variance(self) -> float | None:
        """Variance of every answer, in units squared; None where answers are not the truth and independent noise."""
        ...

    def release(self, data: Data, noise: Noise) -> Data:
        """Answers on this dataset. Every call costs the price."""
        ...


class Static(ABC, Generic[Data]):
    """Linear queries f(D) = Σ_{x in D} f(x), to which a price is put before anything is released."""

    __slots__ = ()

    @property
    @abstractmethod
    def items(self) -> int:
        """The number of items, x."""

    @abstractmethod
    def gathered(self, items: list[int]) -> Data:
        """The dataset of these items."""

    def size(self, data: Data) -> int:
        """The number of items that the dataset holds."""
        return int(np.sum(data))

    @abstractmethod
    def checked(self, data: Data) -> Data:
        """The dataset, if it is one. ValueError for anything else."""

    def zero(self) -> Data:
        """Answers on the empty dataset."""
        return self.truth(self.gathered([]))

    @abstractmethod
    def truth(self, data: Data) -> Data:
        """Answers without noise."""

    @abstractmethod
    def under(self, epsilon: Fraction, delta: Fraction) -> Priced[Data]:
        """The mechanism at (epsilon, delta). ValueError where it cannot be had at this price."""


def check_price(epsilon: Fraction, delta: Fraction) -> None:
    """ValueError unless epsilon > 0 and 0 <= delta < 1."""
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ValueError(f"a price has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")


def check_like(like: Data, *values: Data) -> None:
    """Raises BadState unless the values of a state are of the kind and the shape of this one."""
    for value in values:
        if isinstance(like, int):
            if type(value) is not int:
                raise BadState(f"the state holds a {type(value).__name__} where a whole number belongs")
        elif isinstance(value, int) or not hasattr(value, "dtype"):
            raise BadState(f"the state holds a {type(value).__name__} where an array belongs")
        else:
            check_counts(value, like.shape)


def _noise_under(law: Law, moved: int, squares: int, epsilon: Fraction, delta: Fraction) -> NodeNoise:
    """The noise of a law at a price; one item moves the answers by `moved` in L1 and √squares in L2 length.

    Laplace noise uses no delta. ValueError for Gaussian noise without a delta.
    """
    check_price(epsilon, delta)
    if law is Law.LAPLACE:
        return calibrated({moved: 1}, epsilon)
    return NodeNoise(Law.GAUSSIAN, gaussian_scale(squares, concentrated_budget(epsilon, delta)))


@dataclass(frozen=True, slots=True)
class Noisy(Generic[Data]):
    """The answers of `static`, each with noise of its own from `drawn`."""

    static: "Static[Data]"
    drawn: NodeNoise

    @property
    def variance(self) -> float:
        """Variance of each answer, in units squared."""
        return self.drawn.variance

    def release(self, data: Data, noise: Noise) -> Data:
        """The noisy answers, which may be negative."""
        truth = self.static.truth(data)
        drawn = self.drawn.draw(noise, np.size(truth))
        return truth + (int(drawn[0]) if isinstance(truth, int) else drawn)


@dataclass(frozen=True, slots=True)
class BasicCounting(Static[int]):
    """The number of items, of which there is one kind: a dataset is its size."""

    law: Law = Law.LAPLACE

    @property
    def items(self) -> int:
        """One: items are not told apart."""
        return 1

    def gathered(self, items: list[int]) -> int:
        """The number of these items."""
        return len(items)

    def checked(self, data: int) -> int:
        """The dataset. ValueError for what is no whole number."""
        size = whole(data)
        if size is None:
            raise ValueError(f"the dataset of basic counting is a whole number, got a {type(data).__name__}")
        return size

    def truth(self, data: int) -> int:
        """The size."""
        return data

    def under(self, epsilon: Fraction, delta: Fraction) -> Noisy[int]:
        """Counting at (epsilon, delta). ValueError for Gaussian noise without a delta."""
        return Noisy(self, _noise_under(self.law, 1, 1, epsilon, delta))


@dataclass(frozen=True, slots=True, eq=False)
class QueryTable(Static[Counts]):
    """f: what each of x items counts for in q queries, whole numbers from 0 on; table: shape (q, x), kept as a copy."""

    table: Counts

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or 0 in self.table.shape or self.table.dtype.kind not in "iu":
            raise ValueError(f"a table of queries is integers of shape (q, x), got {self.table.shape}")
        if self.table.min() < 0:
            raise ValueError(f"an item counts for 0 or more, got {self.table.min()}")
        if not self.table.any():
            raise ValueError("every query is 0 of every item: there is nothing to ask")
        if self.most**2 * len(self.table) >= 2**63:  # sums of squares would wrap, and understate what an item does
            raise ValueError(f"items that count for {self.most} are too much for {len(self.table)} queries in 64 bits")
        table = self.table.astype(np.int64)
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    @property
    def most(self) -> int:
        """The most that an item counts for in a query."""
        return int(self.table.max())

    @property
    def items(self) -> int:
        """The number of items, x."""
        return int(self.table.shape[1])

    def gathered(self, items: list[int]) -> Counts:
        """The histogram of these items, shape (x,)."""
        return np.bincount(np.asarray(items, np.int64), minlength=self.items).astype(np.int64)

    def checked(self, data: Counts) -> Counts:
        """The dataset as int64. ValueError for what is no histogram of the items."""
        histogram = np.asarray(data)
        if histogram.shape != (self.items,) or histogram.dtype.kind not in "iu":
            raise ValueError(f"a dataset is a histogram of {self.items} items, got shape {histogram.shape}")
        return histogram.astype(np.int64)

    def truth(self, data: Counts) -> Counts:
        """Answers without noise, shape (q,)."""
        answers: Counts = self.table @ data
        return answers


@dataclass(frozen=True, slots=True, eq=False)
class LinearQueries(QueryTable):
    """All the queries of a table, with noise of one law.

    Laplace noise is for max_x Σ_q f_q(x), what one item can do to all queries; Gaussian noise for the L2 length
    max_x √Σ_q f_q(x)², under concentrated composition.
    """

    law: Law = Law.LAPLACE

    def under(self, epsilon: Fraction, delta: Fraction) -> Noisy[Counts]:
        """All the queries at (epsilon, delta). ValueError for Gaussian noise without a delta."""
        moved, squares = int(self.table.sum(0).max()), int((self.table**2).sum(0).max())
        return Noisy(self, _noise_under(self.law, moved, squares, epsilon, delta))


SIZE_SHARE = Fraction(1, 4)
"""The part of the budget of multiplicative weights that measures the size."""
PASSES = 20
"""The number of passes over the measurements after each round; costs no privacy."""


@dataclass(frozen=True, slots=True)
class PricedWeights:
    """Multiplicative weights at the price (epsilon, delta).

    The size is private, and measured first. Each round finds a query that the synthetic dataset answers badly (report
    noisy max, scale 2/epsilon as scores may move either way), measures it, and reweights. delta = 0: Laplace noise, and
    budgets of rounds add up; delta > 0: Gaussian measurements, and rounds add up as zCDP, an epsilon-private choice
    being epsilon²/2-zCDP. Answers are biased: they come from what the weights know so far.
    """

    queries: "MultiplicativeWeights"
    epsilon: Fraction
    delta: Fraction

    @property
    def variance(self) -> None:
        """None: the answers come from a fitted dataset, and are biased."""
        return None

    def release(self, data: Counts, noise: Noise) -> Counts:
        """Answers on the reweighted dataset, shape (q,).

        Where the noisy size is worth no round, they are those of a flat dataset, and what the rounds would have cost
        measures the size a second time, as a flat dataset is nothing but its size.
        """
        table, true = self.queries.table, self.queries.size(data)
        size: float = self._measured(true, self.scale(1, SIZE_SHARE), noise)
        weights = np.zeros(self.queries.items)
        if rounds := self.rounds(size):
            weights = self._fitted(self.queries.truth(data), size, rounds, noise)
        else:
            rest = self.scale(1, 1 - SIZE_SHARE)
            again, trust = self._measured(true, rest, noise), (rest / self.scale(1, SIZE_SHARE)) ** 2
            size = (trust * size + again) / (trust + 1)
        return np.rint(table @ _shares(weights) * size).astype(np.int64)

    def _fitted(self, truth: Counts, size: float, rounds: int, noise: Noise) -> Floats:
        table, most, (choice, measurement) = self.queries.table, self.queries.most, self.round_scales(rounds)
        weights = np.zeros(self.queries.items)
        asked: list[int] = []
        measured: list[float] = []
        for _ in range(rounds):
            answers = np.rint(table @ _shares(weights) * size).astype(np.int64)
            worst = int(np.argmax(np.abs(truth - answers) + noise.laplace(choice, len(table))))
            asked.append(worst)
            measured.append(self._measured(int(truth[worst]), measurement, noise) / most)
            weights = _reweighted(weights, table[asked] / most, np.array(measured), size)
        return weights

    def rounds(self, size: float) -> int:
        """The number of rounds that a noisy size is worth: the fit of n√(ln x / rounds) against the noise."""
        n, x, q = max(size, 0), self.queries.items, len(self.queries.table)
        if self.delta == 0:
            worth = (n * float(self.epsilon) * sqrt(log(x)) / (4 * log(q + 1))) ** (2 / 3)
        else:
            worth = n * sqrt(concentrated_budget(self.epsilon, self.delta) * log(x)) / (2 * log(q + 1))
        return min(int(worth), self.queries.most_rounds)

    def scale(self, moved: int, share: Fraction) -> float:
        """The scale of the noise on a number that an item moves by so much, at this share of the price."""
        if self.delta == 0:
            return calibrated({moved: 1}, self.epsilon * share).scale
        return gaussian_scale(moved**2, concentrated_budget(self.epsilon, self.delta) * float(share))

    def round_scales(self, rounds: int) -> tuple[float, float]:
        """The scales, on each score and on the query that is chosen, under which the size and so many rounds cost the
        price; a choice is of Laplace noise at any."""
        half, most = (1 - SIZE_SHARE) / (2 * rounds), self.queries.most
        if self.delta == 0:
            return self.scale(2 * most, half), self.scale(most, half)
        rho = concentrated_budget(self.epsilon, self.delta) * float(half)
        return 2 * most / sqrt(2 * rho) * ABOVE, self.scale(most, half)

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


@dataclass(frozen=True, slots=True)
class Metered(Mechanism[Odometer, Data, Data], Generic[Data]):
    """The answers of `static` on one dataset after another, each at the price (each, each_delta).

    epsilon, delta: the budget of all steps, which an item may differ at together (basic composition). ValueError where
    the answers cannot be had at this price, or not once.
    """

    neighbours = NEIGHBOURS
    source = "Dwork, McSherry, Nissim, Smith 2006; Qiu, Yi, A.1"
    static: Static[Data]
    epsilon: Fraction
    each: Fraction
    delta: Fraction = Fraction(0)
    each_delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self.static.under(self.each, self.each_delta)
        if self.each > self.epsilon or self.each_delta > self.delta:
            raise ValueError(
                f"one step costs epsilon {self.each}, delta {self.each_delta}, more than the budget of {self.epsilon} "
                f"and {self.delta}"
            )

    def start(self) -> Odometer:
        """Nothing is spent."""
        return Odometer(self.epsilon, self.delta)

    def step(self, state: Odometer, value: Data, noise: Noise) -> tuple[Odometer, Data]:
        """value: the dataset. Returns the answers on it.

        Raises BudgetExhausted where the step costs more than what is left, and ValueError for what is no dataset.
        """
        data = self.static.checked(value)
        after = state.charged(self.each, self.each_delta)
        return after, self.static.under(self.each, self.each_delta).release(data, noise)

    def check(self, state: Odometer) -> None:
        """Raises BadState for another budget, or for what so many whole steps do not spend."""
        steps = state.spent_epsilon / self.each
        spent = steps * self.each, steps * self.each_delta
        reached = Odometer(self.epsilon, self.delta, *spent)
        if state != reached or steps.denominator != 1 or not 0 <= spent[0] <= self.epsilon or spent[1] > self.delta:
            raise BadState(f"the state is of a budget of {state.epsilon}, of which {state.spent_epsilon} are spent")

    def variance(self, step: int) -> float | None:  # noqa: ARG002
        """Variance of every answer, in units squared."""
        return self.static.under(self.each, self.each_delta).variance

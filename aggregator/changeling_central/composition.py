"""Composition: what several releases cost together, as (epsilon, delta).

Sequential: basic (sums) and exact, by the privacy-loss distribution of the worst mechanisms with these parameters,
which no bound in closed form is below (Kairouz, Oh, Viswanath 2015). What is rho-zCDP adds up in rho; a pure epsilon
is (epsilon²/2)-zCDP, and one with a delta is that but for its delta (Bun, Steinke 2016, section 8), so everything has a
sum that is concentrated. Basic and concentrated sums hold also where the price of a query is chosen by what earlier
ones told (Whitehouse, Ramdas, Rogers, Wu 2023), exact ones where prices owe nothing to that.
A composition of compositions is the one of all their base queries (Pan 2023, theorem 2.1), so compositions add up and
multiply before anything is computed.
Neighbours: databases of which one lacks an entry of the other.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import expm1, inf, log1p
from typing import TYPE_CHECKING

from .noise import ROUNDING, concentrated_epsilon, float_above

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

ROUNDED, LEAST_CELLS, MOST_CELLS = 1000, 20_000, 1_000_000
"""How fine the grid of the exact composition is: so many steps in a query's mean epsilon, and in the sum of all."""

MOST_EXACT = 500.0
"""Of an epsilon: e to the power of a much larger one is no float."""

BELOW = 1 - 1e-12
"""What an epsilon is lowered by, to stand below all rounding of the grid's places."""


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """The loss by one query. epsilon: in nats, 0 or more. delta: from 0, below 1. ValueError for anything else."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < inf or not 0 <= self.delta < 1:
            raise ValueError(f"a loss has 0 <= epsilon < inf and 0 <= delta < 1, got ({self.epsilon}, {self.delta})")


@dataclass(frozen=True, slots=True)
class Composition:
    """Queries asked in sequence.

    counts: how many there are of each loss; k of one are `Composition.of(loss) * k`. rho: of those which are
    concentrated, the sum.
    """

    counts: tuple[tuple[Loss, int], ...] = ()
    rho: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.rho < 0:
            raise ValueError(f"concentrated privacy needs rho > 0, got {self.rho}")

    @classmethod
    def of(cls, *losses: Loss) -> "Composition":
        """The composition of these queries, in sequence."""
        return cls(tuple(sorted(Counter(losses).items())))

    def __add__(self, other: "Composition") -> "Composition":
        counts: Counter[Loss] = Counter(dict(self.counts))
        for loss, count in other.counts:
            counts[loss] += count
        return Composition(tuple(sorted(counts.items())), self.rho + other.rho)

    def __mul__(self, times: int) -> "Composition":
        if times < 0:
            raise ValueError(f"a composition is repeated at least 0 times, got {times}")
        return Composition(tuple((loss, count * times) for loss, count in self.counts if times), self.rho * times)

    def basic(self) -> Loss:
        """The sums of epsilon and of delta. ValueError where delta adds up to 1 or more, which promises nothing."""
        epsilon, delta = self._sums()
        return Loss(float_above(epsilon), float_above(delta))

    def exact_delta(self, epsilon: float) -> float:
        """The least delta at this epsilon that holds whatever the mechanisms are, rounded up by the PLD's grid and by
        what floating point may hide."""
        if not self.counts:
            return 0.0
        return min(1.0, float(self._distribution().get_delta_for_epsilon(epsilon * BELOW)) + self._hidden())

    def exact_epsilon(self, delta: float) -> float:
        """The least epsilon at this delta that holds whatever the mechanisms are, rounded up by the PLD's grid and by
        what floating point may hide.

        delta: inf is returned where it is less than what the queries' own deltas and that come to.
        """
        if not self.counts:
            return 0.0
        allowed = delta - self._hidden()
        return float(self._distribution().get_epsilon_for_delta(allowed)) / BELOW if allowed > 0 else inf

    def least(self, delta: float) -> Loss:
        """The least epsilon at this delta that any way of adding up shows (`ways`).

        ValueError where the queries' own deltas come to more than that.
        """
        ways = self.ways(delta)
        if not ways:
            raise ValueError(f"these queries have deltas of their own, which come to more than {delta}")
        return Loss(min(ways.values()), delta)

    def ways(self, delta: float) -> dict[str, float]:
        """The epsilon at this delta by each way of adding up that reaches it: basic, exact, concentrated.

        Where some queries are concentrated, what they imply at a part of the delta is added to the sum of the others:
        at all that the deltas leave in the basic sum, else at half. At a delta of 0 only the basic sum is left.
        """
        epsilon, own = self._sums()
        free = float(Fraction(delta) - own) * BELOW
        found: dict[str, float] = {}
        if own <= delta and (not self.rho or free > 0):
            implied = concentrated_epsilon(self._rho_above(), free) if self.rho else 0.0
            found["basic"] = float_above(epsilon + Fraction(implied))
        if not 0 < delta < 1:
            return found
        left = delta / 2 if self.rho else delta
        beside = concentrated_epsilon(self._rho_above(), left) if self.rho else 0.0
        small = all(loss.epsilon <= MOST_EXACT for loss, _ in self.counts)
        if self.counts and small and (exact := self.exact_epsilon(left)) < inf:
            found["exact"] = beside + exact
        slack = -expm1(log1p(-delta) - self._log_kept()) * BELOW
        squares = sum(loss.epsilon**2 * count for loss, count in self.counts) / 2
        if 0 < slack < 1 and (self.rho or squares):
            found["concentrated"] = concentrated_epsilon(self._rho_above() + squares / BELOW, slack)
        return found

    def _sums(self) -> tuple[Fraction, Fraction]:
        """The sums of epsilon and of delta, exactly: floats added one to another may come out below both."""
        epsilons = sum((Fraction(loss.epsilon) * count for loss, count in self.counts), Fraction(0))
        return epsilons, sum((Fraction(loss.delta) * count for loss, count in self.counts), Fraction(0))

    def _rho_above(self) -> float:
        return float(self.rho) / BELOW

    def _hidden(self) -> float:
        """The delta of the composition, by the Fourier transforms that compose the queries."""
        return ROUNDING * sum(count for _, count in self.counts)

    def _log_kept(self) -> float:
        """ln Π(1 - δ)."""
        return sum(count * log1p(-loss.delta) for loss, count in self.counts)

    def _distribution(self) -> "PrivacyLossDistribution":
        from dp_accounting.pld import common, privacy_loss_distribution

        composed = privacy_loss_distribution.identity(value_discretization_interval=self._grid())
        for loss, count in self.counts:
            parameters = common.DifferentialPrivacyParameters(loss.epsilon, loss.delta)
            single = privacy_loss_distribution.from_privacy_parameters(
                parameters, value_discretization_interval=self._grid()
            )
            composed = composed.compose(single.self_compose(count))
        return composed

    def _grid(self) -> float:
        """To what losses are rounded up. Of queries with one epsilon that is it, and nothing is rounded; otherwise all
        of them together are rounded by at most a part in ROUNDED of their sum, or as memory allows."""
        every = {loss.epsilon for loss, _ in self.counts if loss.epsilon}
        if len(every) <= 1:
            return max(every, default=1.0)
        total = sum(loss.epsilon * count for loss, count in self.counts)
        queries = sum(count for _, count in self.counts)
        return total / min(max(ROUNDED * queries, LEAST_CELLS), MOST_CELLS)

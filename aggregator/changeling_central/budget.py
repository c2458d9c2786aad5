"""What a release may cost, as people write it, and whom the promise is made to; refused before anything is drawn.

A budget is epsilon, with a delta or without, or rho of concentrated privacy. Numbers count as they are written: 0.1 is
a tenth. Beyond the bounds here noise has no meaning (2^63 is the largest number), or accounting needs more memory than
there is.

The unit of privacy is an entry with all its mutations, or a person with all the entries that are theirs. A person with
at most N entries is N neighbours in a row, so a release that costs an entry (ε/N, δ') costs the person (ε, δ), δ = δ'
(e^ε - 1)/(e^(ε/N) - 1): group privacy, whatever the mechanism. One of ρ-zCDP costs the person N²ρ. Source: Dwork, Roth
2014, theorem 2.2; for δ, Vadhan 2017, lemma 2.2; for ρ, Bun, Steinke 2016, proposition 1.9.

What several releases cost together, as (epsilon, delta): basic (sums) and exact, by the privacy-loss distribution of
the worst mechanisms with these parameters, which no bound in closed form is below (Kairouz, Oh, Viswanath 2015). What
is rho-zCDP adds up in rho; a pure epsilon is (epsilon²/2)-zCDP, and one with a delta is that but for its delta (Bun,
Steinke 2016, section 8), so everything has a sum that is concentrated. Basic and concentrated sums hold also where the
price of a query is chosen by what earlier ones told (Whitehouse, Ramdas, Rogers, Wu 2023), exact ones where prices owe
nothing to that. A composition of compositions is the one of all their base queries (Pan 2023, theorem 2.1), so
compositions add up and multiply before anything is computed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, inf, log1p
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .errors import BudgetExhausted
from .mechanism import Guarantee
from .noise import ROUNDING, concentrated_epsilon, float_above, float_below, pure_epsilon

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

LEAST_EPSILON, MOST_EPSILON = Fraction(1, 10**9), Fraction(1000)
LEAST_ACCOUNTED = Fraction(1, 10**4)
LEAST_DELTA = Fraction(1, 10**12)
MOST_RELEASED_PERIODS = 10**6
MOST_DIGITS = 40


Number = int | float | str | Fraction
Budget = tuple[Number, Number] | Number
"""Of all releases: epsilon, (epsilon, delta), "3,1e-6", or "rho=1/2"."""


def exact(number: Number) -> Fraction:
    """The exact number that is written. ValueError for what is none, or is too long to mean one.

    >>> exact(0.1), exact("1/3"), exact("1e-6")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 1000000))
    """
    if isinstance(number, Fraction):
        return number
    text = str(number)
    try:
        if "e" in text.lower() and abs(int(text.lower().partition("e")[2])) > MOST_DIGITS:
            raise ValueError
        if len(text) > MOST_DIGITS:
            raise ValueError
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"a budget is a number such as 0.5 or 1/2, got {text[:MOST_DIGITS]!r}") from None


def whole(value: object) -> int | None:
    """A whole number, Python's or NumPy's, as Python's own; None for anything else, bools and floats included."""
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None


def check_budget(epsilon: Fraction, delta: Fraction) -> None:
    """ValueError where no noise could be drawn or accounted for, and for a delta that is none, whatever it buys."""
    if not (epsilon > 0 and 0 <= delta < 1):
        raise ValueError(f"a budget has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")
    if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        raise ValueError(f"epsilon is {float(LEAST_EPSILON):g} to {MOST_EPSILON}, got {float(epsilon):g}")
    if delta:
        if epsilon < LEAST_ACCOUNTED:
            raise ValueError(f"with a delta, epsilon is at least {float(LEAST_ACCOUNTED):g}, got {float(epsilon):g}")
        if delta < LEAST_DELTA:
            raise ValueError(f"delta is 0 or at least {float(LEAST_DELTA):g}, got {float(delta):g}")


def check_periods(periods: int) -> None:
    """ValueError for more periods than can be written one by one."""
    if periods > MOST_RELEASED_PERIODS:
        raise ValueError(
            f"these are {periods} periods, each of which is written to the disk: at most {MOST_RELEASED_PERIODS}; "
            "release less often, --every, or for a shorter time, --until"
        )


def check_output(output: Path) -> None:
    """ValueError where the folder is missing."""
    if not output.parent.is_dir():
        raise ValueError(f"there is no folder {output.parent} to write {output.name} in")


ROUNDED, LEAST_CELLS, MOST_CELLS = 1000, 20_000, 1_000_000
"""How fine the grid of the exact composition is: so many steps in a query's mean epsilon, and in the sum of all."""

MOST_EXACT = 500.0
"""Of an epsilon: e to the power of a much larger one is no float."""

UNDER = 1 - 1e-12
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

    def exact_epsilon(self, delta: float) -> float:
        """The least epsilon at this delta that holds whatever the mechanisms are, rounded up by the PLD's grid and by
        what floating point may hide.

        delta: inf is returned where it is less than what the queries' own deltas and that come to.
        """
        if not self.counts:
            return 0.0
        allowed = delta - ROUNDING * sum(count for _, count in self.counts)  # by the transforms that compose
        return float(self._distribution().get_epsilon_for_delta(allowed)) / UNDER if allowed > 0 else inf

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
        rho = float(self.rho) / UNDER
        free = float(Fraction(delta) - own) * UNDER
        found: dict[str, float] = {}
        if own <= delta and (not self.rho or free > 0):
            implied = concentrated_epsilon(rho, free) if rho else 0.0
            found["basic"] = float_above(epsilon + Fraction(implied))
        if not 0 < delta < 1:
            return found
        left = delta / 2 if self.rho else delta
        beside = concentrated_epsilon(rho, left) if rho else 0.0
        small = all(loss.epsilon <= MOST_EXACT for loss, _ in self.counts)
        if self.counts and small and (exact := self.exact_epsilon(left)) < inf:
            found["exact"] = beside + exact
        kept = sum(count * log1p(-loss.delta) for loss, count in self.counts)  # ln Π(1 - δ)
        slack = -expm1(log1p(-delta) - kept) * UNDER
        squares = sum(loss.epsilon**2 * count for loss, count in self.counts) / 2
        if 0 < slack < 1 and (self.rho or squares):
            found["concentrated"] = concentrated_epsilon(rho + squares / UNDER, slack)
        return found

    def _sums(self) -> tuple[Fraction, Fraction]:
        """The sums of epsilon and of delta, exactly: floats added one to another may come out below both."""
        epsilons = sum((Fraction(loss.epsilon) * count for loss, count in self.counts), Fraction(0))
        return epsilons, sum((Fraction(loss.delta) * count for loss, count in self.counts), Fraction(0))

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


BELOW = 1 - 2.0**-40
"""What a computed delta is lowered by, to stand below all rounding of its computation."""


@dataclass(frozen=True, slots=True)
class Unit:
    """column: of the changelog, that says whose an entry is; None where an entry is the unit. most: entries, N."""

    column: str | None = None
    most: int = 1

    def __post_init__(self) -> None:
        if self.most < 1 or (self.column is None and self.most > 1):
            raise ValueError(f"a person has at least one entry at most, and a column that says so, got {self.most}")

    @property
    def name(self) -> str:
        """The name that two releases must agree on, before their costs are the same thing's."""
        return "entry" if self.column is None else f"person by {self.column}"

    @property
    def said(self) -> str:
        """In words."""
        if self.column is None:
            return "an entry, with all its mutations"
        return f"a person, by the column {self.column}, with all of at most {self.most} entries"

    def of_an_entry(self, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
        """The most that an entry may cost, so that the unit costs at most (epsilon, delta)."""
        if self.most == 1 or epsilon <= 0:
            return epsilon, delta
        together, part = float(epsilon), float(epsilon / self.most)
        # (e^part - 1) / (e^whole - 1), of which both would overflow
        share = Fraction(exp(part - together) * expm1(-part) / expm1(-together) * BELOW)
        return epsilon / self.most, delta * share


ENTRY = Unit()
"""The unit where nobody says otherwise."""


PLAIN = Fraction(1001, 1000)
"""The basic sum is told, as people can check it, where it is no more than so many times the least."""


AT = Fraction(1, 10**6)
"""The delta at which a rho is stated as an epsilon as well."""

MOST_DENOMINATOR = 10**6
"""Of a fraction that people wrote; others are computed, and told in decimals."""


@dataclass(frozen=True, slots=True)
class ReleaseCost:
    """The cost of one release, or the most that all may cost: epsilon and delta, or rho where that is not None."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None

    def said(self) -> str:
        """In words."""
        if self.rho is not None:
            return f"rho {number(self.rho)}"
        return f"epsilon {number(self.epsilon)}" + (f", delta {number(self.delta)}" if self.delta else "")

    @property
    def worth(self) -> Fraction:
        """The cost as rho. ValueError for a cost with a delta, which is worth none."""
        if self.rho is not None:
            return self.rho
        if self.delta:
            raise ValueError("a budget in rho holds no release with a delta: release with --rho, or with epsilon alone")
        return self.epsilon**2 / 2


@dataclass(frozen=True, slots=True)
class Total:
    """The cost of several releases together. way: how they were added up."""

    cost: ReleaseCost
    way: str

    def fits(self, budget: ReleaseCost) -> bool:
        """True if the budget, which is of the same kind, holds it."""
        if budget.rho is not None:
            return (self.cost.rho or 0) <= budget.rho
        return self.cost.epsilon <= budget.epsilon and self.cost.delta <= budget.delta

    def said(self) -> str:
        """In words, with the way."""
        return f"{self.cost.said()} by {self.way} composition"


@lru_cache(maxsize=64)
def implied_by(rho: Fraction) -> tuple[Fraction, Fraction]:
    """The (epsilon, delta) that rho-zCDP is stated at, where one is wanted: delta is AT."""
    return Fraction(concentrated_epsilon(float_above(rho), float(AT))), AT


def refuse_beyond(budget: ReleaseCost, before: Sequence[ReleaseCost], cost: ReleaseCost) -> None:
    """BudgetExhausted where one release more is beyond the budget. before: what the others cost.

    ValueError where a cost is not of the budget's kind.
    """
    together = [*before, cost]
    added = total_cost(budget, together)
    if added is not None and added.fits(budget):
        return
    if budget.rho is not None:
        left = budget.rho - sum((each.worth for each in before), Fraction(0))
        raise BudgetExhausted(f"this release costs rho {number(cost.worth)}; left is {float(left):g}")
    if added is None or added.way != "basic" or any(each.rho is not None for each in together):
        alone = "it is more" if added is None else f"all would cost {added.said()}"
        raise BudgetExhausted(f"this release costs {cost.said()}; with it {alone}, of {budget.said()}")
    left = budget.epsilon - sum((each.epsilon for each in before), Fraction(0))
    left_delta = budget.delta - sum((each.delta for each in before), Fraction(0))
    raise BudgetExhausted(
        f"this release costs epsilon {float(cost.epsilon):g}, delta {float(cost.delta):g}; left are {float(left):g} "
        f"and {float(left_delta):g}"
    )


def total_cost(budget: ReleaseCost | None, costs: Sequence[ReleaseCost]) -> Total | None:
    """The cost of all together, by the least of the ways that the budget lets one take; basic sums without one.

    The basic sum of costs in epsilon is told where it fits and is hardly more, as people can check it. None where no
    way reaches the budget's delta. ValueError where a cost is not of the budget's kind.
    """
    if budget is not None and budget.rho is not None:
        worth = sum((each.worth for each in costs), Fraction(0))
        return Total(ReleaseCost(Fraction(0), Fraction(0), worth), "concentrated")
    concentrated = any(each.rho is not None for each in costs)
    epsilon, delta = sum((c.epsilon for c in costs), Fraction(0)), sum((c.delta for c in costs), Fraction(0))
    basic = Total(ReleaseCost(epsilon, delta), "basic")
    if budget is None or not budget.delta:
        if concentrated and budget is not None:
            raise ValueError("a budget of epsilon alone holds nothing at rho: give it a delta, or take one in rho")
        return basic
    ways = _composed(costs).ways(float_below(budget.delta)) if concentrated or len(costs) > 1 else {}
    if not concentrated and (not ways or (basic.fits(budget) and epsilon <= PLAIN * Fraction(min(ways.values())))):
        return basic
    if not ways:
        return None
    way = min(ways, key=lambda name: ways[name])
    return Total(ReleaseCost(Fraction(ways[way]), budget.delta), way)


def number(exact: Fraction) -> str:
    """Writes a number with as few digits as say it, never less than it is."""
    short = f"{float(exact):.6g}"
    if Fraction(short) >= exact:
        return short
    if exact.denominator < MOST_DENOMINATOR:
        return str(exact)
    with localcontext(prec=6, rounding=ROUND_CEILING):
        return f"{Decimal(exact.numerator) / Decimal(exact.denominator):f}"


def _composed(costs: Sequence[ReleaseCost]) -> Composition:
    """The composition of floats that are no less than the costs."""
    losses = [Loss(float_above(each.epsilon), float_above(each.delta)) for each in costs if each.rho is None]
    return Composition(Composition.of(*losses).counts, sum((each.rho or Fraction(0) for each in costs), Fraction(0)))


@dataclass(frozen=True, slots=True)
class Spending:
    """The budget of a release. unit: of privacy. cost: of the unit. epsilon, delta, rho: of an entry.

    With a rho, epsilon is the pure one that is worth as much.
    """

    unit: Unit
    cost: ReleaseCost
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    @property
    def each(self) -> tuple[Fraction, Fraction]:
        """(epsilon, delta) of an entry."""
        return self.epsilon, self.delta

    def guarantee(self, of_entry: Guarantee) -> Guarantee:
        """The guarantee for the unit, from a mechanism that promises so much of an entry."""
        unit, (epsilon, delta), rho = self.unit, (self.cost.epsilon, self.cost.delta), self.cost.rho
        if rho is not None:
            pure = of_entry.epsilon * unit.most, Fraction(0)
            epsilon, delta = implied_by(rho) if of_entry.rho is not None else pure
        elif of_entry.rho is not None:
            rho = of_entry.rho * unit.most**2
        if unit.column is None:
            return of_entry if self.cost.rho is None else replace(of_entry, epsilon=epsilon, delta=delta, rho=rho)
        neighbours = (
            f"all entries of one person (column {unit.column}), at most {unit.most}, in place of one entry in: "
            f"{of_entry.neighbours}"
        )
        return Guarantee(epsilon, delta, neighbours, f"{of_entry.source}, for groups of {unit.most}", rho)


def spending(unit: Unit, epsilon: Number | None, delta: Number, rho: Number | None) -> Spending:
    """The budget to be spent of the unit. ValueError for both or neither of epsilon and rho, and for no budget."""
    if (epsilon is None) == (rho is None) or (rho is not None and exact(delta)):
        raise ValueError("say what the release may cost: --epsilon, with a --delta or without, or --rho")
    if rho is None:
        cost = ReleaseCost(exact(epsilon or 0), exact(delta))
        check_budget(cost.epsilon, cost.delta)
        each = unit.of_an_entry(cost.epsilon, cost.delta)
        check_budget(*each)
        return Spending(unit, cost, *each)
    of_unit = exact(rho)
    of_entry = of_unit / unit.most**2  # a group of N costs N² times as much
    pure = pure_epsilon(of_entry)  # ValueError for a rho that is not above 0
    check_budget(pure, Fraction(0))
    return Spending(unit, ReleaseCost(Fraction(0), Fraction(0), of_unit), pure, Fraction(0), of_entry)


def pure_of(epsilon: str | None, rho: str | None) -> tuple[ReleaseCost, Fraction]:
    """The charge, and the pure epsilon that it pays for, of a budget without delta. Errors: as of `spending`."""
    of_entry = spending(Unit(), epsilon, 0, rho)
    return of_entry.cost, of_entry.epsilon


def total_of(total: Budget | None) -> ReleaseCost | None:
    """The budget of all releases. ValueError for what is none."""
    if total is None:
        return None
    text = total.replace(" ", "") if isinstance(total, str) else ""
    if text.startswith("rho="):
        rho = exact(text.removeprefix("rho="))
        if rho <= 0:
            raise ValueError(f"a budget of all releases has rho > 0, got {total!r}")
        return ReleaseCost(Fraction(0), Fraction(0), rho)
    if text:
        epsilon, _, delta = text.partition(",")
        total = epsilon, delta or 0
    epsilon_, delta_ = map(exact, total if isinstance(total, tuple) else (total, 0))
    if epsilon_ <= 0 or not 0 <= delta_ < 1:
        raise ValueError(f"a budget of all releases has epsilon > 0 and 0 <= delta < 1, got {total}")
    return ReleaseCost(epsilon_, delta_)

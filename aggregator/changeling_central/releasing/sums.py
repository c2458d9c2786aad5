"""What the charges of a ledger come to together, and whether a budget holds them.

A budget of epsilon alone holds the sum of the epsilons. One with a delta holds the least of the ways to add up
(`composition`): basic, advanced, exact, concentrated, each at the budget's delta. One in rho holds the sum of the rhos,
where a pure epsilon is worth epsilon²/2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import nextafter

from ..composition import Composition, Loss
from ..concentrated import concentrated_epsilon
from ..errors import BudgetExhausted
from ..node_noise import float_above

PLAIN = Fraction(1001, 1000)
"""The basic sum is told, as people can check it, where it is no more than so many times the least."""


AT = Fraction(1, 10**6)
"""The delta at which a rho is stated as an epsilon as well."""

MOST_DENOMINATOR = 10**6
"""Of a fraction that people wrote; others are computed, and told in decimals."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one release costs, or what all may: epsilon and delta, or rho where that is not None."""

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
        """As rho. ValueError for a cost with a delta, which is worth none."""
        if self.rho is not None:
            return self.rho
        if self.delta:
            raise ValueError("a budget in rho holds no release with a delta: release with --rho, or with epsilon alone")
        return self.epsilon**2 / 2


@dataclass(frozen=True, slots=True)
class Total:
    """What several releases cost together. way: how they were added up."""

    cost: Cost
    way: str

    def fits(self, budget: Cost) -> bool:
        """Whether the budget, which is of the same kind, holds it."""
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


def refuse_beyond(budget: Cost, before: Sequence[Cost], cost: Cost) -> None:
    """BudgetExhausted where one release more is beyond the budget. before: what the others cost.

    ValueError where a cost is not of the budget's kind.
    """
    together = [*before, cost]
    added = total(budget, together)
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


def total(budget: Cost | None, costs: Sequence[Cost]) -> Total | None:
    """What these cost together, by the least of the ways that the budget lets one take; basic sums without one.

    The basic sum of costs in epsilon is told where it fits and is hardly more, as people can check it. None where no
    way reaches the budget's delta. ValueError where a cost is not of the budget's kind.
    """
    if budget is not None and budget.rho is not None:
        worth = sum((each.worth for each in costs), Fraction(0))
        return Total(Cost(Fraction(0), Fraction(0), worth), "concentrated")
    concentrated = any(each.rho is not None for each in costs)
    epsilon, delta = sum((c.epsilon for c in costs), Fraction(0)), sum((c.delta for c in costs), Fraction(0))
    basic = Total(Cost(epsilon, delta), "basic")
    if budget is None or not budget.delta:
        if concentrated and budget is not None:
            raise ValueError("a budget of epsilon alone holds nothing at rho: give it a delta, or take one in rho")
        return basic
    ways = _composed(costs).ways(_below(budget.delta)) if concentrated or len(costs) > 1 else {}
    if not concentrated and (not ways or (basic.fits(budget) and epsilon <= PLAIN * Fraction(min(ways.values())))):
        return basic
    if not ways:
        return None
    way = min(ways, key=lambda name: ways[name])
    return Total(Cost(Fraction(ways[way]), budget.delta), way)


def number(exact: Fraction) -> str:
    """As few digits as say it, never less than it is."""
    short = f"{float(exact):.6g}"
    if Fraction(short) >= exact:
        return short
    if exact.denominator < MOST_DENOMINATOR:
        return str(exact)
    with localcontext(prec=6, rounding=ROUND_CEILING):
        return f"{Decimal(exact.numerator) / Decimal(exact.denominator):f}"


def _composed(costs: Sequence[Cost]) -> Composition:
    """Of floats that are no less than the costs."""
    losses = [Loss(float_above(each.epsilon), float_above(each.delta)) for each in costs if each.rho is None]
    return Composition(Composition.of(*losses).counts, sum((each.rho or Fraction(0) for each in costs), Fraction(0)))


def _below(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) <= exact else nextafter(near, 0)

"""What a release may cost, as people write it, and whom the promise is made to; refused before anything is drawn.

A budget is epsilon, with a delta or without, or rho of concentrated privacy. Numbers count as they are written: 0.1 is
a tenth. Beyond the bounds here noise has no meaning (2^63 is the largest number), or accounting needs more memory than
there is.

The unit of privacy is an entry with all its mutations, or a person with all the entries that are theirs. A person with
at most N entries is N neighbours in a row, so a release that costs an entry (ε/N, δ') costs the person (ε, δ), δ = δ'
(e^ε - 1)/(e^(ε/N) - 1): group privacy, whatever the mechanism. One of ρ-zCDP costs the person N²ρ. Source: Dwork, Roth
2014, theorem 2.2; for δ, Vadhan 2017, lemma 2.2; for ρ, Bun, Steinke 2016, proposition 1.9.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1
from pathlib import Path

import numpy as np

from .composition import Composition, Loss
from .errors import BudgetExhausted
from .mechanism import Guarantee
from .noise import concentrated_epsilon, float_above, float_below, pure_epsilon

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
    if not 0 <= delta < 1:
        raise ValueError(f"a budget has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")
    if epsilon > 0 and not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        raise ValueError(f"epsilon is {float(LEAST_EPSILON):g} to {MOST_EPSILON}, got {float(epsilon):g}")
    if epsilon > 0 and 0 < delta < 1:
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

    def rho_of_an_entry(self, rho: Fraction) -> Fraction:
        """The rho that an entry may cost, so that the unit costs at most that: a group of N costs N² times as much."""
        return rho / self.most**2

    def guarantee(self, of_entry: Guarantee, epsilon: Fraction, delta: Fraction) -> Guarantee:
        """The guarantee for the unit, from a mechanism that promises so much of an entry."""
        if self.column is None:
            return of_entry
        neighbours = (
            f"all entries of one person (column {self.column}), at most {self.most}, in place of one entry in: "
            f"{of_entry.neighbours}"
        )
        rho = None if of_entry.rho is None else of_entry.rho * self.most**2
        return Guarantee(epsilon, delta, neighbours, f"{of_entry.source}, for groups of {self.most}", rho)


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
        if self.cost.rho is None:
            return self.unit.guarantee(of_entry, self.cost.epsilon, self.cost.delta)
        pure = of_entry.epsilon * self.unit.most, Fraction(0)
        epsilon, delta = implied_by(self.cost.rho) if of_entry.rho is not None else pure
        of_unit = self.unit.guarantee(of_entry, epsilon, delta)
        return replace(of_unit, epsilon=epsilon, delta=delta, rho=self.cost.rho)


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
    of_entry = unit.rho_of_an_entry(of_unit)
    pure = pure_epsilon(of_entry)
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

"""What a release may cost, as people write it: epsilon and delta, or rho of concentrated privacy.

Numbers count as they are written: 0.1 is a tenth.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from ..concentrated import pure_epsilon
from ..mechanism import Guarantee
from .limits import budget, check_budget
from .sums import Cost, implied_by
from .unit import Unit

Number = int | float | str | Fraction
Budget = tuple[Number, Number] | Number
"""Of all releases: epsilon, (epsilon, delta), or "rho=1/2"."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What a release costs. unit: of privacy. cost: of the unit. epsilon, delta, rho: of an entry.

    With a rho, epsilon is the pure one that is worth as much.
    """

    unit: Unit
    cost: Cost
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    @property
    def each(self) -> tuple[Fraction, Fraction]:
        """(epsilon, delta) of an entry."""
        return self.epsilon, self.delta

    def guarantee(self, of_entry: Guarantee) -> Guarantee:
        """What the unit is promised, by a mechanism that promises so much of an entry."""
        if self.cost.rho is None:
            return self.unit.guarantee(of_entry, self.cost.epsilon, self.cost.delta)
        pure = of_entry.epsilon * self.unit.most, Fraction(0)
        epsilon, delta = implied_by(self.cost.rho) if of_entry.rho is not None else pure
        of_unit = self.unit.guarantee(of_entry, epsilon, delta)
        return replace(of_unit, epsilon=epsilon, delta=delta, rho=self.cost.rho)


def spending(unit: Unit, epsilon: Number | None, delta: Number, rho: Number | None) -> Spending:
    """What may be spent of the unit. ValueError for both or neither of epsilon and rho, and for what is no budget."""
    if (epsilon is None) == (rho is None) or (rho is not None and exact(delta)):
        raise ValueError("say what the release may cost: --epsilon, with a --delta or without, or --rho")
    if rho is None:
        cost = Cost(exact(epsilon or 0), exact(delta))
        check_budget(cost.epsilon, cost.delta)
        each = unit.of_an_entry(cost.epsilon, cost.delta)
        check_budget(*each)
        return Spending(unit, cost, *each)
    whole = exact(rho)
    of_entry = unit.rho_of_an_entry(whole)
    pure = pure_epsilon(of_entry)
    check_budget(pure, Fraction(0))
    return Spending(unit, Cost(Fraction(0), Fraction(0), whole), pure, Fraction(0), of_entry)


def pure_of(epsilon: str | None, rho: str | None) -> tuple[Cost, Fraction]:
    """What is charged, and the pure epsilon that it pays for, of what has no delta. Errors: as of `spending`."""
    of_entry = spending(Unit(), epsilon, 0, rho)
    return of_entry.cost, of_entry.epsilon


def total_of(total: Budget | None) -> Cost | None:
    """The budget of all releases. ValueError for what is none."""
    if total is None:
        return None
    if isinstance(total, str) and (named := total.replace(" ", "")).startswith("rho="):
        rho = budget(named.removeprefix("rho="))
        if rho <= 0:
            raise ValueError(f"a budget of all releases has rho > 0, got {total!r}")
        return Cost(Fraction(0), Fraction(0), rho)
    epsilon, delta = total if isinstance(total, tuple) else (total, 0)
    cost = Cost(exact(epsilon), exact(delta))
    if cost.epsilon <= 0 or not 0 <= cost.delta < 1:
        raise ValueError(f"a budget of all releases has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")
    return cost


def exact(number: Number) -> Fraction:
    """A budget as it is written. ValueError for what is no number."""
    return number if isinstance(number, Fraction) else budget(str(number))

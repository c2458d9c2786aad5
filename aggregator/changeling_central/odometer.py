"""What a central release may still cost an entry: it refuses before anything is drawn.

Costs are exact fractions of (epsilon, delta), added up (basic composition); a mechanism that proves a sharper
bound charges that bound once, when it starts. Values, not objects with a memory: charging returns a new odometer.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from .errors import BudgetExhausted


@dataclass(frozen=True, slots=True)
class Odometer:
    """A budget and what is spent of it, per entry.

    epsilon, delta: the budget. spent_epsilon, spent_delta: what released outputs have cost so far. ValueError unless
    epsilon > 0 and 0 <= delta < 1.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    spent_epsilon: Fraction = Fraction(0)
    spent_delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 <= self.delta < 1:
            raise ValueError(f"a budget has epsilon > 0 and 0 <= delta < 1, got {self.epsilon} and {self.delta}")

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

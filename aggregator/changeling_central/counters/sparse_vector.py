"""The sparse vector technique: which of a sequence of queries is the first above a threshold.

Guarantee: epsilon for all answers together, however many are "not above"; it answers "above" once and halts. The noisy
threshold is θ + Lap(2/epsilon), drawn once; each query gets Lap(4/epsilon). Queries are integers and of sensitivity 1.
Neighbours: datasets that differ by one item. Source: Dwork, Roth 2014, algorithm 1; Qiu, Yi, algorithm 1; the proof
shifts the threshold by 1 and the last query by 2, which the discrete law does as the continuous one.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..node_noise import calibrated
from ..noise import Noise
from ..whole import whole


@dataclass(frozen=True, slots=True)
class SparseVectorState:
    """raised: the noise on the threshold, None before the first query. halted: "above" was answered."""

    raised: int | None = None
    halted: bool = False


@dataclass(frozen=True, slots=True)
class SparseVector(Mechanism[SparseVectorState, int, bool]):
    """threshold: θ, public, in the queries' unit. It halts once it has answered "above": more steps cost more."""

    threshold: float
    epsilon: Fraction

    def __post_init__(self) -> None:
        if not isfinite(self.threshold) or self.epsilon <= 0:
            raise ValueError(f"needs a finite threshold and epsilon > 0, got {self.threshold} and {self.epsilon}")

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all answers together, up to the one that is "above"."""
        return Guarantee(
            self.epsilon, Fraction(0), "datasets that differ by one item", "Dwork, Roth 2014, theorem 3.23"
        )

    def start(self) -> SparseVectorState:
        """Before the first query."""
        return SparseVectorState()

    def step(self, state: SparseVectorState, value: int, noise: Noise) -> tuple[SparseVectorState, bool]:
        """value: the true answer of the next query. Returns whether it is above the threshold, more or less.

        Raises BudgetExhausted once it has halted, and ValueError for what is no whole number; nothing is drawn then.
        """
        if state.halted:
            raise BudgetExhausted("a sparse vector answers 'above' once: start another, on other data or more budget")
        asked = whole(value)
        if asked is None:
            raise ValueError(f"a query of the sparse vector is a whole number, got a {type(value).__name__}")
        raised = state.raised
        if raised is None:
            raised = int(calibrated({1: 1}, self.epsilon / 2).draw(noise, 1)[0])
        answer = asked + int(calibrated({2: 1}, self.epsilon / 2).draw(noise, 1)[0])
        above = answer - raised > self.threshold  # the sum θ + noise would be rounded
        return SparseVectorState(raised, above), above

    def check(self, state: SparseVectorState) -> None:
        """Raises BadState for one that halted before its threshold was drawn."""
        if state.halted and state.raised is None:
            raise BadState("the state is of a sparse vector that halted before its first query")

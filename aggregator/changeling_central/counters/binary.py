"""The binary mechanism: prefix releases of a stream whose length T is known, from any static mechanism.

Guarantee: (epsilon, delta) for the whole stream; one step is a part of at most as many nodes as there are levels, each
of which gets an equal share: ⌊log₂ T⌋ + 1 levels, or ⌈log₂ T⌉ without the root of a T that is a power of two, which
stays undrawn as its halves serve as well. Of another T no node closes that would hold all steps, so no level is kept
for one. (With the root, shares of log₂ T overspend: 2·epsilon at T = 2.) Neighbours: streams that differ by one
item at one step. Source: Dwork, Naor, Pitassi, Rothblum 2010; Qiu, Yi, section 2.2; `cum`: lecture notes, section 2.
The state holds true sums, so keep it where the stream is kept.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..static import BasicCounting, Data, Priced, Static
from .dyadic import Closed, check_stack, levels_after, pushed

NEIGHBOURS = "streams that differ by one item at one step"


@dataclass(frozen=True, slots=True)
class BinaryState(Generic[Data]):
    """time: how many steps were taken. stack: the nodes that cover them, at most ⌈log₂ T⌉ + 1, with true sums."""

    time: int
    stack: tuple[Closed[Data], ...]


@dataclass(frozen=True, slots=True)
class BinaryMechanism(Mechanism[BinaryState[Data], Data, Data], Generic[Data]):
    """Made by `binary_mechanism`. periods: T. levels: how many of nodes, the lowest one step wide.

    priced: the static mechanism at a level's share of (epsilon, delta).
    """

    static: Static[Data]
    periods: int
    levels: int
    priced: Priced[Data]
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for the whole stream."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, "Dwork, Naor, Pitassi, Rothblum 2010")

    def start(self) -> BinaryState[Data]:
        """Before the first step."""
        return BinaryState(0, ())

    def step(self, state: BinaryState[Data], value: Data, noise: Noise) -> tuple[BinaryState[Data], Data]:
        """value: the items of one more step. Returns the answers on all items so far, in multiples of 1/grain.

        Raises BudgetExhausted after T steps, and ValueError for what is no dataset; nothing is drawn then.
        """
        if state.time >= self.periods:
            raise BudgetExhausted(f"the guarantee covers {self.periods} steps, and all of them are released")
        data = self.static.checked(value)
        stack = pushed(state.stack, data, self.levels - 1, self.priced, self.static.zero(), noise)
        return BinaryState(state.time + 1, stack), stack[-1].prefix + self.static.zero()  # the caller's own

    def variance(self, step: int) -> float | None:
        """Of every answer after so many steps, in units squared; None where the static mechanism states none."""
        of_node = self.priced.variance
        return None if of_node is None else of_node * len(levels_after(step, self.levels - 1))

    def check(self, state: BinaryState[Data]) -> None:
        """Raises BadState for more steps than T, for other nodes, or for datasets of another shape."""
        if not 0 <= state.time <= self.periods:
            raise BadState(f"the state is of {state.time} steps, and the mechanism has {self.periods}")
        check_stack(state.stack, self.static, state.time, self.levels - 1)


def binary_mechanism(
    static: Static[Data], periods: int, epsilon: Fraction, delta: Fraction = Fraction(0), root: bool = False
) -> BinaryMechanism[Data]:
    """The binary mechanism over so many steps that costs at most (epsilon, delta) in all.

    periods: T. root: whether the node over all steps is drawn as well, where T is a power of two.
    ValueError if periods < 1, or if there is but one step and no root: nothing would be released.
    """
    if periods < 1:
        raise ValueError(f"a stream has at least one step, got {periods}")
    levels = periods.bit_length() if root else (periods - 1).bit_length()
    if levels == 0:
        raise ValueError("one step alone has only the root: ask for it")
    priced = static.under(epsilon / levels, delta / levels)
    return BinaryMechanism(static, periods, levels, priced, epsilon, delta)


def cum(n: int, epsilon: Fraction) -> BinaryMechanism[int]:
    """The binary counter of n steps, without the root, at epsilon in all: Lap(⌈log₂ n⌉ / epsilon) on each node.

    A step brings a whole number of items. Lecture notes, section 2.
    """
    return binary_mechanism(BasicCounting(), n, epsilon)

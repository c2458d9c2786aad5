"""The binary mechanism: prefix releases of a stream whose length T is known, from any static mechanism.

Guarantee: (epsilon, delta) for the whole stream; one step is a part of at most as many nodes as there are levels, each
of which gets an equal share: ⌈log₂ T⌉ + 1 levels, or ⌈log₂ T⌉ without the root, which stays undrawn as its halves
serve as well. (With the root, shares of log₂ T overspend: 2·epsilon at T = 2.) Neighbours: streams that differ by one
item at one step. Source: Dwork, Naor, Pitassi, Rothblum 2010; Qiu, Yi, section 2.2; `cum`: lecture notes, section 2.
The state holds true sums, so keep it where the stream is kept.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, NamedTuple

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee
from ..noise import Noise
from ..static import BasicCounting, Data, Priced, Static
from .dyadic import Closed, levels_after, pushed, stack_fields, stack_from_fields

NEIGHBOURS = "streams that differ by one item at one step"


class BinaryState(NamedTuple, Generic[Data]):
    """time: how many steps were taken. stack: the nodes that cover them, at most ⌈log₂ T⌉ + 1."""

    time: int
    stack: tuple[Closed[Data], ...]

    def as_fields(self) -> dict[str, Any]:
        return {"time": self.time, "stack": stack_fields(self.stack)}


@dataclass(frozen=True, slots=True)
class BinaryMechanism(Generic[Data]):
    """levels: of nodes, 0 being one step; priced: the static mechanism at a level's share."""

    static: Static[Data]
    periods: int
    levels: int
    priced: Priced[Data]
    guarantee: Guarantee

    def start(self) -> BinaryState[Data]:
        return BinaryState(0, ())

    def step(self, state: BinaryState[Data], value: Data, noise: Noise) -> tuple[BinaryState[Data], Data]:
        """value: the items of one more step. Returns the answers on all items so far, in multiples of 1/grain.

        Raises BudgetExhausted after T steps, and ValueError for what is no dataset; nothing is drawn then.
        """
        time, stack = state
        if time >= self.periods:
            raise BudgetExhausted(f"the guarantee covers {self.periods} steps, and all of them are released")
        data = self.static.checked(value)
        stack = pushed(stack, data, self.levels - 1, self.priced, self.static.zero(), noise)
        return BinaryState(time + 1, stack), stack[-1].prefix

    def variance(self, time: int) -> float | None:
        """Of every answer after so many steps, in units squared; None where the static mechanism states none."""
        one = self.priced.variance
        return None if one is None else one * len(levels_after(time, self.levels - 1))

    def resumed(self, fields: dict[str, Any]) -> BinaryState[Data]:
        """The state that `as_fields` wrote. Raises BadState for anything else."""
        match fields:
            case {"time": int(time), "stack": list(stack), **rest} if not rest and 0 <= time <= self.periods:
                return BinaryState(time, stack_from_fields(stack, self.static, time, self.levels - 1))
        raise BadState(f"not the state of a binary mechanism of {self.periods} steps")


def binary_mechanism(
    static: Static[Data], periods: int, epsilon: Fraction, delta: Fraction = Fraction(0), root: bool = False
) -> BinaryMechanism[Data]:
    """The binary mechanism over so many steps that costs at most (epsilon, delta) in all.

    ValueError if periods < 1, or if there is but one step and no root: nothing would be released.
    """
    if periods < 1:
        raise ValueError(f"a stream has at least one step, got {periods}")
    levels = (periods - 1).bit_length() + root
    if levels == 0:
        raise ValueError("one step alone has only the root: ask for it")
    guarantee = Guarantee(epsilon, delta, NEIGHBOURS, "Dwork, Naor, Pitassi, Rothblum 2010")
    return BinaryMechanism(static, periods, levels, static.under(epsilon / levels, delta / levels), guarantee)


def cum(n: int, epsilon: Fraction) -> BinaryMechanism[int]:
    """Cum of the lecture notes: the binary counter of n steps, Lap(log₂ n / epsilon) per node, without the root."""
    return binary_mechanism(BasicCounting(), n, epsilon)

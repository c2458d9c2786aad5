"""The stream without an end: prefix releases at every step, T never given, from any static mechanism.

Dyadic blocks [2^i, 2^(i+1)) are released whole as they end, for half the budget; inside a block the binary mechanism
without its root runs on the other half, i levels at 1/2i each, none at i = 0. Every step lies in one block.
Guarantee: (epsilon, delta) for ever. Neighbours: streams that differ by one item at one step.
Source: Chan, Shi, Song 2011 (hybrid mechanism); Qiu, Yi, section 2.3. The state holds true sums.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..static import Data, Priced, Static, check_answers, check_data
from .binary import NEIGHBOURS
from .dyadic import Closed, check_stack, levels_after, pushed


@dataclass(frozen=True, slots=True)
class InfiniteState(Generic[Data]):
    """time: how many steps were taken. closed: the released answers on all ended blocks.

    block: the true dataset of the open block. stack: its nodes.
    """

    time: int
    closed: Data
    block: Data
    stack: tuple[Closed[Data], ...]

    @property
    def answers(self) -> Data:
        """What was last released."""
        return self.closed + self.stack[-1].prefix if self.stack else self.closed


@dataclass(frozen=True, slots=True)
class InfiniteMechanism(Mechanism[InfiniteState[Data], Data, Data], Generic[Data]):
    """Prefix releases that cost (epsilon, delta) in all, however long the stream."""

    static: Static[Data]
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self.static.under(self.epsilon / 2, self.delta / 2)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for the whole stream, however long."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, "Chan, Shi, Song 2011")

    def start(self) -> InfiniteState[Data]:
        """Before the first step."""
        return InfiniteState(0, self.static.zero(), self.static.gathered([]), ())

    def step(self, state: InfiniteState[Data], value: Data, noise: Noise) -> tuple[InfiniteState[Data], Data]:
        """value: the items of one more step. Returns the answers on all items so far, in multiples of 1/grain.

        Raises ValueError for what is no dataset; nothing is drawn then.
        """
        data = self.static.checked(value)
        time, block = state.time + 1, state.block + data
        i, inside = block_of(time)
        if inside == 2**i:
            closed = state.closed + self._of_block().release(block, noise)
            return InfiniteState(
                time, closed, self.static.gathered([]), ()
            ), closed + self.static.zero()  # the caller's own
        stack = pushed(state.stack, data, i, self._of_node(i), self.static.zero(), noise)
        after = InfiniteState(time, state.closed, block, stack)
        return after, after.answers

    def variance(self, step: int) -> float | None:
        """Of every answer after so many steps, in units squared; None where the static mechanism states none."""
        i, inside = block_of(step + 1)
        of_block, of_node = self._of_block().variance, self._of_node(i).variance if i else 0.0
        if of_block is None or of_node is None:
            return None
        return i * of_block + len(levels_after(inside - 1, i)) * of_node

    def check(self, state: InfiniteState[Data]) -> None:
        """Raises BadState for nodes that are not those of its time, or for datasets of another shape."""
        if state.time < 0:
            raise BadState(f"the state is of {state.time} steps")
        check_answers(self.static, state.closed)
        check_data(self.static, state.block)
        i, inside = block_of(state.time + 1)
        check_stack(state.stack, self.static, inside - 1, i)

    def _of_block(self) -> Priced[Data]:
        return self.static.under(self.epsilon / 2, self.delta / 2)

    def _of_node(self, i: int) -> Priced[Data]:
        return self.static.under(self.epsilon / (2 * i), self.delta / (2 * i))


def block_of(time: int) -> tuple[int, int]:
    """The block i that the step `time` lies in, [2^i, 2^(i+1)), and its number inside, from 1 on.

    >>> [block_of(time) for time in range(1, 8)]
    [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (2, 4)]
    """
    i = time.bit_length() - 1
    return i, time - 2**i + 1

"""Counters of a stream: a prefix released at every step, from any static mechanism; and one whose memory may be seized.

    BinaryMechanism      T steps, known ahead; `cum` is that of the lecture notes
    InfiniteMechanism    a stream without an end
    PanPrivateCounter    PPCum; `overwrite` and `read_over` keep its memory in one place on a disk

After t steps a prefix adds one released node for every binary digit 1 of t: a step takes up the nodes of equal width
before it and releases one node over all of them. So a step draws once, and is a part of at most one node of each level.
Neighbours: streams that differ by one item at one step. Sources: Chan, Shi, Song 2011; Dwork, Naor, Pitassi, Rothblum
2010; Qiu, Yi, sections 2.2 and 2.3; lecture notes, sections 2 and 3. States hold true sums, except PPCum's.
"""

import os
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from math import log
from pathlib import Path
from typing import Generic, NamedTuple

import numpy as np
from changeling_central import BadState, Mechanism, NodeNoise, Noise, calibrated, check_counts, check_left, whole
from changeling_statistics import Counts

from .static import BasicCounting, Data, Priced, Static, check_like


class Closed(NamedTuple, Generic[Data]):
    """A released node of 2^level steps. data: its true dataset. prefix: the released answers up to its end."""

    level: int
    data: Data
    prefix: Data


def pushed(
    stack: tuple[Closed[Data], ...], data: Data, most: int, priced: Priced[Data], zero: Data, noise: Noise
) -> tuple[Closed[Data], ...]:
    """The stack after one more step, whose new node is released.

    data: what the step brings. most: the highest level; its nodes stay side by side. zero: answers on no data.
    """
    level = 0
    while stack and level < most and stack[-1].level == level:
        data = data + stack[-1].data
        stack = stack[:-1]
        level += 1
    before = stack[-1].prefix if stack else zero
    return stack + (Closed(level, data, before + priced.release(data, noise)),)  # noqa: RUF005 a list for mypy


def check_stack(stack: tuple[Closed[Data], ...], static: Static[Data], steps: int, most: int) -> None:
    """Raises BadState unless the stack has the nodes of so many steps, each with a dataset and answers of `static`."""
    if [node.level for node in stack] != levels_after(steps, most):
        raise BadState(f"the nodes of the state are not those of {steps} steps")
    for node in stack:
        check_like(static.gathered([]), node.data)
        check_like(static.zero(), node.prefix)


def levels_after(steps: int, most: int) -> list[int]:
    """The levels of the nodes that cover so many steps, from the first on. most: the highest level.

    >>> levels_after(13, 3), levels_after(8, 2)
    ([3, 2, 0], [2, 2])
    """
    below = [level for level in reversed(range(most)) if steps >> level & 1]
    return [most] * (steps >> most) + below


NEIGHBOURS = "streams that differ by one item at one step"


@dataclass(frozen=True, slots=True)
class BinaryState(Generic[Data]):
    """time: how many steps were taken. stack: the nodes that cover them, at most ⌈log₂ T⌉ + 1, with true sums."""

    time: int
    stack: tuple[Closed[Data], ...]


@dataclass(frozen=True, slots=True)
class BinaryMechanism(Mechanism[BinaryState[Data], Data, Data], Generic[Data]):
    """Made by `binary_mechanism`: (epsilon, delta) for the whole stream, an equal share for each level of nodes.

    periods: T. levels: how many of nodes, the lowest one step wide: ⌊log₂ T⌋ + 1, or ⌈log₂ T⌉ without the root of a T
    that is a power of two, which stays undrawn as its halves serve as well. (With the root, shares of log₂ T overspend:
    2·epsilon at T = 2.) priced: the static mechanism at a level's share.
    """

    neighbours = NEIGHBOURS
    source = "Dwork, Naor, Pitassi, Rothblum 2010"
    static: Static[Data]
    periods: int
    levels: int
    priced: Priced[Data]
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def start(self) -> BinaryState[Data]:
        """Before the first step."""
        return BinaryState(0, ())

    def step(self, state: BinaryState[Data], value: Data, noise: Noise) -> tuple[BinaryState[Data], Data]:
        """value: the items of one more step. Returns the answers on all items so far.

        Raises BudgetExhausted after T steps, and ValueError for what is no dataset; nothing is drawn then.
        """
        check_left(state.time, self.periods)
        data = self.static.checked(value)
        stack = pushed(state.stack, data, self.levels - 1, self.priced, self.static.zero(), noise)
        return BinaryState(state.time + 1, stack), stack[-1].prefix + self.static.zero()  # the caller's own

    def variance(self, step: int) -> float | None:
        """Variance of the answers after so many steps, in units squared; None where the static one is unknown."""
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


def unbeatable(n: int, epsilon: Fraction) -> float:
    """The largest a such that no ε-private counter errs by less than a at every one of n steps with probability 1/2.

    Blocks of 2a = B ones in one of ⌊n/B⌋ places: which one is read off the counter, and any two streams differ at
    2B steps, so (⌊n/B⌋ - 1) e^(-2Bε) <= 1 for a counter that good; the first B to allow that is the last. About
    ln(n) / 4ε. Lecture notes, section 2; their ln(n)/4 - 1 follows for all n in use, but not for huge ones.
    """
    block = 1
    while n // block > 2 and 2 * block * epsilon < log(n // block - 1):
        block += 1
    return (block - 1) / 2


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
        """The answers that were last released."""
        return self.closed + self.stack[-1].prefix if self.stack else self.closed


@dataclass(frozen=True, slots=True)
class InfiniteMechanism(Mechanism[InfiniteState[Data], Data, Data], Generic[Data]):
    """Prefix releases that cost (epsilon, delta) in all, however long the stream.

    Dyadic blocks [2^i, 2^(i+1)) are released whole as they end, for half the budget; inside a block the binary
    mechanism without its root runs on the other half, i levels at 1/2i each, none at i = 0.
    """

    neighbours = NEIGHBOURS
    source = "Chan, Shi, Song 2011"
    static: Static[Data]
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self._of_block()

    def start(self) -> InfiniteState[Data]:
        """Before the first step."""
        return InfiniteState(0, self.static.zero(), self.static.gathered([]), ())

    def step(self, state: InfiniteState[Data], value: Data, noise: Noise) -> tuple[InfiniteState[Data], Data]:
        """value: the items of one more step. Returns the answers on all items so far.

        Raises ValueError for what is no dataset; nothing is drawn then.
        """
        data = self.static.checked(value)
        time, block = state.time + 1, state.block + data
        i, inside = block_of(time)
        if inside == 2**i:
            closed = state.closed + self._of_block().release(block, noise)
            after = InfiniteState(time, closed, self.static.gathered([]), ())
            return after, closed + self.static.zero()  # the caller's own
        stack = pushed(state.stack, data, i, self._of_node(i), self.static.zero(), noise)
        after = InfiniteState(time, state.closed, block, stack)
        return after, after.answers

    def variance(self, step: int) -> float | None:
        """Variance of the answers after so many steps, in units squared; None where the static one is unknown."""
        i, inside = block_of(step + 1)
        of_block, of_node = self._of_block().variance, self._of_node(i).variance if i else 0.0
        if of_block is None or of_node is None:
            return None
        return i * of_block + len(levels_after(inside - 1, i)) * of_node

    def check(self, state: InfiniteState[Data]) -> None:
        """Raises BadState for nodes that are not those of its time, or for datasets of another shape."""
        if state.time < 0:
            raise BadState(f"the state is of {state.time} steps")
        check_like(self.static.zero(), state.closed)
        check_like(self.static.gathered([]), state.block)
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


MOST_SUM = 2**62
"""The memory's cells have 64 bits: all steps together come to no more, and the rest is for noise."""


@dataclass(frozen=True, slots=True, eq=False)
class PanPrivateMemory:
    """cells: t, the noisy count, and the noise of the open node of each level 0..L-1, 0 where none is; overwritten."""

    cells: Counts

    @property
    def time(self) -> int:
        """The number of steps taken."""
        return int(self.cells[0])


@dataclass(frozen=True, slots=True)
class PanPrivateCounter(Mechanism[PanPrivateMemory, int, int]):
    """PPCum: a counter of n = `steps` steps whose memory may be seized, and still tells nothing more than epsilon.

    One running count that never was without noise, and the noise of the dyadic nodes that are open:

        output at t = N + x_1 + … + x_t + Σ N_I over the nodes I that hold t, but the root; all noise Lap((L+1)/epsilon)

    Guarantee: epsilon for the outputs up to t and the memory after t together, for every t; the seizure ends the
    release. Proof: a shift by 1 of N and of at most L = ⌈log₂ n⌉ nodes hides x_j. Memory holds the count and the N_I
    of open nodes with I not inside [1, t] (the notes' "does not intersect" is a slip: a node half past is still
    needed). N_I is drawn as its node begins, before that step's input is taken in.

    A step overwrites the memory it is given: the one mechanism here whose old state is gone, as it must be. The noise
    source's memory could be seized as well: OpenDP draws from the operating system's generator, which cannot be run
    backwards, and keeps nothing. Numbers that Python copies on their way are beyond our reach.
    """

    neighbours = "streams that differ by one at one step; the outputs and one seizure of the memory are seen"
    source = "lecture notes, theorem 7"
    steps: int
    epsilon: Fraction
    levels: int = field(init=False)
    noise: NodeNoise = field(init=False)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a stream has at least one step, got {self.steps}")
        levels = (self.steps - 1).bit_length()
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "noise", calibrated({1: levels + 1}, self.epsilon))

    @property
    def overwrites(self) -> bool:
        """True: whoever seizes the memory must find no older one."""
        return True

    def start(self) -> PanPrivateMemory:
        """Draws nothing: the first step does, before it takes anything in."""
        return PanPrivateMemory(np.zeros(2 + self.levels, np.int64))

    def step(self, state: PanPrivateMemory, value: int, noise: Noise) -> tuple[PanPrivateMemory, int]:
        """value: x_t. Returns the noisy sum of all so far, and the same memory, overwritten.

        Raises BudgetExhausted after n steps, ValueError for what is no whole number or beyond what the memory's cells
        hold, and BadState for another's memory; nothing is drawn then.
        """
        cells = state.cells
        check_counts(cells, (2 + self.levels,))
        check_left(int(cells[0]), self.steps)
        step = whole(value)
        most = MOST_SUM // self.steps
        if step is None or not -most <= step <= most:
            raise ValueError(
                f"a step of a counter of {self.steps} steps is a whole number of at most {most}, got a "
                f"{type(value).__name__}"
            )
        past = int(cells[0])
        begins = [level for level in range(self.levels) if past % 2**level == 0]
        drawn = self.noise.draw(noise, len(begins) + (past == 0))
        cells[0] = past + 1
        cells[[2 + level for level in begins]] = drawn[: len(begins)]
        if past == 0:
            cells[1] = drawn[-1]
        drawn[:] = 0
        cells[1] += step
        output = int(cells[1:].sum())
        for level in range(self.levels):
            if (past + 1) % 2**level == 0:
                cells[2 + level] = 0
        return state, output

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of the output, the same at every step."""
        return (self.levels + 1) * self.noise.variance

    def check(self, state: PanPrivateMemory) -> None:
        """Raises BadState for another number of cells, or for more steps than n."""
        check_counts(state.cells, (2 + self.levels,))
        if not 0 <= state.time <= self.steps:
            raise BadState(f"the memory is of {state.time} steps, and the counter has {self.steps}")


_HEAD, _LENGTH = 32 + 4, 4096
"""In bytes: of what stands before a state, and of the whole file."""


def overwrite(path: Path, content: bytes) -> None:
    """Write a saved state over the one before, byte for byte in one place: what pan-privacy asks of a disk.

    A file of fixed length, written in place and flushed, with no copy beside it. A crash in the midst of writing leaves
    a file that is refused, so the release ends rather than draw twice. Copying file systems, snapshots and flash may
    keep old blocks: use a disk that does not.

    content: what the mechanism's `saved` wrote. ValueError if the state takes more than the file has, or the file has
    another length: it then stays as it was. OSError for a write that was cut short.
    """
    if len(content) + _HEAD > _LENGTH:
        raise ValueError(f"the state takes {len(content) + _HEAD} bytes, and the file has {_LENGTH}")
    whole = sha256(content).digest() + len(content).to_bytes(4, "big") + content
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size not in (0, _LENGTH):
            raise ValueError(f"{path} does not have {_LENGTH} bytes: it holds something else")
        if (written := os.pwrite(descriptor, whole.ljust(_LENGTH, b"\0"), 0)) < _LENGTH:
            raise OSError(f"{path} holds {written} of {_LENGTH} bytes: the disk is full, and the state there is lost")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_over(path: Path) -> bytes:
    """The saved state that was last written. Raises BadState for a file that is not whole."""
    written = path.read_bytes()
    content = written[_HEAD : _HEAD + int.from_bytes(written[32:_HEAD], "big")]
    if len(written) < _HEAD or sha256(content).digest() != written[:32]:
        raise BadState(f"{path} is not a whole state; without it nothing more can be released safely")
    return content

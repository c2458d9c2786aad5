"""PPCum: a counter whose memory may be seized, and still tells nothing more than epsilon.

One running count that never was without noise, and the noise of the dyadic nodes that are open:

    output at t = N + x_1 + … + x_t + Σ N_I over the nodes I that hold t, but the root; all noise Lap((L+1)/epsilon)

Guarantee: epsilon for the outputs up to t and the memory after t together, for every t; the seizure ends the release.
Neighbours: streams that differ by one at one step. Proof: a shift by 1 of N and of at most L = ⌈log₂ n⌉ nodes hides
x_j. Source: lecture notes, section 3; Dwork, Naor, Pitassi, Rothblum 2010. Memory holds the count and the N_I of
open nodes with I not inside [1, t] (the notes' "does not intersect" is a slip: a node half past is still needed). N_I
is drawn as its node begins, before that step's input is taken in; until then it is nowhere.

A step overwrites the memory it is given: the one mechanism here whose old state is gone, as it must be. The noise
source's memory is part of what can be seized: OpenDP draws from the operating system's generator, which cannot be run
backwards, and keeps nothing. Numbers that Python copies on their way are beyond our reach.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from changeling_statistics import Counts

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..node_noise import NodeNoise, calibrated
from ..noise import Noise
from ..states import check_counts
from ..whole import whole

MOST_SUM = 2**62
"""The memory's cells have 64 bits: all steps together come to no more, and the rest is for noise."""


@dataclass(frozen=True, slots=True, eq=False)
class PanPrivateMemory:
    """cells: t, the noisy count, and the noise of the open node of each level 0..L-1, 0 where none is; overwritten."""

    cells: Counts

    @property
    def time(self) -> int:
        """How many steps were taken."""
        return int(self.cells[0])


@dataclass(frozen=True, slots=True)
class PanPrivateCounter(Mechanism[PanPrivateMemory, int, int]):
    """The counter of n = `steps` steps, known in advance, at `epsilon` for the outputs and one seizure together."""

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
    def guarantee(self) -> Guarantee:
        """epsilon for the outputs and one seizure of the memory together."""
        neighbours = "streams that differ by one at one step; the outputs and one seizure of the memory are seen"
        return Guarantee(self.epsilon, Fraction(0), neighbours, "lecture notes, theorem 7")

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
        if cells[0] >= self.steps:
            raise BudgetExhausted(f"the guarantee covers {self.steps} steps, and all of them are released")
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
        """Of the output, the same at every step."""
        return (self.levels + 1) * self.noise.variance

    def check(self, state: PanPrivateMemory) -> None:
        """Raises BadState for another number of cells, or for more steps than n."""
        check_counts(state.cells, (2 + self.levels,))
        if not 0 <= state.time <= self.steps:
            raise BadState(f"the memory is of {state.time} steps, and the counter has {self.steps}")

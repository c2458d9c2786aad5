"""A memory that is seized, against every shift of the noise that could hide it."""

from fractions import Fraction

import numpy as np
import pytest
from changeling_papers import PanPrivateCounter
from scipy.optimize import linprog


@pytest.mark.parametrize("steps", range(1, 10))
def test_outputs_and_a_seized_memory_are_hidden_by_as_few_units_of_noise_as_are_charged(steps):
    """Every step, every moment of seizure: the least L1 shift of draws under which all that is seen stays the same."""
    counter = PanPrivateCounter(steps, Fraction(1))

    class Given:
        def __init__(self, at=-1):
            self.at, self.used = at, 0

        def laplace(self, scale, size):  # noqa: ARG002
            drawn = np.array([int(self.used + i == self.at) for i in range(size)], np.int64)
            self.used += size
            return drawn

    def seen(x, noise):
        state, outputs = counter.start(), []
        for value in x:
            state, output = counter.step(state, value, noise)
            outputs.append(output)
        return np.array([*outputs, *state.cells[1:]])

    for seized in range(1, steps + 1):
        nothing = [0] * seized
        seen(nothing, used := Given())
        M = np.array([seen(nothing, Given(at)) for at in range(used.used)]).T
        for j in range(seized):
            x = [int(i == j) for i in range(seized)]
            least = linprog(np.ones(2 * used.used), A_eq=np.hstack([M, -M]), b_eq=seen(x, Given()))
            assert least.status == 0
            assert least.fun <= counter.levels + 1 + 1e-9

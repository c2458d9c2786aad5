"""Averages over a randomizer's inputs: no change, uniform mutations, uniform states."""

from collections.abc import Callable

import numpy as np
from changeling_protocol.randomizers import Space

from ..change_map import change_map
from ..estimate import Floats


def possible_inputs(space: Space) -> Floats:
    """1 for the inputs that occur, 0 for the paper's pairs (r, r), which are reported as no change; shape (m,)."""
    possible = np.ones(space.size)
    if space.reports_changes:
        pairs = change_map(space)
        possible[1:] = pairs.old[1:] != pairs.new[1:]
    return possible


def mean_over_kinds(space: Space, mean: Callable[[Floats], float]) -> tuple[float, float]:
    """A mean without a change, and over uniform mutations; for states, twice the mean over uniform states.

    mean: takes the inputs' shares, shape (m,), which sum to 1.
    """
    shares = possible_inputs(space)
    if not space.reports_changes:
        over_states = mean(shares / shares.sum())
        return over_states, over_states
    unchanged = np.zeros(space.size)
    unchanged[0] = 1
    shares[0] = 0
    return mean(unchanged), mean(shares / shares.sum())

"""What to expect of a population, where its changelog is at hand: what a survey's planner asks the designer for."""

import numpy as np
from changeling_protocol import ExpectedChanges
from changeling_protocol.expectation import MICRO

from .population import Population


def fitted_expectation(population: Population) -> ExpectedChanges:
    """The share of entries that have an answer after the first period, and the mean rate of later changes a period.

    Both are of what the devices report on. A deletion counts as a change.
    """
    states, n = population.frozen, population.entries
    first = (states[:, 1] > 0) @ population.weights / n
    changed = (np.diff(states[:, 1:], axis=1) != 0).sum(1) @ population.weights / n
    rate = changed / max(1, population.periods - 1)
    return ExpectedChanges(round(MICRO * float(first)), min(MICRO, round(MICRO * float(rate))))

"""How often a population changes its answers, from its changelog: what the planner asks a survey's designer for."""

import numpy as np
from changeling_protocol import MICRO, ExpectedChanges

from .population import Population


def fitted_expectation(population: Population) -> ExpectedChanges:
    """The share of entries with an answer after the first period, and how often an entry changes in a later one.

    Both are of the frozen histories, which the devices report on. A deletion counts as a change.
    """
    states, n = population.frozen, population.entries
    first = (states[:, 1] > 0) @ population.weights / n
    changed = (np.diff(states[:, 1:], axis=1) != 0).sum(1) @ population.weights / n
    rate = changed / max(1, population.periods - 1)
    return ExpectedChanges(round(MICRO * float(first)), min(MICRO, round(MICRO * float(rate))))

"""The population that plans are measured on: a closed cohort whose entries change their answer 0 to 3 times.

Everybody's first answer is uniform and there from the first period on. Then an entry changes 0, 1, … or
`most_changes` times, each equally likely, at independent uniform periods from the second to the last, every time to
a uniformly random other answer. Two changes may fall into one period; what a node sees is their sum.
"""

import numpy as np
from changeling_protocol import MICRO, ExpectedChanges
from changeling_simulations import Population


def cohort(entries: int, answers: int, periods: int, most_changes: int, generator: np.random.Generator) -> Population:
    """Entries with such histories, a row each."""
    state = generator.integers(1, answers + 1, entries)
    changes = generator.integers(0, most_changes + 1, entries)
    times = np.sort(
        np.where(
            np.arange(most_changes) < changes[:, None],
            generator.integers(2, periods + 1, (entries, most_changes)),
            periods + 1,
        )
    )
    states = np.zeros((entries, periods + 1), np.uint16)
    states[:, 1:] = state[:, None]
    for change in range(most_changes):
        state = 1 + (state - 1 + generator.integers(1, answers, entries)) % answers
        after = np.arange(periods + 1) >= times[:, change, None]
        states = np.where(after, state[:, None], states).astype(np.uint16)
    names = tuple(f"answer {i}" for i in range(1, answers + 1))
    return Population(names, states, states, np.ones(entries, np.int64))


def cohort_expectation(periods: int, most_changes: int) -> ExpectedChanges:
    """The rate of changes of such a cohort: all that a planner may know of it."""
    return ExpectedChanges(MICRO, round(MICRO * most_changes / 2 / (periods - 1)))

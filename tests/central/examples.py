"""Everything one entry can do on a small calendar, and the truth of a release of it."""

from itertools import product

import numpy as np
from changeling_central.testing import NoNoise
from changeling_protocol import AtMost, Calendar
from changeling_statistics import MICROSECONDS, Mutations

CALENDAR = Calendar(0, 2, 4)
"""Four periods of two seconds, so that a mutation can fall inside one."""


def histories(answers, constraint, seconds, fixed=False):
    """Every sequence of states at seconds 1..`seconds` that an entry can go through under the constraint."""
    for states in product(range(answers + 1), repeat=seconds):
        times = [t for t, (a, b) in enumerate(zip((0, *states), states, strict=False), 1) if a != b]
        held = {state for state in states if state}
        kept = all(constraint.admits(i, t - times[0]) for i, t in enumerate(times))
        if times and kept and not (fixed and len(held) > 1):
            yield states


def mutations_of(states):
    """The mutations of one entry that holds these states at seconds 1, 2, …"""
    moves = [(t, a, b) for t, (a, b) in enumerate(zip((0, *states), states, strict=False), 1) if a != b]
    times, old, new = (np.array(column) for column in zip(*moves, strict=True))
    nothing = np.zeros(len(moves), np.int64)
    return Mutations(nothing, times * MICROSECONDS, old.astype(np.uint16), new.astype(np.uint16), nothing)


def transcript(mechanism, query, calendar, states, released):
    """What a mechanism would release, without its noise, of one entry beside an empty database; flattened."""
    bounds = [calendar.start + i * calendar.period for i in range(calendar.periods + 1)]
    state, found = mechanism.start(), []
    for change in query.node_changes(mutations_of(states), bounds):
        state, release = mechanism.step(state, change, NoNoise())
        found.extend(released(release))
    return np.array(found)


AT_MOST = [AtMost(1), AtMost(2), AtMost(3)]

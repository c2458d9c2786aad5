"""Changes with Gaussian noise: the exact delta of every history of one entry, from the law itself, not from a PLD."""

from fractions import Fraction

import numpy as np
import pytest
from changeling_central import Law, Windows, clipped_sum, counting, hierarchy, histogram_query, sliding_windows
from changeling_protocol import AtMost, AtMostWithin, Hybrid, TimeBounded

from .exact_losses import exact_delta
from .examples import CALENDAR, histories, transcript

ANSWERS = ["a", "b"]
QUERIES = {
    "count": counting(ANSWERS, ["a"], "a"),
    "histogram": histogram_query(ANSWERS, ANSWERS),
    "fixed": histogram_query(ANSWERS, ANSWERS, fixed=True),
    "sum": clipped_sum({"a": -1, "b": 1}, ANSWERS, -1, 1),
}
CONSTRAINTS = [AtMostWithin(2, 2), AtMost(1), AtMost(2), TimeBounded(2), Hybrid((AtMost(2), TimeBounded(2)))]
WINDOWS = Windows(0, 6, 1, 3)
EPSILON, DELTA = Fraction(1), Fraction(1, 1000)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("windows", [False, True], ids=["hierarchy", "windows"])
def test_the_delta_of_every_history_is_at_most_the_stated_one(name, constraint, windows):
    """Two layers of a hierarchy, or three overlapping windows. The worst history is within 5 times of the delta."""
    query = QUERIES[name]
    if windows:
        mechanism, calendar = (
            sliding_windows(query, WINDOWS, constraint, EPSILON, DELTA, Law.GAUSSIAN),
            WINDOWS.calendar,
        )
    else:
        mechanism, calendar = hierarchy(query, CALENDAR, constraint, EPSILON, DELTA, 2, 2, Law.GAUSSIAN), CALENDAR

    def released(release):
        nodes = release if isinstance(release, tuple) else [release]
        return [value for one in nodes if one is not None for value in one.values]

    found = set()
    for states in histories(2, constraint, 8, query.fixed):
        moved = np.abs(transcript(mechanism, query, calendar, states, released))
        found.add(tuple(sorted(int(shift) for shift in moved if shift)))
    worst = max(exact_delta(Law.GAUSSIAN, mechanism.noise.scale, shifts, float(EPSILON)) for shifts in found)
    assert float(DELTA) / 5 <= worst <= float(DELTA)

"""What is known of a history group's reports, whatever anybody holds: the covariance of the base, by listing it."""

from itertools import product

import numpy as np
import pytest
from changeling_protocol import AtMost, AtMostWithin, Calendar, Group, History, Hybrid, Odds, TimeBounded
from changeling_statistics.randomizers.histories import HistoryBase
from changeling_statistics.testing import lived_histories, questions

CALENDAR = Calendar(0, 10, 5)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "constraint",
    [AtMost(2), AtMost(5), TimeBounded(11), AtMostWithin(3, 15), Hybrid((AtMost(2), TimeBounded(15)))],
    ids=str,
)
def test_the_scatter_of_the_base_is_that_of_all_possible_histories(constraint, closed):
    """Between every two times, of one answer and of two, in cohorts of both kinds and under every constraint."""
    for z, every in product((1, 2, 3) if not closed else (2, 3), (1, 2)):
        history = History.of(Odds(9, 1), range(1, 6, every), constraint, CALENDAR, closed)
        group = Group.of_history(history, z)
        base = HistoryBase.of(group)
        inputs = {
            tuple(true for _, true in questions(group, states))
            for states in lived_histories(z, CALENDAR, constraint, closed)
        }
        held = (np.array(sorted(inputs))[:, :, None] == np.arange(z + (not closed))[not closed :]).astype(float)
        C = np.einsum("hty,huz->tuyz", held, held) / len(held)
        C -= np.einsum("ty,uz->tuyz", held.mean(0), held.mean(0))
        told = float(base.kernel.told)
        same, other = base.scatter
        for t, u in product(range(history.times), repeat=2):
            if t != u:
                expected = same[t, u] * np.eye(z) + other[t, u] * (1 - np.eye(z))
                np.testing.assert_allclose((1 - told) / told**2 * C[t, u], expected, atol=1e-9)

"""What is known of a history group's reports, whatever anybody holds: the covariance of the base, by listing it."""

from itertools import product

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Group,
    History,
    Hybrid,
    Odds,
    ReleasePlan,
    TimeBounded,
)
from changeling_statistics import Solution, releases
from changeling_statistics.estimation.entries import HistoryBase
from changeling_statistics.testing import lived_histories, questions

from ..protocol.examples import survey
from .graphs import random_tallies

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


@pytest.mark.parametrize("odds", [Odds(3, 1), Odds(10**12, 1)])
def test_reports_that_can_never_differ_are_weighed_all_the_same(odds):
    """A closed group whose entries may change for two periods only says the same six times: weights add up to 1, none
    is wild, and the variance is that of one of them."""
    calendar, bound = Calendar(1_800_000_000, 60, 8), TimeBounded(100)
    group = Group.of_history(History.of(odds, range(1, 9), bound, calendar, True), 3)
    assert group.joint.limits.span == 2
    asked = survey(ReleasePlan((group,)), calendar=calendar, constraint=bound, closed=True)
    solution = Solution(releases(asked, random_tallies(asked, np.random.default_rng(1))))
    row = solution.row(8)
    assert row.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(row).sum() == pytest.approx(1, abs=1e-6)
    planned = solution._best.planned
    assert planned[8, 8] == pytest.approx(planned[4, 4], rel=1e-6)

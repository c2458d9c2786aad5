"""Successive surveys: which go on from which, and what they cost a person in all."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import (
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    StateSpace,
    Track,
)
from changeling_simulations import Population, sample_tallies
from changeling_statistics import (
    Estimate,
    Gap,
    Histogram,
    change_across,
    check_successor,
    joined_series,
    next_calendar,
    offsets,
    series,
    total_cost,
)

from ..protocol.examples import survey

FIRST = replace(survey(), breakdowns=(Breakdown("system", ("linux", "mac")),))
SECOND = replace(FIRST, calendar=next_calendar(FIRST, 8), follows=FIRST.id)
THIRD = replace(SECOND, calendar=next_calendar(SECOND, 8), follows=SECOND.id)


def test_surveys_that_go_on_have_offsets() -> None:
    """How many periods lie before each."""
    assert offsets([FIRST, SECOND, THIRD]) == [0, 8, 16]
    assert offsets([FIRST]) == [0]
    with pytest.raises(ValueError, match="does not follow"):
        offsets([FIRST, THIRD])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"follows": b""}, "does not follow"),
        ({"answers": ("coffee", "tea", "neither")}, "answers"),
        ({"breakdowns": ()}, "breakdowns"),
        ({"breakdowns": (Breakdown("system", ("mac", "linux")),)}, "breakdowns"),
        ({"calendar": Calendar(SECOND.calendar.start, 120, 8)}, "period"),
        ({"calendar": Calendar(SECOND.calendar.start + 1, 60, 8)}, "starts where"),
    ],
)
def test_what_does_not_go_on_is_refused_by_name(changed: dict[str, object], named: str) -> None:
    """Another id, other answers or strata, in another order too, another period, a calendar that does not join."""
    check_successor(FIRST, SECOND)
    with pytest.raises(ValueError, match=named):
        check_successor(FIRST, SECOND.asking(**changed))


def test_one_series_runs_across_surveys() -> None:
    """Periods are counted on; gaps stay gaps; where a survey was ended early there are gaps up to its successor."""
    joined = joined_series([FIRST, SECOND], [results(1, 3), results(2, 2)])
    assert [each.period if isinstance(each, Histogram) else -each.span.end for each in joined] == [
        *(1, -2, 3, -4, -5, -6, -7, -8),
        *(9, -10),
    ]
    assert len(joined_series([FIRST, SECOND], [results(1, 8), []])) == 8
    with pytest.raises(ValueError, match="has no 9 results"):
        joined_series([FIRST], [results(1, 9)])


def test_a_change_across_the_boundary_is_a_difference_with_the_sum_of_covariances() -> None:
    """From the last period of a survey to the first of its successor; inside of one survey `change` is to be asked."""
    surveys, joined = [FIRST, SECOND], joined_series([FIRST, SECOND], [results(1, 8), results(5, 3)])
    for start, end in ((8, 9), (3, 11), (1, 9)):
        change = change_across(surveys, joined, Node(start, end))
        before, after = joined[start - 1], joined[end - 1]
        assert isinstance(change, Estimate)
        np.testing.assert_array_equal(change.values, after.estimate.values - before.estimate.values)
        np.testing.assert_array_equal(change.covariance, after.estimate.covariance + before.estimate.covariance)
        assert change.upper_bound
    assert change_across(surveys, joined, Node(0, 9)) is joined[8].estimate
    for window in (Node(8, 10), Node(2, 9)):
        assert change_across(surveys, joined, window) == Gap(window, None)
    for window in (Node(1, 8), Node(0, 8), Node(8 + 1, 8 + 3)):
        with pytest.raises(ValueError, match="inside of one survey"):
            change_across(surveys, joined, window)
    with pytest.raises(ValueError, match="the series has 11 periods"):
        change_across(surveys, joined, Node(1, 12))


def results(seed: int, periods: int) -> list[Histogram | Gap]:
    """A series with a gap in its second period."""
    draws = np.random.default_rng(seed)
    made = [
        Histogram(t, Estimate(draws.normal(size=3), np.eye(3) * t, t % 2 == 1), None) for t in range(1, periods + 1)
    ]
    return [*made[:1], Gap(Node(0, 2), None), *made[2:]][:periods]


def test_the_cost_of_all_is_the_sum_and_per_week_it_is_rounded_up() -> None:
    """24 minutes of three surveys."""
    epsilon, weekly = total_cost([FIRST, SECOND, THIRD])
    assert epsilon == 3 * FIRST.epsilon
    exact = epsilon * 604_800 / 1440
    assert exact <= weekly <= exact + Decimal("0.000001")
    assert FIRST.per_week == weekly


def test_a_change_across_the_boundary_is_unbiased_with_the_covariance_that_it_states() -> None:
    """One population, two surveys, each entry drawing group and coins anew for the second; 150 lives.

    Mean and mean square of the errors, against five standard deviations of each: a false alarm in 10^5 for all four.
    """
    draws, lives, entries = np.random.default_rng(8), 150, 600
    states = np.minimum(np.cumsum(draws.random((entries, 6)) < 0.2, axis=1) + draws.integers(0, 2, (entries, 1)), 2)
    first = survey(two_groups(3), answers=("tea", "coffee"), calendar=Calendar(0, 60, 3))
    second = replace(first, calendar=next_calendar(first, 3), follows=first.id)
    populations = [population(states[:, :3]), population(states[:, 3:])]
    true = [np.bincount(states[:, t], minlength=3)[1:] for t in (1, 4)]
    errors, squares = np.empty((lives, 2)), np.empty((lives, 2))
    for life in range(lives):
        own = [
            series(each, sample_tallies(lived, each, draws), 3)
            for each, lived in zip((first, second), populations, strict=True)
        ]
        change = change_across([first, second], joined_series([first, second], own), Node(2, 5))
        assert isinstance(change, Estimate)
        errors[life] = change.values - (true[1] - true[0])
        squares[life] = errors[life] ** 2 / np.diag(change.covariance)
    spread = errors.std(axis=0) / np.sqrt(lives)
    assert (abs(errors.mean(axis=0)) < 5 * spread).all()
    assert (abs(squares.mean(axis=0) - 1) < 5 * squares.std(axis=0) / np.sqrt(lives)).all()


def two_groups(periods: int) -> ReleasePlan:
    """Half of the entries report their state at every period, half their changes."""
    states = Track(1, KaryResponse(StateSpace(2), Odds(9, 1)), 0, periods)
    changes = Track(1, KaryResponse(MutationSpace(2), Odds(20, 1)), 0, periods)
    return ReleasePlan((Group((states,)), Group((changes,))))


def population(states: "np.typing.NDArray[np.int64]") -> Population:
    """Entries with these states at the ends of a survey's periods, which enrol as it starts."""
    lived = np.hstack([np.zeros((len(states), 1)), states]).astype(np.uint16)
    return Population(("tea", "coffee"), lived, lived, np.ones(len(states), np.int64))

"""Successive surveys: which go on from which, and what they cost a person in all."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import Breakdown, Calendar, Node
from changeling_statistics import (
    Estimate,
    Gap,
    Histogram,
    check_successor,
    joined_series,
    next_calendar,
    offsets,
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

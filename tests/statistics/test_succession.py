"""Successive surveys: which go on from which, and what they cost a person in all."""

from dataclasses import replace
from decimal import Decimal

import pytest
from changeling_protocol import Breakdown, Calendar
from changeling_statistics.succession import check_successor, next_calendar, offsets, total_cost

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
        check_successor(FIRST, replace(SECOND, **changed))


def test_the_cost_of_all_is_the_sum_and_per_week_it_is_rounded_up() -> None:
    """24 minutes of three surveys."""
    epsilon, weekly = total_cost([FIRST, SECOND, THIRD])
    assert epsilon == 3 * FIRST.epsilon
    exact = epsilon * 604_800 / 1440
    assert exact <= weekly <= exact + Decimal("0.000001")
    assert FIRST.per_week == weekly

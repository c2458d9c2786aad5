"""Durations of the command lines."""

import pytest
from changeling_statistics import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("15m", 900), ("1h", 3600), (" 90 d ", 7_776_000), ("13w", 7_862_400)]
)
def test_a_duration_is_a_number_and_a_unit(text, seconds):
    """Printed, it reads back as itself."""
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "1.5h", "-1d", "3mo", "1y", "0s", "1H", "٣d"])
def test_anything_else_is_refused_with_the_text_in_the_error(text):
    """Months and years too, whose lengths differ."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_a_length_of_time_may_be_in_months():
    """A twelfth of 365 days each. Where they are no unit, as for a period, the error says why."""
    assert parse_duration("12mo", months=True) == parse_duration("1y", months=True) == parse_duration("365d")
    with pytest.raises(ValueError, match="months and years differ in length"):
        parse_duration("12mo")

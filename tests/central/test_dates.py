"""Calendars of people: months, and the days of a time zone, in what is read, released, resumed and said."""

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from changeling_central import BadState, UnusableChangelog, read_about, read_ledger, release
from changeling_central.dates import DatedCalendar, Every, bounds_of, calendar_for
from changeling_protocol import TimeBounded
from changeling_statistics import read_rows as changelog_of

BERLIN = ZoneInfo("Europe/Berlin")
ONE = changelog_of([("a", 0, "tea")])


def calendar(every, start, until, zone="Europe/Berlin"):
    return calendar_for(ONE, Every.parsed(every, zone), start, until, None).calendar


def walls(calendar):
    """The boundaries as clocks in Berlin show them."""
    return [datetime.fromtimestamp(calendar.time(i), BERLIN).isoformat()[:16] for i in range(calendar.periods + 1)]


@pytest.mark.parametrize(
    ("every", "start", "until", "expected"),
    [
        ("1mo", "2026-01-31", "2026-05-31", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]),
        ("1q", "2026-01-01", "2027-01-01", ["2026-01-01", "2026-04-01", "2026-07-01", "2026-10-01", "2027-01-01"]),
        ("1y", "2024-02-29", "2026-12-31", ["2024-02-29", "2025-02-28", "2026-02-28"]),
        ("1d", "2026-03-28", "2026-03-31", ["2026-03-28", "2026-03-29", "2026-03-30", "2026-03-31"]),
        ("1w", "2026-10-19", "2026-11-02", ["2026-10-19", "2026-10-26", "2026-11-02"]),
    ],
)
def test_a_period_ends_at_midnight_of_the_zone(every, start, until, expected):
    """Over both changes of the clocks, and at the last day of shorter months, counted from the start each time."""
    made = calendar(every, start, until)
    assert walls(made) == [f"{day}T00:00" for day in expected]


@pytest.mark.parametrize(("zone", "day"), [("Pacific/Apia", "2011-12-30"), ("Pacific/Kwajalein", "1993-08-21")])
def test_a_day_that_a_zone_left_out_is_no_period(zone, day):
    """West became east of the date line; the days beside it are whole, and no period is empty."""
    begin, end = (f"{datetime.fromisoformat(day) + timedelta(days=days):%Y-%m-%d}" for days in (-1, 2))
    made = calendar("1d", begin, end, zone)
    assert (made.periods, made.period) == (2, 86_400)
    assert [made.period_of(made.time(i)) for i in range(made.periods + 1)] == list(range(made.periods + 1))
    assert [made.closed(made.time(i) + 1) for i in range(made.periods + 1)] == list(range(made.periods + 1))
    lengths = [after - before for before, after in pairwise(made.time(i) for i in range(made.periods + 1))]
    assert made.period == min(lengths)


def test_days_have_23_and_25_hours_as_clocks_change_and_hours_stay_hours():
    """In the zone; days of UTC do not."""
    for start, until, hours in (("2026-03-28", "2026-03-31", [24, 23, 24]), ("2026-10-24", "2026-10-27", [24, 25, 24])):
        made = calendar("1d", start, until)
        assert [(made.time(i) - made.time(i - 1)) // 3600 for i in (1, 2, 3)] == hours
        assert calendar("1h", start, until).periods == sum(hours)
        assert calendar("1d", start, until, None).periods == 3


@pytest.mark.parametrize("every", ["1mo", "1q", "1d", "3d"])
def test_a_bound_in_time_is_never_counted_as_fewer_periods_than_it_touches(every):
    """Against every boundary as the first that a time touches, at any length of it up to a year and a half."""
    made = calendar(every, "2025-11-15", "2027-03-01")
    nominal = range(0, (made.periods + 1) * made.period, made.period)
    ends = [made.time(i) for i in range(made.periods + 1)]
    for days in (1, 7, 27, 28, 31, 59, 92, 365, 547):
        within = TimeBounded(days * 86_400)
        assert within.most_nodes(nominal) >= within.most_nodes(ends), (every, days)


MONTHS = {
    "every": "1mo", "zone": "Europe/Berlin", "start": "2026-01-01", "until": "2026-05-01", "through": "2027-01-01",
}  # fmt: skip


def arrivals(tmp_path):
    """An entry comes half an hour before, at, and half an hour after each midnight of a month's first day."""
    rows = []
    for month in (2, 3, 4):
        for minutes in (-30, 0, 30):
            wall = datetime(2026, month, 1) + timedelta(minutes=minutes)
            rows.append((f"{month} {minutes}", wall.isoformat(), "tea"))
    path = tmp_path / "log.csv"
    pl.DataFrame(rows, schema=["entry", "time", "answer"], orient="row").write_csv(path)
    return path


def test_months_are_released_at_the_midnights_of_their_zone(tmp_path):
    """Times without an offset are those of the zone: in files and frames, as text, as datetimes and as dates."""
    path = arrivals(tmp_path)
    text = pl.read_csv(path)
    frames = [text, text.with_columns(pl.col("time").str.to_datetime()), text.to_pandas()]
    for number, source in enumerate((path, *frames)):
        made = release(source, "any answer", **MONTHS, epsilon=1000, at_most=1, output=tmp_path / f"{number}.csv")
        assert [round(row.estimate) for row in made.rows()] == [2, 5, 8, 9]
        assert [row.time for row in made.rows()] == [
            "2026-02-01T00:00:00+01:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00",
            "2026-05-01T00:00:00+02:00",
        ]  # fmt: skip
    said = "4 of 1mo from 2026-01-01T00:00:00+01:00 to 2026-05-01T00:00:00+02:00 (Europe/Berlin)"
    assert read_about(made.output)["periods"] == said
    assert read_ledger(tmp_path / "log.csv.ledger").charges[0].periods == said
    assert made.frame()["time"].dtype == pl.Datetime("us", "Europe/Berlin")


def test_dates_in_a_file_are_midnights_of_the_zone(tmp_path):
    """As dates, as eight digits in text, and as eight digits that are a number."""
    for number, dates in enumerate((pl.Series([datetime(2026, 2, 1).date()]), ["20260201"], [20260201])):
        frame = pl.DataFrame({"entry": ["a"], "time": dates, "answer": ["tea"]})
        frame.write_parquet(tmp_path / f"{number}.parquet")
        for source in (frame, frame.to_pandas(), tmp_path / f"{number}.parquet"):
            made = release(
                source, "any answer", **MONTHS, epsilon=1000, at_most=1, overwrite=True, ledger=tmp_path / "ledger",
                budget=10**5, output=tmp_path / f"{number} {type(source).__module__}.csv",
            )  # fmt: skip
            assert round(made.rows()[0].estimate) == 1, "midnight itself is the end of January"


@pytest.mark.parametrize("kind", ["text", "datetimes"])
def test_a_time_that_clocks_skip_is_refused_by_its_row_and_one_they_show_twice_is_the_first(tmp_path, kind):
    """Half past two, in March and in October."""

    def released(*times):
        frame = pl.DataFrame({"entry": ["a", "b"][: len(times)], "time": times, "answer": ["tea"] * len(times)})
        if kind == "datetimes":
            frame = frame.with_columns(pl.col("time").str.to_datetime())
        day = {**MONTHS, "every": "1h", "start": "2026-10-25", "until": "2026-10-26", "epsilon": 1000, "at_most": 1}
        day["mechanism"] = "dcr"
        return release(frame, "any answer", **day, output=tmp_path / "out.csv")

    with pytest.raises(UnusableChangelog, match="row 2: its time does not exist in the time zone"):
        released("2026-03-28T02:30:00", "2026-03-29T02:30:00")
    assert [round(row.estimate) for row in released("2026-10-25T02:30:00").rows()][:4] == [0, 0, 1, 1]


def test_a_release_goes_on_by_the_boundaries_that_it_began_with(tmp_path, monkeypatch):
    """Whatever rules of the zone say later, which is told; another zone or another length of periods is refused."""
    path, options = arrivals(tmp_path), {**MONTHS, "epsilon": 1000, "at_most": 1, "output": tmp_path / "out.csv"}
    begun = release(path, "any answer", **{**options, "through": "2026-03-15"})
    assert begun.published == 2
    for other in ({"zone": "Europe/London"}, {"every": "1w"}):
        with pytest.raises(BadState, match=r"with another (calendar|dates)"):
            release(path, "any answer", **{**options, **other})
    honest = Every.bounds
    monkeypatch.setattr(Every, "bounds", lambda self, start: (at + 3600 * (at > 1777e6) for at in honest(self, start)))
    ended = release(path, "any answer", **{**options, "until": None})
    assert ended.published == 2
    assert ended.calendar == begun.calendar
    assert "the rules of the time zone were changed since the release began: it keeps its own" in ended.notes


def test_a_calendar_of_months_may_be_read_from_the_data(tmp_path):
    """From the first of a month, quarter or year on; it is said that it is not protected."""
    for every, first, periods in (("1mo", "2026-01-01", 4), ("1q", "2026-01-01", 2), ("1y", "2026-01-01", 1)):
        made = release(
            arrivals(tmp_path), "any answer", every=every, zone="Europe/Berlin", epsilon=1, at_most=1, plan=True,
            output=tmp_path / "out.csv",
        )  # fmt: skip
        assert isinstance(made.calendar, DatedCalendar)
        assert (walls(made.calendar)[0], made.calendar.periods) == (f"{first}T00:00", periods)
        assert made.calendar_from_data
        assert len(bounds_of(made.calendar)) == periods + 1


def test_windows_are_whole_numbers_of_months(tmp_path):
    """A year of months, three days of days; no month of days."""
    assert Every.parsed("1mo", "Europe/Berlin").periods_of("1y") == 12
    assert Every.parsed("1d", "Europe/Berlin").periods_of("2w") == 14
    assert Every.parsed("1d", None).periods_of("48h") == 2
    for every, window in (("1d", "1mo"), ("1mo", "31d"), ("1q", "1mo"), ("1d", "24h")):
        with pytest.raises(ValueError, match=f"a window is a whole number of periods of {every}, got {window}"):
            Every.parsed(every, "Europe/Berlin").periods_of(window)
    with pytest.raises(ValueError, match="there is no time zone 'Berlin'"):
        release(arrivals(tmp_path), "any answer", every="1d", zone="Berlin", epsilon=1, at_most=1, output="out.csv")

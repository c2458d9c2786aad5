"""What a person may ask `changeling release` for: beyond sane bounds it is refused, before anything is written."""

import os

import pytest
from changeling_central import read_rows

from .test_release_cli import DATES, log, release

__all__ = ["log"]

TWICE = ["--at-most", "2"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": "1e-300"}, "a budget is a number"),
        ({"epsilon": "1e-12"}, "epsilon is 1e-09 to 1000, got 1e-12"),
        ({"epsilon": "1e300"}, "a budget is a number"),
        ({"epsilon": "1e5000"}, "a budget is a number"),
        ({"epsilon": "5000"}, "epsilon is"),
        ({"epsilon": "1e-6", "more": ["--delta", "1e-6", "--law", "gaussian"]}, "with a delta, epsilon is"),
        ({"epsilon": "1e-5", "more": ["--delta", "1e-6"]}, "with a delta, epsilon is at least 0.0001"),
        ({"more": ["--delta", "1e-30", "--law", "gaussian"]}, "delta is 0 or at least"),
        ({"more": ["--mechanism", "dcr", "--window", "3h"]}, "dcr has none"),
        ({"more": ["--at-most", "9" * 30]}, "--at-most is at most"),
        ({"more": ["--until", "2100-01-01", "--start", "2013-01-01"], "every": "1m"}, "at most 1000000"),
        ({"more": ["--plot", "out.csv"]}, ".png, .svg or .pdf"),
        ({"more": ["--plot", "nowhere/p.png"]}, "no folder nowhere"),
        ({"output": "nowhere/out.csv"}, "there is no folder"),
        ({"query": "each answer", "more": ["--answers", "United,,Delta"]}, "has no name"),
        ({"more": ["--answers", "Delta"]}, "names 'United', which is none of the answers: Delta"),
        ({"query": "answer == 'Untied'", "more": ["--answers", "United,Delta"]}, "names 'Untied'"),
        ({"query": "not " * 5000 + "answer == 'a'"}, "not a query"),
    ],
)
def test_beyond_the_bounds_nothing_is_drawn_or_written(log, capsys, options, said):
    """One line that says the bound, no traceback, no file; quickly."""
    more = [*TWICE, *DATES, *options.pop("more", [])]
    before = sorted(log.parent.rglob("*"))
    assert release(log, *more, **options) == 1
    assert said in capsys.readouterr().err
    assert sorted(log.parent.rglob("*")) == before


def test_a_picture_is_never_written_over_the_changelog(log, capsys):
    """Not by its name, not through a link."""
    database = log.rename(log.with_name("log.png"))
    written = database.read_bytes()
    link = log.with_name("link.png")
    link.symlink_to(database)
    for plot in (database, link):
        assert release(database, *TWICE, *DATES, "--plot", plot) == 1
        assert "is the changelog" in capsys.readouterr().err
    assert database.read_bytes() == written


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_no_changelog(tmp_path, capsys, kind):
    """A pipe nobody writes to would be waited for."""
    path = tmp_path / "log.csv"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    assert release(path, *TWICE, *DATES) == 1
    assert "is no file" in capsys.readouterr().err


def test_periods_that_have_not_ended_are_not_released_unless_asked_for(log, monkeypatch, capsys):
    """Their rows are still to come, and would be refused afterwards. Each later run goes on; half of a day remains."""
    written = log.with_name("out.csv")
    for now, rows in [
        (1357041600, 12),
        (1357045199, 12),
        (1357045201, 13),
    ]:  # 2013-01-01T12:00, just before 13:00, after
        monkeypatch.setattr("changeling_central.api.time.time", lambda now=now: now + 0.5)
        assert release(log, *TWICE, *DATES) == 0
        assert len(read_rows(written)) == rows
    assert "calendar's end" not in capsys.readouterr().err
    assert release(log, *TWICE, *DATES, "--through", "2013-01-03") == 0
    assert len(read_rows(written)) == 48
    assert "2013-01-03T00:00:00Z, the calendar's end" in capsys.readouterr().err


def test_of_a_calendar_that_began_what_is_left_out_is_remembered(log):
    """One end given, or neither."""
    assert release(log, *TWICE, *DATES, "--through", "2013-01-01T10:00") == 0
    assert release(log, *TWICE, *DATES[:2], "--through", "2013-01-01T11:00") == 0
    assert release(log, *TWICE, *DATES[2:], "--through", "2013-01-01T12:00") == 0
    assert len(read_rows(log.with_name("out.csv"))) == 12


@pytest.mark.parametrize(("mechanism", "said"), [("partitioning", True), ("counter", False)])
def test_a_column_of_standard_errors_that_is_empty_is_explained(log, capsys, mechanism, said):
    """Where they are known, nothing is said."""
    assert release(log, *TWICE, *DATES, "--mechanism", mechanism) == 0
    assert ("no standard error of this mechanism is known" in capsys.readouterr().err) == said


def test_an_output_that_is_gone_is_not_replaced_by_an_empty_one(log, capsys):
    """It can be put back."""
    assert release(log, *TWICE, *DATES, "--through", "2013-01-01T10:00") == 0
    written = log.with_name("out.csv")
    written.unlink()
    assert release(log, *TWICE, *DATES) == 1
    assert "lost rows" in capsys.readouterr().err
    assert not written.exists()


def test_before_the_first_period_has_ended_a_picture_is_no_error(log, capsys):
    """A run every day begins with one that has nothing to draw."""
    picture = log.with_name("out.png")
    assert release(log, *TWICE, *DATES, "--through", "2013-01-01T00:10", "--plot", picture) == 0
    assert "published 0 periods" in capsys.readouterr().err
    assert not picture.exists()
    assert release(log, *TWICE, *DATES, "--through", "2013-01-01T01:00", "--plot", picture) == 0
    assert picture.exists()

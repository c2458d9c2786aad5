"""`changeling release`, as a person uses it."""

import csv

import pytest
from changeling_aggregator.central.release.output import read_rows
from changeling_aggregator.cli import run

LOG = "entry,time,answer\n" + "".join(
    f"{i},2013-01-01T{i % 20:02d}:{i % 60:02d}:00Z,{'United' if i % 3 else 'Delta'}\n" for i in range(200)
) + "".join(f"{i},2013-01-02T{i % 20:02d}:{i % 60:02d}:00Z,\n" for i in range(150))  # fmt: skip
DATES = ["--start", "2013-01-01", "--until", "2013-01-03"]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def release(log, *more, query="answer == 'United'", output="out.csv", epsilon="1", every="1h"):
    arguments = ["release", log, "--query", query, "--every", every, "--epsilon", epsilon, "-o", log.parent / output]
    return run([str(part) for part in [*arguments, *more]])


def test_a_release_is_written_drawn_and_run_again_changes_nothing(log, capsys):
    """48 periods with standard errors, a picture, and what it costs, said plainly."""
    assert release(log, "--at-most", 2, *DATES, "--plot", log.parent / "out.png") == 0
    assert "at most epsilon 1" in capsys.readouterr().err
    written = (log.parent / "out.csv").read_bytes()
    rows = read_rows(log.parent / "out.csv")
    assert [row[0] for row in rows] == list(range(1, 49))
    assert abs(rows[23][3] - 133) < 12 * rows[23][4]
    assert (log.parent / "out.png").stat().st_size > 10_000
    assert release(log, "--at-most", 2, *DATES) == 0
    assert release(log, "--at-most", 2) == 0, "the calendar is remembered"
    assert (log.parent / "out.csv").read_bytes() == written
    assert "published 0 periods" in capsys.readouterr().err


def test_histograms_windows_of_time_and_gaussian_noise(log):
    """Columns in the order declared; --through stops early and a later run goes on."""
    options = ["--at-most", 2, *DATES, "--law", "gaussian", "--delta", "1e-6", "--answers", "United,Delta", "--fixed"]
    arguments = {"query": "each answer", "output": "out.jsonl"}
    assert release(log, *options, "--through", "2013-01-01T10:00", **arguments) == 0
    assert [row[:3:2] for row in read_rows(log.parent / "out.jsonl")][-2:] == [(10, "United"), (10, "Delta")]
    assert release(log, *options, **arguments) == 0
    assert read_rows(log.parent / "out.jsonl")[-1][0] == 48


def test_a_calendar_read_from_the_data_is_said_to_be(log, capsys):
    """Whole days around the first and last mutation, with a warning."""
    assert release(log, "--at-most", 2, "--mechanism", "dcr") == 0
    assert "read from the data" in capsys.readouterr().err
    assert len(read_rows(log.parent / "out.csv")) == 48


def test_an_entry_beyond_the_constraint_stops_the_run_or_is_frozen(log, capsys):
    """The line is named; frozen, the run goes through."""
    assert release(log, "--at-most", 1, *DATES) == 1
    assert "log.csv" not in capsys.readouterr().out
    with (log.parent / "out.csv").open() as file:
        assert [row["period"] for row in csv.DictReader(file)] == [str(i) for i in range(1, 24)]
    assert release(log, "--at-most", 1, *DATES, "--freeze", output="frozen.csv") == 0
    assert len(read_rows(log.parent / "frozen.csv")) == 48


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"more": []}, "say how often an entry may mutate"),
        ({"query": "answer = 1"}, "not a query"),
        ({"query": "each answer"}, "would come from the data"),
        ({"output": "out.txt"}, ".csv or a .jsonl"),
        ({"epsilon": "0"}, "epsilon > 0"),
        ({"epsilon": "much"}, "a budget is a number"),
        ({"more": ["--at-most", "2", "--mechanism", "magic"]}, "no mechanism 'magic'"),
        ({"more": ["--at-most", "2", "--law", "cauchy"]}, "laplace or gaussian"),
        ({"more": ["--at-most", "2", "--law", "gaussian"]}, "delta above 0"),
        ({"more": ["--at-most", "2", "--start", "2013-01-02", "--until", "2013-01-01"]}, "there is no period"),
    ],
)
def test_what_cannot_be_released_is_refused_in_words_and_leaves_nothing(log, capsys, options, said):
    """One line, exit code 1, no output file."""
    more = options.pop("more", ["--at-most", "2", *DATES])
    assert release(log, *more, **options) == 1
    errors = capsys.readouterr().err
    assert said in errors
    assert "Traceback" not in errors
    assert not list(log.parent.glob("out.*"))


def test_within_bounds_and_both_constraints_are_taken(log):
    """--within alone, and either of the two."""
    assert release(log, "--within", "2d", *DATES) == 0
    assert release(log, "--within", "1h", "--at-most", 2, *DATES, output="either.csv") == 0

"""`changeling release`, as a person uses it."""

import errno
import gzip
import os

import pytest
from changeling_central import read_rows
from changeling_commands import main as run

LOG = "entry,time,answer\n" + "".join(
    f"{i},2013-01-01T{i % 20:02d}:{i % 60:02d}:00Z,{'United' if i % 3 else 'Delta'}\n" for i in range(200)
) + "".join(f"{i},2013-01-02T{i % 20:02d}:{i % 60:02d}:00Z,\n" for i in range(150))  # fmt: skip
DATES, TWICE = ["--start", "2013-01-01", "--until", "2013-01-03"], ["--at-most", "2"]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def release(log, *more, query="answer == 'United'", output="out.csv", epsilon="1", every="1h", mechanism="dcr"):
    """By the mechanism that is quickest to choose, if none is among the options."""
    arguments = ["release", log, "--query", query, "--every", every, "--epsilon", epsilon, "-o", log.parent / output]
    chosen = ["--mechanism", mechanism] * (mechanism is not None)
    return run([str(part) for part in [*arguments, *chosen, *more]])


def test_a_release_is_written_drawn_and_run_again_changes_nothing(log, capsys, monkeypatch):
    """48 periods with standard errors, a picture, and what it costs, said plainly."""
    assert release(log, "--at-most", 2, *DATES, "--plot", log.parent / "out.png", mechanism=None) == 0
    said = capsys.readouterr().err
    assert "at most epsilon 1" in said
    assert "from the data" not in said
    written = (log.parent / "out.csv").read_bytes()
    rows = read_rows(log.parent / "out.csv")
    assert [row[0] for row in rows] == list(range(1, 49))
    assert abs(rows[23][3] - 133) < 12 * rows[23][4]
    assert (log.parent / "out.png").stat().st_size > 10_000
    monkeypatch.setattr("changeling_central.offers.compared", None)
    assert release(log, "--at-most", 2, *DATES, mechanism=None) == 0, "nothing is chosen again"
    assert release(log, "--at-most", 2, mechanism=None) == 0, "the calendar is remembered"
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


GIVEN = "at most epsilon 1, given the calendar, which was read from the data and is not protected"


@pytest.mark.parametrize("given", [[], DATES[:2], DATES[2:]])
def test_a_calendar_read_from_the_data_is_no_part_of_the_claim(log, capsys, given):
    """Whole days around the first and last mutation, with a warning; later runs remember, whatever they are given."""
    assert release(log, "--at-most", 2, *given, "--through", "2013-01-01T10:00") == 0
    said = capsys.readouterr().err
    assert "the calendar is read from the data" in said
    assert GIVEN in said
    for again in ([], DATES):
        assert release(log, "--at-most", 2, *again) == 0
        assert GIVEN in capsys.readouterr().err
    assert len(read_rows(log.parent / "out.csv")) == 48


def test_a_file_that_is_no_release_is_written_over_only_where_the_user_says_so(log, monkeypatch, capsys):
    """Asked on a terminal; refused without one. For the output of a release whose state is lost nobody is asked."""
    output = log.parent / "out.csv"
    output.write_text("notes\n")
    assert release(log, "--at-most", 2, *DATES) == 1
    assert "exists without its state" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for agreed in (False, True):
        assert output.read_text() == "notes\n"
        monkeypatch.setattr("typer.confirm", lambda *_, agreed=agreed, **__: agreed)
        assert release(log, "--at-most", 2, *DATES) == int(not agreed)
    assert len(read_rows(output)) == 48
    (log.parent / "out.csv.state").unlink()
    monkeypatch.setattr("typer.confirm", None)
    assert release(log, "--at-most", 2, *DATES) == 1
    assert "exists without its state" in capsys.readouterr().err


def test_without_an_output_it_is_named_after_the_changelog_in_this_folder(log, monkeypatch, tmp_path):
    """The shortest command works as it stands, compressed or not, and a second run goes on."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    packed = log.with_name("packed.2013.csv.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for changelog, name in ((log, "log.released.csv"), (packed, "packed.2013.released.csv")):
        command = ["release", str(changelog), "--query", "answer == 'United'", "--every", "1h", "--epsilon", "1"]
        assert run([*command, "--at-most", "2"]) == 0
        written = (here / name).read_bytes()
        assert run([*command, "--at-most", "2"]) == 0
        assert (here / name).read_bytes() == written
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "here", "log.csv", "log.csv.ledger", "log.csv.ledger.lock",
        "packed.2013.csv.gz", "packed.2013.csv.gz.ledger", "packed.2013.csv.gz.ledger.lock",
    ]  # fmt: skip


def test_epsilon_is_printed_as_it_was_given(log, capsys):
    """Rounded to six digits, a third is more than what is said."""
    for output, epsilon in (("one.csv", "1/3"), ("two.csv", " 2 ")):
        assert release(log, *TWICE, *DATES, "--budget", 3, epsilon=epsilon, output=output) == 0
        assert f"costs an entry at most epsilon {epsilon.strip()}\n" in capsys.readouterr().err


def test_what_differs_from_the_begun_release_is_listed(log, capsys):
    """Each by its name, before anything is chosen."""
    assert release(log, "--at-most", 2, *DATES) == 0
    for options, words in [
        (["--at-most", 3, *DATES], "constraint"),
        (["--at-most", 2, *DATES[:2], "--until", "2013-01-04"], "calendar"),
        (["--at-most", 3, *DATES[:2], "--until", "2013-01-04", "--fixed"], "query, calendar, constraint"),
        (["--at-most", 2, *DATES, "--delta", "1e-6"], "budget"),
        (["--at-most", 2, *DATES, "--mechanism", "counter"], "mechanism"),
        (["--at-most", 2, *DATES, "--freeze"], "freeze"),
    ]:
        assert release(log, *options) == 1
        assert f"belongs to a release with another {words};" in capsys.readouterr().err
    assert release(log, "--at-most", 2, *DATES, query="answer == 'Delta'", epsilon="2") == 1
    assert "with another query, budget;" in capsys.readouterr().err


def test_a_full_disk_says_what_to_do(log, capsys, monkeypatch):
    """One line with the file."""

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    flush = os.fsync
    monkeypatch.setattr(os, "fsync", full)
    assert release(log, "--at-most", 2, *DATES) == 1
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "log.csv.ledger.new" in said
    assert "nothing is lost: once that is mended, the same command goes on" in said
    monkeypatch.setattr(os, "fsync", flush)
    assert release(log, "--at-most", 2, *DATES) == 0


def test_mutations_at_one_midnight_have_a_calendar(log):
    """The day that begins then."""
    log.write_text("entry,time,answer\n1,2013-01-02,United\n2,2013-01-02,Delta\n")
    assert release(log, "--at-most", 2) == 0
    rows = read_rows(log.parent / "out.csv")
    assert (len(rows), rows[-1][1]) == (24, "2013-01-03T00:00:00Z")


@pytest.mark.parametrize(
    ("mechanism", "label"), [("partitioning", "estimate"), ("dcr", "estimate, and its 95% interval")]
)
def test_a_picture_has_bands_only_where_errors_are_known(log, capsys, monkeypatch, mechanism, label):
    """And its axis says which; a column of standard errors that is empty is explained."""
    from matplotlib.axes import Axes

    bands, labels, band, named = [], [], Axes.fill_between, Axes.set_ylabel
    monkeypatch.setattr(Axes, "fill_between", lambda axes, *a, **k: (bands.append(a), band(axes, *a, **k))[1])
    monkeypatch.setattr(Axes, "set_ylabel", lambda axes, text: (labels.append(text), named(axes, text))[1])
    assert release(log, "--at-most", 2, *DATES, "--mechanism", mechanism, "--plot", log.parent / "p.svg") == 0
    assert (len(bands), labels) == (int("interval" in label), [label])
    assert ("no standard error of this mechanism is known" in capsys.readouterr().err) == ("interval" not in label)


def test_an_entry_beyond_the_constraint_stops_the_run_or_is_frozen(log, capsys):
    """The line is named, before anything is charged; until then it can be released; frozen, the run goes through."""
    assert release(log, "--at-most", 1, *DATES) == 1
    assert "line 202" in capsys.readouterr().err
    assert [path.name for path in log.parent.iterdir() if "lock" not in path.name] == ["log.csv"]
    assert release(log, "--at-most", 1, *DATES, "--through", "2013-01-01T23:30") == 0
    assert release(log, "--at-most", 1, *DATES) == 1
    assert [row.period for row in read_rows(log.parent / "out.csv")] == list(range(1, 24))
    assert release(log, "--at-most", 1, *DATES, "--freeze", "--budget", "2", output="frozen.csv") == 0
    assert len(read_rows(log.parent / "frozen.csv")) == 48


REFUSED = [
    ({"query": "answer = 1"}, "not a query"),
    ({"query": "each answer"}, "would come from the data"),
    ({"query": "price == 'tea'"}, "the columns must be entry,time,price"),
    ({"query": "each answer", "more": ["--answers", "United,,Delta"]}, "has no name"),
    ({"more": ["--answers", "Delta"]}, "names 'United', which is none of the answers: Delta"),
    ({"output": "out.txt"}, ".csv or a .jsonl"),
    ({"output": "nowhere/out.csv"}, "there is no folder"),
    ({"epsilon": "0"}, "epsilon > 0"),
    ({"epsilon": "much"}, "a budget is a number"),
    ({"epsilon": "1e-300"}, "a budget is a number"),
    ({"epsilon": "1e5000"}, "a budget is a number"),
    ({"epsilon": "1e-12"}, "epsilon is 1e-09 to 1000, got 1e-12"),
    ({"epsilon": "5000"}, "epsilon is"),
    ({"epsilon": "1e-6", "more": ["--delta", "1e-6", "--law", "gaussian"]}, "with a delta, epsilon is"),
    ({"epsilon": "1e-5", "more": ["--delta", "1e-6"]}, "with a delta, epsilon is at least 0.0001"),
    ({"more": ["--delta", "1e-30", "--law", "gaussian"]}, "delta is 0 or at least"),
    ({"more": ["--mechanism", "magic"]}, "no mechanism 'magic'"),
    ({"more": ["--mechanism", "square-root"]}, "needs a delta above 0: --delta 1e-6, or --rho"),
    ({"more": ["--law", "cauchy"]}, "laplace or gaussian"),
    ({"more": ["--law", "gaussian"]}, "delta above 0"),
    ({"more": ["--mechanism", "swcr", "--window", "8h", "--law", "gaussian"]}, "Gaussian noise needs a delta above 0"),
    ({"more": ["--mechanism", "dcr", "--window", "3h"]}, "dcr has none"),
    ({"more": ["--start", "2013-01-02", "--until", "2013-01-01"]}, "there is no period"),
    ({"more": ["--until", "2100-01-01", "--start", "2013-01-01"], "every": "1m"}, "at most 1000000"),
    ({"more": ["--at-most", "9" * 30]}, "--at-most is at most"),
    ({"more": ["--plot", "out.csv"]}, ".png, .svg or .pdf"),
    ({"more": ["--plot", "nowhere/p.png"]}, "no folder nowhere"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_cannot_be_released_is_refused_in_words_and_leaves_nothing(log, capsys, options, said):
    """One line, exit code 1, and no file: nothing is drawn or charged."""
    more = [*TWICE, *DATES, *options.get("more", [])]
    before = sorted(log.parent.rglob("*"))
    assert release(log, *more, **{name: given for name, given in options.items() if name != "more"}) == 1
    errors = capsys.readouterr().err
    assert said in errors
    assert "Traceback" not in errors
    assert sorted(log.parent.rglob("*")) == before


def test_within_bounds_and_both_constraints_are_taken(log):
    """--within alone, and both at once; a second run finds its own terms again."""
    for _ in range(2):
        assert release(log, "--within", "2d", *DATES) == 0
        assert release(log, "--within", "2d", "--at-most", 2, *DATES, "--budget", "2", output="both.csv") == 0


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


def test_periods_that_have_not_ended_are_not_released_whoever_asks_for_them(log, monkeypatch, capsys):
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
    assert len(read_rows(written)) == 13
    assert "of which 13 have ended: the others wait until they have" in capsys.readouterr().err
    monkeypatch.undo()
    assert release(log, *TWICE, *DATES, "--through", "2013-01-03") == 0
    assert len(read_rows(written)) == 48
    assert "2013-01-03T00:00:00Z, the calendar's end" in capsys.readouterr().err


def test_before_the_first_period_has_ended_nothing_is_charged_and_a_picture_is_no_error(log, capsys):
    """A run every day begins with one that has nothing to draw: it is said when that will be, and the same command
    begins later."""
    picture = log.with_name("out.png")
    assert release(log, *TWICE, *DATES, "--through", "2013-01-01T00:10", "--plot", picture) == 0
    said = capsys.readouterr().err
    assert "published 0 periods" in said
    assert "the first period ends at 2013-01-01T01:00:00Z: nothing is charged yet" in said
    assert [path.name for path in log.parent.iterdir()] == ["log.csv"]
    assert release(log, *TWICE, *DATES, "--through", "2013-01-01T01:00", "--plot", picture) == 0
    assert picture.exists()


def test_a_budget_of_nothing_is_refused_in_one_sentence(log, capsys):
    """Not in one for each mechanism that might have been chosen, nor after others."""
    assert release(log, *TWICE, epsilon="0", mechanism=None) == 1
    assert capsys.readouterr().err == "changeling: a budget has epsilon > 0 and 0 <= delta < 1, got 0 and 0\n"

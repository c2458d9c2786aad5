"""`release` as a function, of files, frames and changelogs; what a curator is told, and what the output's head says."""

import io
import re
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from changeling_central import CentralError, ConstraintBroken, read_about, release
from changeling_statistics import BadChangelog, read_csv

from .examples import command, forbid_draws, release_of

ROWS = {
    "entry": ["a", "b", "c", "a", "b", "a", "d"],
    "time": [f"2026-01-01T0{n}:30:00Z" for n in range(7)],
    "answer": ["tea", "tea", "coffee", "coffee", "", "", "cocoa"],
    "price": ["3", "4", "oops", "12", "-1", "2.5", "7"],
}
DAY = {"every": "1h", "epsilon": 1, "at_most": 3, "start": "2026-01-01", "until": "2026-01-01T08:00"}


def released(folder, query="any answer", rows=ROWS, name="out.csv", mechanism="dcr", **given):
    given = {**DAY, "mechanism": mechanism, **given}
    return release(pl.DataFrame(rows), query, output=folder / name, **given)


def test_freezing_says_how_many_entries_it_froze_and_how_far_off_that_is(tmp_path):
    """By the truth of both changelogs at every period; before anything is drawn, and never in the output."""
    told = []
    one = released(tmp_path, at_most=1, freeze=True, on_note=told.append)
    said = "--freeze froze 2 entries of 4 and left out 3 mutations of 7: what is counted is off by up to +2"
    assert one.asides[0].startswith(said + " (any answer, at 2026-01-01T06:00:00Z)")
    assert f"not private, for the curator alone: {one.asides[0]}" in told
    text = (tmp_path / "out.csv").read_text()
    assert "froze" not in text
    assert "mutations beyond it are left out (--freeze)" in text
    two = released(tmp_path, freeze=True, name="two.csv")
    assert two.asides == ("--freeze froze no entry",)


def test_names_that_no_row_holds_and_values_that_nobody_declared_are_said(tmp_path):
    """Named to the curator, and where they are counted; no name of them is in the output."""
    one = released(tmp_path, "answer in ('tea', 'Coffee')", name="one.csv")
    assert one.asides == ("no row holds 'Coffee'",)
    declared = ["tea", "coffee", "mate"]
    two = released(tmp_path, "each answer", name="two.csv", answers=declared)
    assert two.asides == (
        "no row holds 'mate'",
        "1 row holds one of 1 answer that nobody declared, 'cocoa': counted nowhere",
    )
    three = released(tmp_path, "each answer or other", name="three.csv", answers=declared)
    assert three.asides[1].endswith("'cocoa': counted as other")
    four = released(tmp_path, "any answer", name="four.csv", answers=declared)
    assert four.asides[1].endswith("'cocoa': counted, as the query counts them all")
    for name in ("two", "three"):
        assert "cocoa" not in (tmp_path / f"{name}.csv").read_text()
    assert {row.name for row in three.rows()} == {"tea", "coffee", "mate", "other"}


def test_a_new_value_never_stops_a_running_release(tmp_path):
    """Nobody declared it; the release goes on, and its columns stay the same."""
    early = {key: values[:6] for key, values in ROWS.items()}
    given = {"query": "each answer or other", "answers": ["tea", "coffee"]}
    released(tmp_path, rows=early, through="2026-01-01T06:00", **given)
    late = released(tmp_path, **given)
    assert (late.published, len(late.rows())) == (2, 8 * 3)


def test_what_a_sum_clips_and_cannot_read_is_said(tmp_path):
    """Of another column than the answer, as the bounds are stated; the published rows are count, sum and mean. Only
    plain decimal numbers add up: what Python would read as a number besides is told."""
    one = released(tmp_path, "mean of price from 0 to 10 by 0.5", at_most=4, epsilon=1000)
    assert one.asides == ("1 of 7 values hold what is no finite number, and add nothing", "2 of 7 values are clipped")
    shown = {row.name: row.estimate for row in one.rows() if row.period == 8}
    held = [2.5, 0, 7]  # the price of a by then, of b clipped, of d; that of c is no number
    assert shown["count of price"] == pytest.approx(3, abs=0.5)
    assert shown["mean of price"] == pytest.approx(np.mean(held), abs=0.5)
    prices = ["2.5e0", "1_0", " 1", "1 ", "١", "0x1", "infinity", "1,5"]
    rows = {"entry": list("abcdefgh"), "time": ["2026-01-01T00:30:00Z"] * 8, "answer": ["tea"] * 8, "price": prices}
    given = {"rows": rows, "name": "plain.csv", "at_most": 4, "epsilon": 1000}
    one = released(tmp_path, "sum of price from 0 to 10 by 0.5", **given)
    assert "7 of 8 values hold what is no finite number, and add nothing" in one.asides
    assert one.rows()[-1].estimate == pytest.approx(2.5, abs=0.5)


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_the_head_of_the_output_says_shape_noise_guarantee_and_unit(tmp_path, name):
    """The same that is printed; rows are read as if it were not there, by our reader and by polars."""
    one = released(tmp_path, name=name, mechanism="dcr")
    head = read_about(tmp_path / name)
    assert head == dict(one.about)
    assert head["guarantee"] == "epsilon 1, for the whole release"
    assert head["unit of privacy"] == "an entry, with all its mutations"
    assert head["mechanism"] == "hierarchy; widths 1, law laplace, scale 3"
    assert head["periods"] == "8 of 1h from 2026-01-01T00:00:00Z to 2026-01-01T08:00:00Z"
    assert len(one.rows()) == 8
    if name.endswith("csv"):
        frame = pl.read_csv(io.BytesIO((tmp_path / name).read_bytes()), comment_prefix="# ")
        assert frame["period"].to_list() == list(range(1, 9))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mechanism": "square-root", "delta": "1e-6"}, r"square-root; band 8, law gaussian, scale [\d.]+ a draw"),
        ({"mechanism": "ahead"}, r"ahead; law laplace, scale [\d.]+( to [\d.]+)? on blocks of 1 period(, .*)?"),
        ({"mechanism": "hdcr"}, r"hierarchy; widths 1( \d)*, law laplace, scale \d+"),
        ({"mechanism": "swcr", "window": "2h"}, r"windows; window 2, law laplace, scale \d+"),
        ({"mechanism": "counter"}, r"counter; each 1/3, width 1"),
    ],
)
def test_the_head_says_the_noise_of_the_nodes_in_what_the_query_counts(tmp_path, given, said):
    """Not as numbers of a lattice or of a curve, which nobody could check."""
    assert re.fullmatch(said, dict(released(tmp_path, **given).about)["mechanism"])


def test_the_head_states_no_errors_where_a_mechanism_has_none(tmp_path):
    """Its columns are empty, and the head says why."""
    one = released(tmp_path, mechanism="partitioning")
    assert one.rows()[-1].standard_error is None
    head = read_about(tmp_path / "out.csv")
    said = "not stated, as the errors of this mechanism depend on the data"
    assert (head["standard error"], head["low, high"]) == (said, said)


def test_periods_that_have_not_ended_wait_whatever_through_says(tmp_path):
    """By the clock; the curator hears of it, and they are published when they have ended."""
    now = datetime(2026, 1, 1, 3, 30, tzinfo=UTC).timestamp()
    one = released(tmp_path, through="2026-01-01T08:00", clock=lambda: now)
    assert (one.published, one.last) == (3, 3)
    assert "--through names 8 periods, of which 3 have ended: the others wait until they have" in one.notes
    two = released(tmp_path, through="2026-01-01T08:00", clock=lambda: now + 10**6)
    assert (two.published, two.last) == (5, 8)
    assert not [note for note in two.notes if "wait" in note]


def test_dates_are_taken_where_times_are(tmp_path):
    """Of Python's datetime module: a date is its midnight."""
    days = {"every": "1d", "start": date(2026, 1, 1), "until": date(2026, 1, 4), "through": date(2026, 1, 3)}
    one = released(tmp_path, **days)
    assert [row.time for row in one.rows()] == ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]


def test_a_plan_of_a_mean_says_what_count_sum_and_mean_err_by(tmp_path):
    """Each in its own unit, as the rows of the release itself state it."""
    given = {"query": "mean of price from 0 to 10 by 0.5", "epsilon": 1000, "at_most": 4}
    (said,) = [each for each in released(tmp_path, plan=True, **given).asides if each.startswith("expect")]
    rows = released(tmp_path, **given).rows()
    for name in ("count of price", "sum of price", "mean of price"):
        stated = np.sqrt(np.mean([row.standard_error**2 for row in rows if row.name == name]))
        (planned,) = re.findall(rf"the {name} to err by ([\d.e-]+)", said)
        assert float(planned) == pytest.approx(stated, rel=0.5 if name == "mean of price" else 0.01)


def test_a_mechanism_for_something_else_says_what_it_is_good_for_before_anything_is_drawn(tmp_path, monkeypatch):
    """With the error to expect of it, and that of the usual one beside it."""
    told = []
    forbid_draws(monkeypatch)
    with pytest.raises(AssertionError, match="drew"):
        released(tmp_path, at_most=2, freeze=True, mechanism="dynamic", on_note=told.append)
    (said,) = [sentence for sentence in told if "is good for" in sentence]
    assert "never for a plain count" in said
    assert "here expect it to err by about" in said
    assert ", ahead by " in said


def test_the_command_prints_what_stands_at_the_head_and_marks_what_is_not_private(log, capsys):
    """On standard error, line by line, but for the matrices of its noise, which are for programs; a plan prints it as
    well, and writes nothing."""
    words = ["--epsilon", "1", "--at-most", "1", "--freeze"]
    assert command(log, *words, "--plan") == 0
    planned = capsys.readouterr().err
    assert "changeling: periods: 6 of 4h from" in planned
    assert "that is a plan: nothing was drawn, written or charged" in planned
    assert names(log) == ["log.csv"]
    assert command(log, *words) == 0
    out, said = capsys.readouterr()
    assert out == ""
    assert "changeling: not private, for the curator alone: --freeze froze 10 entries" in said
    for key, value in read_about(log.with_name("out.csv")).items():
        assert (f"changeling: {key}: {value}\n" in said) == (key != "noise")


def names(log):
    return sorted(path.name for path in log.parent.iterdir())


def test_a_plan_says_what_would_happen_and_writes_draws_and_charges_nothing(log, monkeypatch):
    """Periods, errors of all mechanisms, other constraints with their noise and freezing, the head of the output."""
    forbid_draws(monkeypatch)
    plan = release_of(log, plan=True, delta="1e-6", mechanism=None)
    assert names(log) == ["log.csv"]
    assert (plan.published, plan.rows()) == (0, [])
    assert plan.notes[0].startswith("chosen: optimised, whose levels err by ")
    assert ", square-root by " in plan.notes[0]
    assert plan.notes[1] == "a plan: 6 of 6 periods would be published now; nothing is charged"
    assert plan.asides[0].startswith("--at-most 1: ahead errs by ")
    assert plan.asides[0].endswith("would freeze 10 entries of 20 and leave out 10 mutations of 30")
    assert plan.asides[1].endswith("would freeze 0 entries of 20 and leave out 0 mutations of 30")
    assert len(plan.asides) == 2, "nobody mutates more than twice, and nothing would be refused"
    assert dict(plan.about)["constraint"] == "at most 2 mutations"


def test_a_plan_says_all_that_would_be_refused(log):
    """A breach that stands in the file, an output without its state, a budget that is used up."""
    asides = release_of(log, plan=True, at_most=1).asides
    assert any(said.startswith("would be refused: line 22, at 2026-01-01T10:30:00+00:00") for said in asides)
    release_of(log, budget=1)
    (log.parent / "one.csv.state").rename(log.parent / "elsewhere")
    asides = release_of(log, plan=True).asides
    assert any("exists without its state" in said for said in asides)
    assert any("log.csv.ledger: this release costs epsilon 1, delta 0; left are 0 and 0" in said for said in asides)


def test_a_plan_of_a_release_that_has_begun_says_what_is_left_and_changes_nothing(log):
    """By the periods that are due."""
    release_of(log, through="2026-01-01T08:30")
    before = {path.name: path.read_bytes() for path in log.parent.iterdir()}
    plan = release_of(log, plan=True)
    assert plan.notes[0] == "a plan: 4 of 6 periods would be published now; nothing is charged"
    assert {path.name: path.read_bytes() for path in log.parent.iterdir()} == before


def test_a_time_that_python_alone_would_read_is_refused_by_its_row(tmp_path):
    """In a file as in a frame; alone and among others that can be read."""
    path, given = tmp_path / "log.csv", {"every": "1d", "epsilon": 1, "at_most": 1, "output": tmp_path / "out.csv"}
    for time, others in product(["1_0", " 1", "1 ", "2026_01_02", "\t5"], [[], ["5"], ["2026-01-01"]]):
        times = [*others, time]
        frame = pl.DataFrame(
            {"entry": list(map(str, range(len(times)))), "time": times, "answer": ["tea"] * len(times)}
        )
        frame.write_csv(path)
        for source, row in ((path, f"line {len(times) + 1}"), (frame, f"row {len(times)}")):
            with pytest.raises(ValueError, match=f"{row}: its time"):
                release(source, "any answer", **given)


def test_fresh_levels_need_no_bound_on_mutations(tmp_path):
    """Who mutates in every period stops nothing and is not frozen; they are chosen where no bound is given, and other
    mechanisms ask for one."""
    rows = {"entry": ["a"] * 24, "time": [3600 * n + 1 for n in range(24)], "answer": ["tea", ""] * 12}
    day = {"every": "4h", "epsilon": 1000, "start": "1970-01-01", "until": "1970-01-02"}
    for mechanism in ("fresh", None):
        output = tmp_path / f"{mechanism}.csv"
        one = release(pl.DataFrame(rows), "any answer", **day, mechanism=mechanism, output=output)
        assert [round(row.estimate) for row in one.rows()] == [0] * 6
        assert dict(one.about)["constraint"] == "none, an entry may mutate as it likes"
        assert dict(one.about)["mechanism"].startswith("fresh")
        assert one.asides == ()
    with pytest.raises(ValueError, match="say how an entry's answer may change"):
        release(pl.DataFrame(rows), "any answer", **day, mechanism="ahead", output=tmp_path / "two.csv")


def test_rows_before_the_start_are_told_to_the_curator(log):
    """They count in the first period, as what was there before; never in what is published."""
    one = release_of(log, start="2026-01-01T04:00")
    assert "8 rows lie before the calendar's start, 2026-01-01T04:00:00Z: in the first period" in one.asides
    assert "before the calendar" not in one.output.read_text()


@pytest.mark.parametrize("source", [Path, str, read_csv, pl.read_csv, pd.read_csv], ids=lambda read: read.__module__)
def test_every_source_is_released_alike(log, source):
    """A path, a text, a changelog and frames: the released frame holds every row with its time and error, and the
    guarantee is the one asked for."""
    until = datetime(2026, 1, 2, tzinfo=UTC)
    released = release_of(log, "out.csv", 50, frame=source(log), mechanism=None, until=until)
    assert (released.published, released.last, released.calendar.periods) == (6, 6, 6)
    assert (released.guarantee.epsilon, released.guarantee.delta) == (50, 0)
    frame = released.frame()
    assert frame.columns == ["period", "time", "name", "estimate", "standard_error", "low", "high"]
    assert frame["time"][0] == datetime(2026, 1, 1, 4, tzinfo=UTC)
    assert frame["estimate"][1] == pytest.approx(16, abs=8 * frame["standard_error"][1])
    assert frame.rows() == [(r.period, t, *r[2:]) for r, t in zip(released.rows(), frame["time"], strict=True)]
    assert [note.split(":")[0] for note in released.notes] == ["chosen"]


def test_called_again_it_goes_on_and_what_is_left_open_is_noted(log):
    """With notes of what the reader must know, told as they arise; epsilon as it is written, 0.1 being a tenth."""
    told, reached = [], []
    given = {"every": "7h", "at_most": 2, "epsilon": 0.1, "output": str(log.with_name("out.jsonl")), "mechanism": "dcr"}
    hooks = {"on_note": told.append, "on_period": lambda period, last: reached.append((period, last))}
    first = release(log, "any answer", **given, **hooks, until="2026-01-01T20:00", through="2026-01-01T08:00")
    assert first.guarantee.epsilon == Fraction(1, 10)
    assert (first.published, first.last, reached) == (1, 1, [(1, 1)])
    assert first.calendar_from_data
    assert "read from the data" in first.notes[0]
    assert "the last 6h" in first.notes[1]
    assert told[:-1] == list(first.notes)
    assert told[-1].startswith("not private, for the curator alone: the changelog goes on after the calendar's end")
    second = release(log, "any answer", **given)
    assert (second.published, second.last) == (1, 2)
    assert [row.period for row in first.rows()] == [1]


def test_numbers_may_be_numpys(log):
    """As they come out of an array or a frame; a float that is no whole number is none, nor is a bool."""
    one = release_of(log, epsilon=np.float64(0.5), at_most=np.int64(2), per_person=np.uint8(1))
    assert release_of(log, epsilon=0.5).published == 0
    assert one.guarantee.epsilon == Fraction(1, 2)
    for bad in ({"at_most": 2.5}, {"at_most": True}, {"person": "answer", "per_person": 1.5}):
        with pytest.raises(ValueError, match="is a whole number"):
            release_of(log, "two.csv", **bad)


def test_whatever_goes_wrong_is_a_central_error_or_a_bad_argument(log):
    """Rows that contradict themselves are a CentralError, and still the ValueError that the statistics raise."""
    twice = pl.DataFrame({"entry": ["a", "a"], "time": [1, 2], "answer": ["tea", "tea"]})
    for kind in (CentralError, BadChangelog, ValueError):
        with pytest.raises(kind, match="row 2"):
            release_of(log, frame=twice)
    with pytest.raises(ConstraintBroken):
        release_of(log, at_most=1)
    for bad in ({"epsilon": "much"}, {"every": "often"}, {"answers": "tea,"}, {"answers": ["tea", ""]}):
        with pytest.raises(ValueError):  # noqa: PT011 of many kinds
            release_of(log, **bad)
    assert not log.with_name("one.csv").exists()


def test_the_table_holds_what_is_published_and_is_written_anew(log):
    """As the frame has it, with what the release says of itself; by a plan, and before the first period, nothing."""
    table = log.with_name("out.parquet")
    for nothing in ({"plan": True}, {"through": "2026-01-01T00:30"}):
        release_of(log, parquet=table, **nothing)
        assert not table.exists()
    release_of(log, parquet=table, through="2026-01-01T08:00")
    assert len(pl.read_parquet(table)) == 2
    whole = release_of(log, parquet=table)
    assert pl.read_parquet(table).equals(whole.frame())
    assert pl.read_parquet_metadata(table)["guarantee"] == "epsilon 1, for the whole release"
    with pytest.raises(ValueError, match="the table is a"):
        release_of(log, parquet="out.csv")

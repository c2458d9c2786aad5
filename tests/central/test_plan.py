"""What is said before any budget goes, and times that are read as they are meant."""

import polars as pl
import pytest
from changeling_central import BudgetExhausted, release
from changeling_commands.__main__ import main as run

from .examples import DAY, forbid_draws


def released(log, **given):
    return release(log, "any answer", output=log.parent / "out.csv", epsilon=1, **{**DAY, **given})


def names(log):
    return sorted(path.name for path in log.parent.iterdir())


def test_a_plan_says_what_would_happen_and_writes_draws_and_charges_nothing(log, monkeypatch):
    """Periods, errors of all mechanisms, other constraints with their noise and freezing, the head of the output."""
    forbid_draws(monkeypatch)
    plan = released(log, plan=True, delta="1e-6")
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
    asides = released(log, plan=True, at_most=1).asides
    assert any(said.startswith("would be refused: line 22, at 2026-01-01T10:30:00+00:00") for said in asides)
    released(log, budget=1)
    for moved in ("out.csv.state",):
        (log.parent / moved).rename(log.parent / "elsewhere")
    asides = released(log, plan=True).asides
    assert any("exists without its state" in said for said in asides)
    assert any("log.csv.ledger: this release costs epsilon 1, delta 0; left are 0 and 0" in said for said in asides)
    with pytest.raises(BudgetExhausted):
        release(log, "any answer", output=log.parent / "two.csv", epsilon=1, **DAY)


def test_a_plan_of_a_release_that_has_begun_says_what_is_left_and_changes_nothing(log):
    """By the periods that are due."""
    released(log, through="2026-01-01T08:30")
    before = {path.name: path.read_bytes() for path in log.parent.iterdir()}
    plan = released(log, plan=True)
    assert plan.notes[0] == "a plan: 4 of 6 periods would be published now; nothing is charged"
    assert {path.name: path.read_bytes() for path in log.parent.iterdir()} == before


def test_the_command_prints_the_plan(log, capsys):
    """With the head of the output."""
    words = ["release", str(log), "--query", "any answer", "--every", "4h", "--epsilon", "1", "--at-most", "2"]
    assert (
        run([*words, "--start", "2026-01-01", "--until", "2026-01-02", "-o", str(log.parent / "out.csv"), "--plan"])
        == 0
    )
    said = capsys.readouterr().err
    assert "changeling: periods: 6 of 4h from" in said
    assert "published" not in said.replace("would be published now", "").replace("react to what is published", "")
    assert "that is a plan: nothing was drawn, written or charged" in said
    assert names(log) == ["log.csv"]


def test_before_the_first_period_has_ended_nothing_is_charged(log):
    """It is said when that will be; later the same call begins."""
    early = released(log, through="2026-01-01T03:00")
    assert (early.published, early.rows(), names(log)) == (0, [], ["log.csv"])
    assert early.notes[-1] == "the first period ends at 2026-01-01T04:00:00Z: nothing is charged yet"
    assert released(log).published == 6


@pytest.mark.parametrize("time", ["1_0", " 1", "1 ", "2026_01_02", "\t5"])
def test_a_time_that_python_alone_would_read_is_refused_by_its_row(tmp_path, time):
    """In a file as in a frame; alone and among others that can be read."""
    for times in ([time], ["5", time], ["2026-01-01", time]):
        rows = {"entry": [str(n) for n in range(len(times))], "time": times, "answer": ["tea"] * len(times)}
        pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
        for source, row in (
            (tmp_path / "log.csv", f"line {len(times) + 1}"),
            (pl.DataFrame(rows), f"row {len(times)}"),
        ):
            with pytest.raises(ValueError, match=f"{row}: its time"):
                release(source, "any answer", every="1d", epsilon=1, at_most=1, output=tmp_path / "out.csv")


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
    one = released(log, start="2026-01-01T04:00")
    assert "8 rows lie before the calendar's start, 2026-01-01T04:00:00Z: in the first period" in one.asides
    assert "before the calendar" not in one.output.read_text()

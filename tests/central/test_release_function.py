"""`release` as a function: of files, frames and changelogs, one path with the command."""

from datetime import UTC, datetime
from fractions import Fraction

import changeling_central as central
import numpy as np
import pandas as pd
import polars as pl
import pytest
from changeling_central import CentralError, release
from changeling_statistics import BadChangelog, read_csv

from .examples import FOUR_HOURS, forbid_draws, ledger_of, release_of

ROWS = {
    "entry": [str(n % 40) for n in range(60)],
    "time": [f"2026-01-01T{n // 3:02d}:30:00Z" for n in range(60)],
    "answer": ["tea" if n < 40 else "" for n in range(60)],
}
DAY = {"every": "1h", "at_most": 2, "start": "2026-01-01", "until": datetime(2026, 1, 2, tzinfo=UTC)}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "log.csv"
    pl.DataFrame(ROWS).write_csv(path)
    return path


@pytest.mark.parametrize("source", ["path", "text", "changelog", "polars", "pandas"])
def test_every_source_is_released_alike(tmp_path, file, source):
    """24 hours; the released frame holds every row with its time and error, and the guarantee is the one asked for."""
    sources = {
        "path": file,
        "text": str(file),
        "changelog": read_csv(file),
        "polars": pl.DataFrame(ROWS),
        "pandas": pd.DataFrame(ROWS),
    }
    released = central.release(sources[source], "any answer", epsilon=50, output=tmp_path / "out.csv", **DAY)
    assert (released.published, released.last, released.calendar.periods) == (24, 24, 24)
    assert (released.guarantee.epsilon, released.guarantee.delta) == (50, 0)
    frame = released.frame()
    assert frame.columns == ["period", "time", "name", "estimate", "standard_error", "low", "high"]
    assert frame["time"][0] == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert frame["estimate"][9] == pytest.approx(30, abs=8 * frame["standard_error"][9])
    assert frame.rows() == [(r.period, t, *r[2:]) for r, t in zip(released.rows(), frame["time"], strict=True)]
    assert [note.split(",")[0] for note in released.notes] == ["chosen: ahead"]


def test_called_again_it_goes_on_and_what_is_left_open_is_noted(tmp_path, file):
    """With notes of what the reader must know, told as they arise; epsilon as it is written, 0.1 being a tenth."""
    told, reached = [], []
    given = {"every": "7h", "at_most": 2, "epsilon": 0.1, "output": str(tmp_path / "out.jsonl"), "mechanism": "dcr"}
    hooks = {"on_note": told.append, "on_period": lambda period, last: reached.append((period, last))}
    first = central.release(file, "any answer", **given, **hooks, until="2026-01-01T20:00", through="2026-01-01T08:00")
    assert first.guarantee.epsilon == Fraction(1, 10)
    assert (first.published, first.last, reached) == (1, 1, [(1, 1)])
    assert first.calendar_from_data
    assert "read from the data" in first.notes[0]
    assert "the last 6h" in first.notes[1]
    assert told[:-1] == list(first.notes)
    assert told[-1].startswith("not private, for the curator alone: the changelog goes on after the calendar's end")
    second = central.release(file, "any answer", **given)
    assert (second.published, second.last) == (1, 2)
    assert [row.period for row in first.rows()] == [1]


def test_numbers_may_be_numpys(tmp_path, file):
    """As they come out of an array or a frame; a float that is no whole number is none, nor is a bool."""
    given = {**DAY, "at_most": np.int64(2), "epsilon": np.float64(0.5), "per_person": np.uint8(1)}
    one = central.release(file, "any answer", **given, output=tmp_path / "one.csv")
    again = {**DAY, "epsilon": 0.5}
    assert central.release(file, "any answer", **again, output=tmp_path / "one.csv").published == 0
    assert one.guarantee.epsilon == Fraction(1, 2)
    for bad in ({"at_most": 2.5}, {"at_most": True}, {"person": "answer", "per_person": 1.5}):
        with pytest.raises(ValueError, match="is a whole number"):
            central.release(file, "any answer", **{**again, **bad}, output=tmp_path / "two.csv")


def test_whatever_goes_wrong_is_a_central_error_or_a_bad_argument(tmp_path, file):
    """Rows that contradict themselves are a CentralError, and still the ValueError that the statistics raise."""
    given = {**DAY, "epsilon": 1, "output": tmp_path / "out.csv"}
    twice = {"entry": ["a", "a"], "time": [1, 2], "answer": ["tea", "tea"]}
    for kind in (central.CentralError, BadChangelog, ValueError):
        with pytest.raises(kind, match="row 2"):
            central.release(pl.DataFrame(twice), "any answer", **given)
    with pytest.raises(central.ConstraintBroken):
        central.release(file, "any answer", **{**given, "at_most": 1})
    for bad in ({"epsilon": "much"}, {"every": "often"}, {"answers": "tea,"}, {"answers": ["tea", ""]}):
        with pytest.raises(ValueError):  # noqa: PT011 of many kinds
            central.release(file, "any answer", **{**given, "output": tmp_path / "other.csv", **bad})
    assert not (tmp_path / "other.csv").exists()


def test_the_table_holds_what_is_published_and_is_written_anew(tmp_path, file):
    """As the frame has it, with what the release says of itself; by a plan, and before the first period, nothing."""
    given = {"epsilon": 50, "output": tmp_path / "out.csv", "parquet": tmp_path / "out.parquet", **DAY}
    central.release(file, "any answer", **given, plan=True)
    central.release(file, "any answer", **given, through="2026-01-01T00:30")
    assert not (tmp_path / "out.parquet").exists()
    central.release(file, "any answer", **given, through="2026-01-01T07:00")
    assert len(pl.read_parquet(tmp_path / "out.parquet")) == 7
    whole = central.release(file, "any answer", **given)
    table = pl.read_parquet(tmp_path / "out.parquet")
    assert table.equals(whole.frame())
    assert pl.read_parquet_metadata(tmp_path / "out.parquet")["guarantee"] == "epsilon 50, for the whole release"
    with pytest.raises(ValueError, match="the table is a"):
        central.release(file, "any answer", **{**given, "parquet": "out.csv"})


GIVEN = {**FOUR_HOURS, "epsilon": 1}


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"query": "price == 'tea'"}, CentralError, "the columns must be entry,time,price"),
        ({"mechanism": "square-root"}, ValueError, "needs a delta above 0: --delta 1e-6, or --rho"),
        ({"mechanism": "swcr", "window": "8h", "law": "gaussian"}, ValueError, "Gaussian noise needs a delta above 0"),
    ],
)
def test_bad_input_is_named_and_nothing_is_drawn(log, monkeypatch, given, kind, said):
    """The column, the delta; nothing of it is charged."""
    release_of(log, "first.csv", budget=2, changelog_id="tea")
    forbid_draws(monkeypatch)
    asked = {"query": "any answer", **GIVEN, **given}
    with pytest.raises(kind, match=said):
        release(log, asked.pop("query"), **asked, output=log.parent / "second.csv")
    assert ledger_of(log).spent == (1, 0)
    assert not (log.parent / "second.csv").exists()

"""Windows in a release: published directly, or read off the levels."""

import numpy as np
import polars as pl
import pytest
from changeling_central import (
    Asked,
    OpenDPNoise,
    Windows,
    counting,
    offered,
    read_rows,
    release,
    sliding_windows,
    square_root_coefficients,
)
from changeling_central.square_root import window_variances
from changeling_central.testing import NoNoise
from changeling_commands.__main__ import main as run
from changeling_protocol import AtMost, Calendar

HOURS = 24
ROWS = {
    "entry": [n % 40 for n in range(60)],
    "time": [f"2026-01-01T{n * HOURS // 60:02d}:30:00Z" for n in range(60)],
    "answer": ["tea" if n < 40 else "" for n in range(60)],
}
DAY = {"every": "1h", "at_most": 2, "epsilon": 1, "start": "2026-01-01", "until": "2026-01-02"}


def truth():
    came = np.zeros(HOURS)
    for n in range(60):
        came[n * HOURS // 60] += 1 if n < 40 else -1
    return np.concatenate([[0], came.cumsum()])


@pytest.fixture
def noiseless(monkeypatch):
    monkeypatch.setattr(OpenDPNoise, "laplace", NoNoise().laplace)


def released(folder, query="any answer", **given):
    return release(pl.DataFrame(ROWS), query, output=folder / "out.csv", **{**DAY, **given})


@pytest.mark.usefixtures("noiseless")
def test_windows_are_published_from_the_first_whole_one_on(tmp_path):
    """Without noise the truth; named as changes; in two runs as in one."""
    given = {"mechanism": "swcr", "window": "5h"}
    assert released(tmp_path, **given, through="2026-01-01T08:00").rows()[-1].period == 8
    rows = released(tmp_path, **given).rows()
    levels = truth()
    assert [row.period for row in rows] == list(range(5, HOURS + 1))
    assert [row.estimate for row in rows] == [levels[t] - levels[t - 5] for t in range(5, HOURS + 1)]
    assert {row.name for row in rows} == {"any answer, change over the window of 5 periods"}


def test_the_windows_of_a_release_have_the_noise_of_the_mechanism_and_cover_what_it_covers():
    """The direct SWCR's own scale and guarantee; another window or calendar is not covered."""
    query, calendar = counting(["x"], ["x"], "x"), Calendar(0, 3600, HOURS)
    made = offered("swcr").made(Asked(query, calendar, AtMost(2), 1, window=5))
    direct = sliding_windows(query, Windows(0, 5 * 3600, 3600, 20), AtMost(2), 1)
    assert made.mechanism == direct
    assert made.covers(query, calendar, AtMost(2))
    assert made.covers(query, calendar, AtMost(1))
    assert not made.covers(query, calendar, AtMost(3))
    assert not made.covers(query, Calendar(0, 3600, 25), AtMost(2))
    with pytest.raises(ValueError, match="say how long, --window"):
        offered("swcr").made(Asked(query, calendar, AtMost(2), 1))
    with pytest.raises(ValueError, match="a window has 1 to 24 periods"):
        offered("swcr").made(Asked(query, calendar, AtMost(2), 1, window=25))


def test_the_command_takes_all_of_it_and_names_what_does_not_fit(tmp_path, capsys):
    """Windows that are no whole number of periods, or none; mechanisms whose levels tell of no windows."""
    pl.DataFrame(ROWS).write_csv(tmp_path / "log.csv")
    words = ["release", str(tmp_path / "log.csv"), "--query", "any answer", "--every", "1h", "--epsilon", "1"]
    words += ["--at-most", "2", "--start", "2026-01-01", "--until", "2026-01-02"]
    after = ["--afterwards", str(tmp_path / "after.jsonl"), "--window", "6h"]
    assert run([*words, *after, "-o", str(tmp_path / "a.csv")]) == 0
    assert len(read_rows(tmp_path / "after.jsonl")) == HOURS - 5
    for more, said in (
        (["--mechanism", "swcr", "--window", "90m"], "whole number of periods of 1h"),
        (["--mechanism", "swcr"], "say how long"),
        (["--mechanism", "hdcr", "--window", "6h"], "--window: hdcr has none"),
        (["--mechanism", "ahead", "--window", "6h"], "--window: ahead has none; swcr releases windows directly"),
        (["--afterwards", str(tmp_path / "x.csv")], "say over how long a --window"),
        (["--afterwards", str(tmp_path / "x.csv"), "--window", "6h", "--mechanism", "dcr"], "the levels of dcr do"),
        (["--mechanism", "square-root"], "square-root draws Gaussian noise, which needs a delta above 0"),
        (["--mechanism", "hdcr", "--law", "gaussian"], "Gaussian noise needs a delta above 0"),
    ):
        capsys.readouterr()
        assert run([*words, *more, "-o", str(tmp_path / "b.csv")]) == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / "b.csv").exists()


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("budget", [{"delta": "1e-6"}, {"epsilon": None, "rho": "1/2"}])
def test_windows_are_read_off_the_levels_of_the_square_root_with_their_exact_errors(tmp_path, budget, monkeypatch):
    """Without noise the truth, from the first whole window on; made anew; its levels' differences, at no cost."""
    monkeypatch.setattr(OpenDPNoise, "gaussian", NoNoise().gaussian)
    given = {**budget, "mechanism": "square-root", "afterwards": tmp_path / "after.csv", "window": "6h"}
    released(tmp_path, **given, through="2026-01-01T07:00")
    assert [row.period for row in read_rows(tmp_path / "after.csv")] == [6, 7]
    one = released(tmp_path, **given)
    rows = read_rows(tmp_path / "after.csv")
    assert [row.estimate for row in rows] == (truth()[6:] - truth()[:-6]).tolist()
    assert {row.name for row in rows} == {"any answer, change over the window of 6 periods"}
    assert rows[0].standard_error == pytest.approx(one.rows()[5].standard_error), "the level before the first is known"
    independent = (one.rows()[-1].standard_error ** 2 + one.rows()[-7].standard_error ** 2) ** 0.5
    assert rows[-1].standard_error < 0.8 * independent
    with pytest.raises(ValueError, match="take a sum in place of the mean"):
        released(tmp_path / "..", **given, query="mean of answer from 0 to 1")


@pytest.mark.parametrize("band", [1, 3, 9])
@pytest.mark.parametrize("window", [1, 4, 9])
def test_a_windows_variance_is_that_of_the_noise_in_both_levels(band, window):
    """A C^-1 as a matrix, row by row less the row `window` before."""
    periods = 9
    c = np.zeros(periods)
    c[:band] = square_root_coefficients(band)
    root = np.array([[c[t - s] if t >= s else 0.0 for s in range(periods)] for t in range(periods)])
    noise = np.tril(np.ones((periods, periods))) @ np.linalg.inv(root)
    before = np.concatenate([np.zeros((window, periods)), noise])[:periods]
    assert window_variances(periods, band, window) == pytest.approx(((noise - before) ** 2).sum(1))

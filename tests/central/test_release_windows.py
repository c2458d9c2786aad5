"""Windows in a release: published directly, or read off the levels."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from changeling_central import (
    Asked,
    LinearQuery,
    OpenDPNoise,
    Windows,
    counting,
    offered,
    read_rows,
    release,
    sliding_windows,
)
from changeling_central.afterwards import best_estimates, noise_covariance
from changeling_central.command import smooth
from changeling_central.testing import NoNoise, SeededNoise
from changeling_protocol import AtMost, Calendar

from .examples import command, release_of

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


def test_the_command_takes_all_of_it_and_names_what_does_not_fit(log, capsys):
    """Windows that are no whole number of periods, or none; mechanisms whose levels tell of no windows."""
    best, after = ["--mechanism", "best"], ["--afterwards", log.with_name("after.jsonl")]
    assert command(log, "--epsilon", "1", *best, *after, "--window", "12h") == 0
    assert len(read_rows(log.with_name("after.jsonl"))) == 6 - 2
    for more, said in (
        (["--mechanism", "swcr", "--window", "90m"], "whole number of periods of 4h"),
        (["--mechanism", "swcr"], "say how long"),
        (["--mechanism", "hdcr", "--window", "8h"], "--window: hdcr has none"),
        ([*best, "--window", "8h"], "--window: best has none"),
        (["--mechanism", "ahead", "--window", "8h"], "--window: ahead has none; swcr releases windows directly"),
        (after, "say over how long a --window"),
        ([*after, "--window", "8h"], "the levels of dcr do"),
    ):
        capsys.readouterr()
        assert command(log, "--epsilon", "1", *more, output="b.csv") == 1
        assert said in capsys.readouterr().err
    assert not log.with_name("b.csv").exists()


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


ONE, SMALL = Fraction(1), Fraction(1, 10**6)
COUNT, PERIODS = counting(["a"], ["a"], "a"), 24 * 5
MADE = {"ahead": 0, "square-root": SMALL, "fresh": 0, "fresh with a delta": SMALL, "optimised with a delta": SMALL}


def made(name, periods):
    asked = Asked(COUNT, Calendar(0, 3600, periods), AtMost(2), ONE, Fraction(MADE[name]))
    return offered(name.partition(" ")[0]).made(asked)


@pytest.mark.parametrize("name", MADE)
def test_the_covariance_is_that_of_the_noise(name):
    """By what the mechanism was made with: its variances and those of windows exactly, where the level before the
    calendar has no noise; and of 4,000 runs every mean product of two levels, within 6 standard errors."""
    mechanism, runs = made(name, 6), 4000
    K = noise_covariance(mechanism.made_with(), 6)
    before = np.pad(K, ((1, 0), (1, 0)))
    for window in (1, 2, 6):
        for step in range(window, 7):
            change = before[step, step] + before[step - window, step - window] - 2 * before[step, step - window]
            assert mechanism.window_variance(step, window) == pytest.approx(change, rel=1e-9)
    assert np.diag(K) == pytest.approx([mechanism.variance(step) for step in range(1, 7)], rel=1e-9)
    columns = LinearQuery(tuple(map(str, range(runs))), ((0,) * runs, (1, *(0,) * (runs - 1))), (1,), (1,))
    wide, noise, levels = replace(mechanism, query=columns), SeededNoise(1), []
    state = wide.start()
    for _ in range(6):
        state, level = wide.step(state, np.zeros(runs, np.int64), noise)
        levels.append(level.values)
    levels = np.array(levels).T
    scale = np.sqrt(np.diag(K))
    off = (levels.T @ levels / runs - K) / np.outer(scale, scale)
    assert np.abs(off).max() <= 6 * np.sqrt(5 / runs)


def test_a_releases_covariance_is_of_its_rows_and_its_windows(tmp_path):
    """In what is counted, squared; the windows that are read off the levels err as it says. A name that is no column
    of levels is refused."""
    rows = {"entry": ["a", "b"], "time": [60.0, 7200.0], "answer": ["tea", "tea"]}
    one = release(
        pl.DataFrame(rows),
        "any answer",
        every="1h",
        epsilon=1,
        at_most=2,
        start="1970-01-01",
        until="1970-01-01T08:00",
        output=tmp_path / "out.csv",
        window="3h",
        afterwards=tmp_path / "after.csv",
        mechanism="ahead",
    )
    K = one.covariance()
    errors = [row.standard_error for row in one.rows()]
    assert np.sqrt(np.diag(K)) == pytest.approx(errors, rel=1e-4)
    change = K[7, 7] + K[4, 4] - 2 * K[7, 4]
    assert read_rows(tmp_path / "after.csv")[-1].standard_error == pytest.approx(np.sqrt(change), rel=1e-4)
    assert np.array_equal(one.covariance("any answer"), K)
    with pytest.raises(ValueError, match="name a column of levels: any answer"):
        one.covariance("tea")


@pytest.mark.parametrize("name", ["ahead", "square-root"])
def test_smoothed_levels_err_less_and_their_intervals_hold(name):
    """A day, a drift and what moves by itself, 20 streams: within a quarter of the mean squared error of who knows how
    much of each there is, and less than half of what is published errs by; and intervals hold.

    Levels of one stream hang together, so the streams are the sample: 95% lies within 4 standard errors of the share
    that holds, or below; a right one fails below 10^-3.
    """
    mechanism = made(name, PERIODS)
    K, random = noise_covariance(mechanism.made_with(), PERIODS), np.random.default_rng(7)
    root, at = np.linalg.cholesky(K), np.arange(PERIODS)
    S = 1e6 + 900.0 * (at[:, None] % 24 == at % 24) + np.minimum(at[:, None], at) + 4 * np.eye(PERIODS)
    gain = np.linalg.solve(S + K, K).T
    errors, known, plain, held = [], [], [], []
    for _ in range(20):
        truth = 200 + 30 * random.normal(size=24)[at % 24] + random.normal(size=PERIODS).cumsum()
        truth += 2 * random.normal(size=PERIODS)
        y = truth + root @ random.normal(size=PERIODS)
        values, variances = best_estimates(y, K, 3600.0 * (1 + at))
        errors.append(np.mean((values - truth) ** 2))
        known.append(np.mean((y - gain @ y - truth) ** 2))
        plain.append(np.mean((y - truth) ** 2))
        held.append(np.mean(np.abs(values - truth) <= 2.2 * np.sqrt(variances)))
    assert np.mean(errors) <= 1.25 * np.mean(known)
    assert np.mean(errors) <= 0.5 * np.mean(plain)
    assert np.mean(held) >= 0.95 - 4 * np.std(held) / np.sqrt(len(held))


def test_a_release_is_smoothed_from_its_output_alone(log):
    """From Python and on the command line, CSV and JSON lines: the same rows, and the file says what they are."""
    for suffix in (".csv", ".jsonl"):
        made = release_of(log, f"out{suffix}", mechanism="ahead", budget=4)
        log.rename(log.with_name("away.csv"))
        rows = made.smoothed()
        log.with_name("away.csv").rename(log)
        assert [row.name for row in rows] == ["any answer, smoothed"] * 6
        assert all(row.low < row.estimate < row.high for row in rows)
        better = log.with_name("better" + suffix)
        smooth(made.output, better)
        assert read_rows(better) == rows
        assert "hold noise and bias" in better.read_text()


def test_what_cannot_be_smoothed_is_refused(log):
    """Levels without a known covariance, a file that is no release, and the release's own file as the output."""
    made = release_of(log)
    with pytest.raises(ValueError, match="hierarchy have no covariance"):
        made.smoothed()
    with pytest.raises(ValueError, match="take the output of a release"):
        smooth(log, log.with_name("x.csv"))
    with pytest.raises(ValueError, match="choose another output"):
        smooth(made.output, made.output)

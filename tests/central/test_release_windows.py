"""Windows in a release: published directly, or read off the levels."""

import numpy as np
import pytest
from changeling_central import Asked, OpenDPNoise, Windows, counting, offered, read_rows, sliding_windows
from changeling_central.afterwards import best_estimates, noise_covariance
from changeling_central.command import smooth
from changeling_central.testing import NoNoise, SeededNoise
from changeling_protocol import AtMost, Calendar

from .examples import command, made_for, quiet_levels, release_of

HOURS = 24
LEVELS = np.cumsum([0, *[2] * 10, *[-2] * 5, *[0] * 9])
"""How many drink tea at the hours of the day of the log."""


@pytest.fixture
def noiseless(monkeypatch):
    for law in ("laplace", "gaussian"):
        monkeypatch.setattr(OpenDPNoise, law, NoNoise().laplace)


def released(log, name="out.csv", **given):
    return release_of(log, name, every="1h", **given)


@pytest.mark.usefixtures("noiseless")
def test_windows_are_published_from_the_first_whole_one_on(log):
    """Without noise the truth; named as changes; in two runs as in one."""
    given = {"mechanism": "swcr", "window": "5h"}
    assert released(log, **given, through="2026-01-01T08:00").rows()[-1].period == 8
    rows = released(log, **given).rows()
    assert [row.period for row in rows] == list(range(5, HOURS + 1))
    assert [row.estimate for row in rows] == (LEVELS[5:] - LEVELS[:-5]).tolist()
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
def test_windows_are_read_off_the_levels_of_the_square_root_with_their_exact_errors(log, budget):
    """Without noise the truth, from the first whole window on; made anew; its levels' differences, at no cost."""
    after = log.with_name("after.csv")
    given = {**budget, "mechanism": "square-root", "afterwards": after, "window": "6h"}
    released(log, **given, through="2026-01-01T07:00")
    assert [row.period for row in read_rows(after)] == [6, 7]
    levels, rows = released(log, **given).rows(), read_rows(after)
    assert [row.estimate for row in rows] == (LEVELS[6:] - LEVELS[:-6]).tolist()
    assert {row.name for row in rows} == {"any answer, change over the window of 6 periods"}
    assert rows[0].standard_error == pytest.approx(levels[5].standard_error), "the level before the first is known"
    independent = (levels[-1].standard_error ** 2 + levels[-7].standard_error ** 2) ** 0.5
    assert rows[-1].standard_error < 0.8 * independent
    with pytest.raises(ValueError, match="take a sum in place of the mean"):
        released(log, "mean.csv", **given, query="mean of answer from 0 to 1")


PERIODS = 24 * 5
MADE = {"ahead": 0, "square-root": "1e-6", "fresh": 0, "fresh with a delta": "1e-6", "optimised with a delta": "1e-6"}


def made(name, periods):
    return made_for(name.partition(" ")[0], "count", periods, 2, delta=MADE[name])


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
    levels = quiet_levels(mechanism, runs, SeededNoise(1))
    scale = np.sqrt(np.diag(K))
    off = (levels @ levels.T / runs - K) / np.outer(scale, scale)
    assert np.abs(off).max() <= 6 * np.sqrt(5 / runs)


def test_a_releases_covariance_is_of_its_rows_and_its_windows(log):
    """In what is counted, squared; the windows that are read off the levels err as it says. A name that is no column
    of levels is refused."""
    after = log.with_name("after.csv")
    one = release_of(log, mechanism="ahead", window="12h", afterwards=after)
    K = one.covariance()
    assert np.sqrt(np.diag(K)) == pytest.approx([row.standard_error for row in one.rows()], rel=1e-4)
    change = K[5, 5] + K[2, 2] - 2 * K[5, 2]
    assert read_rows(after)[-1].standard_error == pytest.approx(np.sqrt(change), rel=1e-4)
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

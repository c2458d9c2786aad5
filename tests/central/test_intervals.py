"""Intervals: that what is published as low and high holds the truth 95 times of 100, and no digit too many."""

from fractions import Fraction
from math import sqrt

import numpy as np
import polars as pl
import pytest
from changeling_central import Law, Level, LinearQuery, NodeNoise, drawn_ahead, interval, read_rows, square_root
from changeling_central.testing import Output, SeededNoise
from changeling_protocol import AtMost, Calendar

ONE, SMALL = Fraction(1), Fraction(1, 10**6)


def law_of(noise):
    """The probabilities of one draw, far into its tails."""
    x = np.arange(-int(45 * noise.scale) - 6, int(45 * noise.scale) + 7)
    weight = np.exp(-np.abs(x) / noise.scale) if noise.law is Law.LAPLACE else np.exp(-((x / noise.scale) ** 2) / 2)
    return weight / weight.sum()


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("draws", [1, 2, 3, 5, 8])
def test_a_sum_of_draws_stays_within_its_interval_95_times_of_100_at_any_scale(law, draws):
    """Enumerated, from noise that is nearly always 0 to such that is hardly told from a continuous one."""
    for scale in np.geomspace(0.15 if law is Law.LAPLACE else 0.5, 8, 60):
        noise = NodeNoise(law, float(scale))
        together = law_of(noise)
        for _ in range(draws - 1):
            together = np.convolve(together, law_of(noise))
        x = np.arange(len(together)) - len(together) // 2
        low, high = interval(0.0, sqrt(draws * noise.variance), law)
        assert together[(x >= low) & (x <= high)].sum() >= 0.95, scale


def test_two_draws_of_any_weights_stay_within_their_interval():
    """Enumerated: such as a block's own noise and that of a wider one have in a level."""
    for scale in np.geomspace(0.2, 4, 25):
        noise = NodeNoise(Law.LAPLACE, float(scale))
        one = law_of(noise)
        x = np.arange(len(one)) - len(one) // 2
        for a in (0.1, 0.3, 0.5, 0.7, 1.0):
            low, high = interval(0.0, sqrt((1 + a * a) * noise.variance))
            held = (x[:, None] + a * x >= low) & (x[:, None] + a * x <= high)
            assert (one[:, None] * one)[held].sum() >= 0.95, (scale, a)


def test_levels_stay_within_their_intervals():
    """Of a tree drawn ahead and of the square root, of 20,000 columns: 95% less 4 standard errors (3e-5 each)."""
    rows = ((0,) * 20_000, (1, *(0,) * 19_999))
    wide = LinearQuery(tuple(map(str, range(20_000))), rows, (1,), (1,), fixed=True)
    calendar, noise = Calendar(0, 1, 7), SeededNoise(5)
    for law, mechanism in (
        (Law.LAPLACE, drawn_ahead(wide, calendar, AtMost(2), ONE)),
        (Law.GAUSSIAN, square_root(wide, calendar, AtMost(2), ONE, SMALL)),
    ):
        state = mechanism.start()
        for _ in range(7):
            state, level = mechanism.step(state, np.zeros(20_000, np.int64), noise)
            low, high = interval(0.0, sqrt(level.variance), law)
            assert np.mean((level.values >= low) & (level.values <= high)) >= 0.95 - 4 * sqrt(0.95 * 0.05 / 20_000)


@pytest.mark.parametrize(
    ("error", "estimate", "shown"),
    [(0.0123, 7.123456, 7.123), (1.49, 7.123456, 7.1), (14.9, 1234.567, 1235.0), (149.0, 1234.567, 1230.0)],
)
@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_no_more_digits_are_shown_than_the_noise_allows_and_ends_are_rounded_outwards(
    tmp_path, error, estimate, shown, name
):
    """The second digit of the standard error is the last one of the estimate; ends are rounded outwards."""
    output = Output(tmp_path / name, ("a",), 1.0)
    output.append(0, output.header() + output.rows(1, 3600.0, Level(np.array([estimate]), error**2)))
    (row,) = read_rows(output.path)
    assert (row.estimate, row.standard_error) == (shown, pytest.approx(error, rel=1e-5))
    low, high = interval(estimate, error)
    assert low - error / 10 <= row.low <= low
    assert high <= row.high <= high + error / 10


def test_a_name_with_a_number_sign_is_whole_for_readers_that_skip_comments(tmp_path):
    """`C#`, read by pandas with comment="#" and by polars with comment_prefix="# ", as by our reader."""
    import pandas as pd

    output = Output(tmp_path / "out.csv", ("C#", "C", '# "F#"'), 1.0, about=(("query", "each answer"),))
    output.append(0, output.header() + output.rows(1, 3600.0, Level(np.array([5.0, 6.0, 7.0]), 4.0)))
    frames = pd.read_csv(output.path, comment="#"), pl.read_csv(output.path, comment_prefix="# ")
    for frame in frames:
        assert list(frame["name"]) == ["C#", "C", '# "F#"']
        assert list(frame["estimate"]) == [5.0, 6.0, 7.0]
    assert [row.name for row in read_rows(output.path)] == ["C#", "C", '# "F#"']

"""OpenDP's samplers, and the pool that draws ahead; how much noise is enough, and the intervals that follow of it."""

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import exp, sqrt
from multiprocessing import get_context
from statistics import NormalDist

import numpy as np
import pandas as pd
import polars as pl
import pytest
from changeling_central import (
    Law,
    Level,
    NodeNoise,
    OpenDPNoise,
    PooledNoise,
    calibrated,
    concentrated_budget,
    implied_delta,
    interval,
    read_rows,
)
from changeling_central.noise import gaussian_delta, implied_epsilon, least_delta, told_apart
from changeling_central.testing import NoNoise, Output, SeededNoise
from scipy.special import log_ndtr

from .examples import exact_delta, made_for, quiet_levels


def test_noise_of_opendp_does_not_stop_at_32_bits():
    """At scale 2^40 no draw of 200 is another or an end of 32 bits (false alarm 10⁻⁷); beyond 2^56 it is refused."""
    for draw in (OpenDPNoise().laplace, OpenDPNoise().gaussian):
        drawn = draw(2.0**40, 200)
        assert len(set(drawn.tolist())) == 200
        assert np.abs(drawn).max() > 2**32
        with pytest.raises(ValueError, match="2\\^56"):
            draw(2.0**57, 1)


def test_a_pool_hands_out_every_draw_once_and_keeps_none():
    """In the source's order, by law and scale; what was handed out is wiped, and a child process draws anew."""
    last = 0

    class Counting(NoNoise):
        def laplace(self, scale, size):  # noqa: ARG002
            nonlocal last
            last += size
            return np.arange(last - size, last)

    pool = PooledNoise(Counting(), batch=8)
    handed = [*pool.laplace(1.0, 3), *pool.laplace(1.0, 5), *pool.laplace(1.0, 1), *pool.laplace(1.0, 20)]
    assert handed == [*range(9), *range(16, 36)]
    assert pool.laplace(2.0, 2).tolist() == [36, 37]
    assert pool._pools["laplace", 1.0].draws.tolist() == [0, *range(9, 16)]
    forked = get_context("fork")
    queue = forked.SimpleQueue()
    child = forked.Process(target=lambda: queue.put(pool.laplace(2.0, 2).tolist()))
    child.start()
    assert queue.get() == [44, 45]
    child.join()
    assert pool.laplace(2.0, 2).tolist() == [38, 39]


SHIFTS = [{1: 1}, {1: 4}, {1: 2, 3: 1}, {2: 1, 5: 2}, {1: 30}]
BUDGETS = [("0.3", "1e-3"), ("1", "1e-6"), ("1", "1e-12"), ("4", "1e-9"), ("20", "1e-6")]


def drawn(shifts):
    return tuple(shift for shift, count in shifts.items() for _ in range(count))


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize(("shifts", "budget"), [*zip(SHIFTS, BUDGETS, strict=True)], ids=str)
def test_a_scale_is_enough_and_a_scale_one_percent_smaller_is_not(law, shifts, budget):
    """By the exact law of the loss: never less private than stated, and 1% of the scale is all that rounding costs."""
    epsilon, delta = map(Fraction, budget)
    scale = calibrated(shifts, epsilon, delta, law).scale
    assert exact_delta(law, scale, drawn(shifts), float(epsilon)) <= float(delta)
    assert exact_delta(law, scale / 1.01, drawn(shifts), float(epsilon)) > float(delta)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("scale", [0.7, 20.0])
@pytest.mark.parametrize("epsilon", [0.0, 2.0, 30.0])
@pytest.mark.parametrize("shifts", SHIFTS[1:4], ids=str)
def test_a_stated_delta_is_never_below_the_exact_one(law, scale, epsilon, shifts):
    """At any scale, whether it was calibrated or not; and where delta is large, 2% above it at most."""
    exact = exact_delta(law, scale, drawn(shifts), epsilon)
    stated = NodeNoise(law, scale).delta(shifts, epsilon)
    assert exact <= stated
    if exact > 0.1:
        assert stated <= 1.02 * exact


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("delta", ["1e-14", "1e-15", "1e-300"])
def test_a_delta_that_floating_point_hides_is_refused_by_name(law, delta):
    """30 draws: the error says from where on delta can be accounted for."""
    least = least_delta({1: 30})
    with pytest.raises(ValueError, match=f"30 draws delta can be accounted for from {least:.1e}, got "):
        calibrated({1: 30}, Fraction(1), Fraction(delta), law)


@pytest.mark.parametrize("law", Law)
def test_the_least_delta_is_accounted_for_without_waste(law):
    """At the very least delta the scale is enough, and at most 2% above need: it does not climb on the way there."""
    shifts = {1: 30}
    least = Fraction(least_delta(shifts))
    scale = calibrated(shifts, Fraction(1), least, law).scale
    assert exact_delta(law, scale, drawn(shifts), 1.0) <= least
    assert exact_delta(law, scale / 1.02, drawn(shifts), 1.0) > least


@pytest.mark.heavy
def test_many_draws_composed_by_stages_lose_no_more_than_few():
    """520: their sum is one draw of scale √draws times as wide, to e^(-2π² scale²), shifted by so many."""
    draws, scale = 520, 130.0

    def exact(scale):
        return exact_delta(Law.GAUSSIAN, scale * sqrt(draws), (draws,), 1.0)

    assert exact(scale) <= NodeNoise(Law.GAUSSIAN, scale).delta({1: draws}, 1.0) < exact(scale / 1.01)


@pytest.mark.parametrize("law", Law)
def test_where_the_grid_grows_coarse_concentrated_privacy_is_stated(law):
    """100,000 draws, rho = 1/80: at most e^(-(1 - rho)² / 4 rho), and above the delta of the continuous normal law."""
    draws, rho = 100_000, 1 / 80
    stated = NodeNoise(law, sqrt(draws / (2 * rho))).delta({1: draws}, 1.0)
    assert stated <= exp(-((1 - rho) ** 2) / (4 * rho)) * (1 + 1e-9)
    mu = sqrt(2 * rho)
    normal = NormalDist()
    assert stated > normal.cdf(mu / 2 - 1 / mu) - exp(1) * normal.cdf(-mu / 2 - 1 / mu)


def least_implied(rho: float, epsilon: Fraction) -> Decimal:
    """min over α > 1 of exp((α-1)(αρ - ε) + α ln(1 - 1/α)) / (α-1), by golden sections of ln(α-1)."""
    rate, stated = Decimal(rho), Decimal(epsilon.numerator) / epsilon.denominator

    def exponent(place: Decimal) -> Decimal:
        alpha = 1 + place.exp()
        return (alpha - 1) * (alpha * rate - stated) + alpha * (1 - 1 / alpha).ln() - place

    low, high, golden = Decimal(-25), Decimal(50), (Decimal(5).sqrt() - 1) / 2
    for _ in range(90):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if exponent(left) < exponent(right) else (left, high)
    return exponent((low + high) / 2).exp()


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), Fraction(1, 10), Fraction(1, 3), Fraction(3), Fraction(1000)])
def test_a_budget_implies_no_more_than_its_delta(epsilon):
    """From a delta of 10^-100 to one of .999; and it is nearly all of it but where delta is close to 1."""
    for delta in (Fraction(1, 10**100), Fraction(1, 10**12), Fraction(1, 100), Fraction(1, 2), Fraction(999, 1000)):
        rho = concentrated_budget(epsilon, delta)
        with localcontext(Context(prec=50)):
            share = least_implied(rho, epsilon) * delta.denominator / delta.numerator
        assert Decimal("0.96") < share <= 1


@pytest.mark.parametrize("rho", [1e-12, 1e-3, 1.0, 50.0])
def test_what_a_rho_implies_is_rounded_up(rho):
    """At an epsilon of 0, where most is implied, and up to 300."""
    for epsilon in (0.0, 1e-9, 0.5, 30.0, 300.0):
        with localcontext(Context(prec=50)):
            least = least_implied(rho, Fraction(epsilon))
        assert Decimal(implied_delta(rho, epsilon)) >= min(least, Decimal(1)) * (1 - Decimal("1e-25"))


@pytest.mark.parametrize("epsilon", ["1/10000", "1/100", "1", "10", "1000"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-6", "0.3", "0.999"])
def test_the_shift_of_the_least_and_the_largest_budgets_costs_no_more(epsilon, delta):
    """δ(ε) = ∫ (1 - e^(ε - loss)) over the normal tail, where nothing cancels; so does the ε that it implies."""
    allowed = Fraction(delta)
    try:
        length = told_apart(Fraction(epsilon), allowed)
    except ValueError:
        assert Fraction(epsilon) < Fraction(1, 1000)
        return
    if allowed < 1 / 2:  # else delta hardly grows
        assert gaussian_delta(length * 1.00001, float(Fraction(epsilon))) > float(allowed), "the length is the largest"
    for stated in (float(Fraction(epsilon)), float(implied_epsilon(length, allowed))):
        # losses above ε have x > ε/μ - μ/2 =: b under the shifted law; δ = ∫_b φ(x) (1 - e^(-μ(x - b))) dx
        b = stated / length - length / 2
        reach = max(b, 0.0) + 40
        x, h = np.linspace(b, reach if b > -40 else 40.0, 400_001, retstep=True)
        y = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * -np.expm1(-length * (x - b))
        found = h / 3 * (y[0] + 4 * y[1::2].sum() + 2 * y[2:-1:2].sum() + y[-1])
        assert found <= float(allowed) * (1 + 1e-9)
        assert np.log(found) <= log_ndtr(-b)


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
    for mechanism in (made_for("ahead", "count", 7, 2), made_for("square-root", "count", 7, 2, delta="1e-6")):
        levels = quiet_levels(mechanism, 20_000, SeededNoise(5))
        for step, values in enumerate(levels, 1):
            low, high = interval(0.0, sqrt(mechanism.variance(step)), mechanism.law)
            assert np.mean((values >= low) & (values <= high)) >= 0.95 - 4 * sqrt(0.95 * 0.05 / 20_000)


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
    output = Output(tmp_path / "out.csv", ("C#", "C", '# "F#"'), 1.0, about=(("query", "each answer"),))
    output.append(0, output.header() + output.rows(1, 3600.0, Level(np.array([5.0, 6.0, 7.0]), 4.0)))
    frames = pd.read_csv(output.path, comment="#"), pl.read_csv(output.path, comment_prefix="# ")
    for frame in frames:
        assert list(frame["name"]) == ["C#", "C", '# "F#"']
        assert list(frame["estimate"]) == [5.0, 6.0, 7.0]
    assert [row.name for row in read_rows(output.path)] == ["C#", "C", '# "F#"']

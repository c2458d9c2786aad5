"""Intervals: against exact convolutions, and the weights of the online estimate against the network's."""

import numpy as np
import pytest
from changeling_central import Law, NodeNoise, online_interval, sum_interval
from changeling_central.intervals import _online_weights, weighted_interval
from changeling_central.nodes import layer_widths, online_variance
from changeling_statistics import Network


def exact_level(noise, draws, half_width):
    """P(|sum of draws| <= half_width), from the law's own probabilities, convolved."""
    reach = int(60 * noise.scale)
    x = np.arange(-reach, reach + 1)
    weight = np.exp(-np.abs(x) / noise.scale) if noise.law is Law.LAPLACE else np.exp(-(x**2) / (2 * noise.scale**2))
    one = law = weight / weight.sum()
    for _ in range(draws - 1):
        law = np.convolve(law, one)
    middle, most = len(law) // 2, int(half_width)
    return law[middle - most : middle + most + 1].sum()


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("scale", [2.0, 7.5, 20.0])
@pytest.mark.parametrize("draws", [1, 2, 5])
def test_a_sum_of_draws_stays_within_its_interval_as_often_as_is_stated(law, scale, draws):
    """To 1e-4 of the probability, at least the level asked for, and no wider than one more whole number."""
    noise = NodeNoise(law, scale)
    for level in (0.5, 0.95, 0.99):
        interval = sum_interval(noise, draws, level)
        exact = exact_level(noise, draws, interval.half_width)
        assert interval.level == pytest.approx(exact, abs=1e-4)
        assert exact >= level - 1e-4
        assert exact_level(noise, draws, interval.half_width - 1.2) < level


@pytest.mark.parametrize(("c", "h"), [(2, 1), (2, 4), (3, 3), (6, 2)])
def test_the_weights_of_the_online_estimate_are_those_of_the_network(c, h):
    """Sorted, at every time; their squares add up to the variance."""
    T, widths = 40, layer_widths(c, h)
    spans = np.array([(s, s + w) for w in widths for s in range(0, T - w + 1, w)])
    network, variance = Network(T, spans[:, 0], spans[:, 1], np.ones(len(spans))), online_variance(c, h, T)
    for t in range(1, T + 1):
        weights, counts = _online_weights(c, h, t)
        row = network.closed_by(t).row(t)
        assert np.sort(np.repeat(weights, counts)) == pytest.approx(np.sort(row[np.abs(row) > 1e-12]))
        assert np.dot(counts, np.square(weights)) == pytest.approx(variance[t - 1])


def test_laplace_tails_are_heavier_than_the_normal_laws():
    """One draw: ±1.96 standard errors hold less than 95%, so the interval is wider."""
    noise = NodeNoise(Law.LAPLACE, 50.0)
    assert exact_level(noise, 1, 1.96 * np.sqrt(noise.variance)) < 0.94
    assert online_interval(noise, 2, 3, 1).half_width > 2.08 * np.sqrt(noise.variance)


def test_impossible_intervals_are_refused():
    """Levels, periods, and Gaussian noise too coarse for the formula."""
    noise = NodeNoise(Law.LAPLACE, 5.0)
    with pytest.raises(ValueError, match="level"):
        sum_interval(noise, 1, 1.0)
    with pytest.raises(ValueError, match="numbered from 1"):
        online_interval(noise, 2, 2, 0)
    with pytest.raises(ValueError, match="at least 2"):
        weighted_interval(NodeNoise(Law.GAUSSIAN, 1.0), (1.0,), (1,))

"""Noise drawn ahead: the best estimate from all blocks, what an entry loses, and that rounding tells nothing."""

from fractions import Fraction
from itertools import pairwise
from math import log

import numpy as np
import pytest
from changeling_central import (
    Asked,
    Blocks,
    Law,
    NodeNoise,
    Shape,
    clipped_sum,
    counting,
    drawn_ahead,
    histogram_query,
    offered,
)
from changeling_central.ahead import estimated_changes, laplace_variance, reached_at_most
from changeling_central.linear_query import Reach
from changeling_central.testing import Forbidden, NoNoise
from changeling_papers import best_hierarchy
from changeling_protocol import AtMost, Calendar

ONE = Fraction(1)
COUNT = counting(["a", "b"], ["a"], "a")
HISTOGRAM = histogram_query(["a", "b"], ["a", "b"])
SHAPES = [
    Shape(Blocks(7, (1,)), ()),
    Shape(Blocks(7, (1, 3)), ((0.3, -0.5, 0.4),)),
    Shape(Blocks(7, (1, 2, 4)), ((-0.2, 0.6, 0.1), (-1.0, -2.0, -30.0))),
    Shape(Blocks(7, (1, 2, 8)), ((0.0, 0.0, 0.0), (-1.0, 0.0, 0.0))),
]


def names(shape):
    return str(shape.blocks.widths)


def block_matrix(blocks, layer):
    """G's rows of one layer: which periods each block holds."""
    at = np.arange(blocks.periods) // blocks.widths[layer]
    return (at[None] == np.arange(blocks.counts[layer])[:, None]).astype(np.int64)


def levels_of(shape, rate, measured, bits=0):
    """The best estimates of the levels from measurements of all blocks, block by block of the highest layer."""
    blocks, found = shape.blocks, []
    for top in range(blocks.counts[-1]):
        step = [blocks.widths[-1] // width for width in blocks.widths]
        part = [values[top * n : (top + 1) * n] << bits for values, n in zip(measured, step, strict=True)]
        found.append(estimated_changes(blocks, shape.weights(rate), top, part))
    return np.concatenate(found).cumsum(0)


@pytest.mark.parametrize("shape", SHAPES, ids=names)
def test_estimates_are_the_best_of_all_blocks(shape):
    """Against the weighted least squares of the materialised matrix, values and variances."""
    random, T = np.random.default_rng(1), shape.blocks.periods
    G = np.concatenate([block_matrix(shape.blocks, layer) for layer in range(len(shape.blocks.widths))])
    variances = laplace_variance(np.concatenate(shape.scales(0.01)))
    W = np.diag(np.where(np.isfinite(variances), 1 / variances, 0.0))
    A = np.tril(np.ones((T, T)))
    measured = [random.integers(-9999, 9999, (count, 2)) for count in shape.blocks.counts]
    expected = A @ np.linalg.solve(G.T @ W @ G, G.T @ W @ np.concatenate(measured))
    assert np.ldexp(levels_of(shape, 0.01, measured, 20), -20) == pytest.approx(expected, abs=1e-4)
    exact = np.diag(A @ np.linalg.inv(G.T @ W @ G) @ A.T)
    assert shape.weights(0.01).variances == pytest.approx(exact, rel=1e-9)
    assert laplace_variance(np.array([3.5]))[0] == pytest.approx(NodeNoise(Law.LAPLACE, 3.5).variance)


@pytest.mark.parametrize("shape", SHAPES, ids=names)
def test_what_is_published_follows_from_what_is_measured_to_the_last_bit(shape):
    """Measurements that hold the true changes give the estimates that the noise alone gives, plus the true levels: on
    the lattice, exactly, so rounding tells nothing that the measurements do not."""
    random = np.random.default_rng(2)
    x = random.integers(-50, 50, (shape.blocks.periods, 3))
    noise = [random.integers(-99, 99, (count, 3)) for count in shape.blocks.counts]
    seen = [z + block_matrix(shape.blocks, layer) @ x for layer, z in enumerate(noise)]
    for bits in (0, 7, 20):
        assert np.array_equal(
            levels_of(shape, 0.1, seen, bits), levels_of(shape, 0.1, noise, bits) + (x.cumsum(0) << bits)
        )


def test_what_many_mutations_reach_in_a_long_window_is_bounded(monkeypatch):
    """Two sums stand for the sorted windows, and are no less; every window is looked at where they are few."""
    apart = np.random.default_rng(3).random(60)
    for reach in (Reach(4, 10), Reach(8, 20), Reach(3, 50)):
        span, more = reach.span, reach.periods - 1
        exact = max(np.sort(apart[first : first + span])[-more:].sum() for first in range(61 - span))
        assert reached_at_most(apart, reach) == pytest.approx(exact)
        with monkeypatch.context() as few:
            few.setattr("changeling_central.ahead.MOST_LOOKED_AT", 0)
            assert reached_at_most(apart, reach) >= exact * (1 - 1e-12)


def test_without_noise_a_release_is_the_truth_and_draws_a_block_ahead():
    """The first period of a block of the highest layer draws for all of it, and no other period draws."""
    mechanism = drawn_ahead(HISTOGRAM, Calendar(0, 1, 7), AtMost(2), ONE, SHAPES[1])
    state, level = mechanism.start(), np.zeros(2)
    for period in range(7):
        change = np.array([period, -1])
        level += change
        state, published = mechanism.step(state, change, NoNoise() if period % 3 == 0 else Forbidden())
        assert np.array_equal(published.values, level)
        assert len(state.ahead) == min(2 - period % 3, 6 - period)


@pytest.mark.parametrize("k", [1, 2])
def test_the_best_shape_errs_far_less_than_the_best_hierarchy_of_closed_nodes(k):
    """In mean square, over 168 periods at epsilon 1: 53.7, and 126.1 where 126.5 are asked for."""
    calendar = Calendar(0, 3600, 168)
    tree = drawn_ahead(COUNT, calendar, AtMost(k), ONE)
    found = np.mean([tree.variance(step) for step in range(1, 169)])
    assert found <= {1: 54, 2: 126.5}[k]
    assert found <= best_hierarchy(COUNT, calendar, AtMost(k), ONE).mean_variance * {1: 0.6, 2: 0.35}[k]


def drawn_at(scales):
    """All draws of Laplace noise at these scales as far as 9 units, shape (draws, ways), and the chance of each way."""
    z = np.indices((19,) * len(scales)).reshape(len(scales), -1) - 9
    law = np.exp(-np.abs(z) / np.array(scales)[:, None])
    whole = np.exp(-np.abs(np.arange(-9, 10)) / np.array(scales)[:, None]).sum(1, keepdims=True)
    return z, np.prod(law / whole, axis=0)


@pytest.mark.parametrize("share", [-1.0, 0.0, 1.0, "fresh levels"])
def test_who_reacts_to_what_is_published_learns_no_more(share):
    """Everything that can be published of three periods, enumerated, where the entry and all others decide by it.

    Noise is followed to 9 units, of a scale below 1: what is beyond changes no ratio here by more than a thousandth.
    """
    calendar, epsilon = Calendar(0, 1, 3), Fraction(3)
    if share == "fresh levels":
        epsilon = Fraction(5)
        fresh = offered("fresh").made(Asked(COUNT, calendar, AtMost(2), epsilon))
        z, chances = drawn_at([fresh.common, *[fresh.own] * 3])
        noise = z[0] + z[1:]
    else:
        shape = Shape(Blocks(3, (1, 3)), ((share, 0.0, 0.0),))
        mechanism = drawn_ahead(COUNT, calendar, AtMost(2), epsilon, shape)
        z, chances = drawn_at(np.concatenate(shape.scales(mechanism.rate)))
        ends = np.cumsum((0, *shape.blocks.counts))
        noise = levels_of(shape, mechanism.rate, [z[a:b] for a, b in pairwise(ends)])  # whole: the lattice is of units
    worlds = []
    for entry in (0, 1):
        level, there, gone = (np.zeros(len(chances), np.int64) for _ in range(3))
        seen, published = level, level
        for period in range(3):
            comes = entry * (1 - there) * (1 - gone) * (published >= 0)
            goes = there * (published < 0)
            there, gone = there + comes - goes, gone + goes
            level = level + comes - goes + (published < 1)
            published = level + noise[period]
            seen = seen * 1000 + published
        worlds.append(dict(zip(*(each.tolist() for each in summed(seen, chances)), strict=True)))
    ratios = [
        abs(log(chance / worlds[1][o])) for o, chance in worlds[0].items() if min(chance, worlds[1].get(o, 0)) > 1e-4
    ]
    assert len(ratios) > (40 if share == "fresh levels" else 50)
    assert float(epsilon) * 0.5 < max(ratios) <= float(epsilon) * 1.001


def summed(keys, weights):
    """Each different key, and the sum of its weights."""
    found, which = np.unique(keys, return_inverse=True)
    return found, np.bincount(which, weights)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": Fraction(0)}, "epsilon > 0"),
        ({"shape": Shape(Blocks(6, (1, 3)), ((0.0, 0.0, 0.0),))}, "6 periods"),
        ({"query": clipped_sum({"a": 2.0**52}, ["a"], 0, 2**52), "shape": SHAPES[1]}, "larger unit"),
    ],
)
def test_what_cannot_be_asked_is_refused(given, said):
    """In words of what was given; so are blocks that do not fit."""
    asked = {"query": COUNT, "calendar": Calendar(0, 1, 7), "constraint": AtMost(1), "epsilon": ONE, **given}
    with pytest.raises(ValueError, match=said):
        drawn_ahead(**asked)
    for widths in [(2,), (1, 3, 7), (1, 1), (1, 7, 14), ()]:
        with pytest.raises(ValueError, match=r"widths|fewer layers"):
            Blocks(7, widths)

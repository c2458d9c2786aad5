"""Effective resistances at all times at once, against the estimator's own network."""

import numpy as np
import pytest
from changeling_statistics import Network
from changeling_statistics.planning.prediction import Edges, drops, potentials, resistances


def random_edges(generator, periods, extra):
    """A path through all times, and some edges more, some of them twice."""
    start = np.concatenate([np.arange(periods), generator.integers(0, periods, extra)])
    end = start + 1
    end[periods:] += np.array([generator.integers(0, periods - s) for s in start[periods:]])
    order = np.argsort(end, kind="stable")
    return start[order], end[order], generator.uniform(0.2, 5, len(start))


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_every_edge_carries_what_the_estimator_weighs_it_by(retrospective, seed):
    """K = conductance · drop, and the resistance is Σ K²σ², at every time, online and retrospective."""
    generator = np.random.default_rng(seed)
    periods = 12
    start, end, variance = random_edges(generator, periods, 15)
    edges = Edges(periods, start, end, retrospective)
    P = potentials(edges, 1 / variance)
    K = drops(edges, P) / variance[:, None]
    network = Network(periods, start, end, variance)
    for t in range(1, periods + 1):
        used = network if retrospective else network.closed_by(t)
        row = np.zeros(len(start))
        row[: len(used.start)] = used.row(t)
        np.testing.assert_allclose(K[:, t - 1], row, atol=1e-9)
        assert resistances(P)[t - 1] == pytest.approx(used.resistance(t))


def test_resistors_in_series_add_up_and_in_parallel_their_conductances_do():
    """A path of three, and two edges to the ground from one time."""
    path = Edges(3, np.array([0, 1, 2]), np.array([1, 2, 3]), False)
    np.testing.assert_allclose(resistances(potentials(path, np.array([1.0, 0.5, 0.25]))), [1, 3, 7])
    twice = Edges(1, np.array([0, 0]), np.array([1, 1]), False)
    np.testing.assert_allclose(resistances(potentials(twice, np.array([1.0, 3.0]))), [0.25])


def test_a_time_that_nothing_connects_has_no_finite_resistance():
    """Online a later edge does not help an earlier time; edges of no conductance are not there."""
    late = Edges(2, np.array([0, 1]), np.array([2, 2]), False)
    assert resistances(potentials(late, np.ones(2))).tolist()[0] == np.inf
    assert np.isfinite(resistances(potentials(Edges(2, late.start, late.end, True), np.ones(2)))).all()
    assert not np.isfinite(resistances(potentials(Edges(2, late.start, late.end, True), np.array([1.0, 0.0])))).all()

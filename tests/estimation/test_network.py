"""The network of releases against dense least squares and textbook resistances."""

import numpy as np
import pytest
from changeling_papers import ClosingEdges, Frontier, advance
from changeling_statistics import Network
from changeling_statistics.estimation.network import last_uses, online_rows

from .graphs import dense_row, hierarchy, scattered


@pytest.mark.parametrize("seed", range(4))
def test_the_online_recursion_is_the_solution_of_every_prefix_graph(seed):
    """Values and variances at every time; None just where the closed releases do not reach 0."""
    generator = np.random.default_rng(seed)
    graph = scattered(12, 18, generator) if seed % 2 else hierarchy(12, (1, 2, 4), generator)
    changes = generator.normal(size=(len(graph.start), 3))
    frontier, last = Frontier.before(3), last_uses(graph)
    for time in range(1, 13):
        part, at = graph.closed_by(time), np.flatnonzero(graph.end == time)
        frontier, online = advance(frontier, ClosingEdges(graph.start[at], graph.variance[at], changes[at]), last)
        assert (online is not None) == part.connected(time, 0)
        if online is not None:
            row = dense_row(graph, time, 0, time)
            np.testing.assert_allclose(online.values, row @ changes, atol=1e-9)
            np.testing.assert_allclose(online.planned, row**2 @ graph.variance, atol=1e-9)


def test_all_answers_are_fitted_at_once_retrospectively():
    """`fit` gives every time's row times the changes, whole columns at a time."""
    generator = np.random.default_rng(1)
    graph = hierarchy(12, (1, 2, 4), generator)
    changes = generator.normal(size=(len(graph.start), 3))
    rows = np.array([dense_row(graph, time) for time in range(1, 13)])
    np.testing.assert_allclose(graph.fit(changes)[1:], rows @ changes, atol=1e-9)
    assert not graph.fit(changes)[0].any()


def test_a_release_of_a_time_already_dropped_is_refused():
    """The state holds only times that are still open, and says so."""
    frontier = Frontier.before(1)
    last = np.zeros(4, np.intp)
    one = ClosingEdges(np.array([0]), np.ones(1), np.ones((1, 1)))
    frontier, _ = advance(frontier, one, last)
    late = ClosingEdges(np.array([1]), np.ones(1), np.ones((1, 1)))
    with pytest.raises(ValueError, match="time 1, which is no longer open at period 2"):
        advance(frontier, late, last)


def test_the_frontier_of_a_hierarchy_stays_small():
    """At most one open node a layer, however long the history."""
    graph = hierarchy(256, (1, 2, 4, 8, 16))
    frontier, last = Frontier.before(1), last_uses(graph)
    for period in range(1, 257):
        at = np.flatnonzero(graph.end == period)
        closing = ClosingEdges(graph.start[at], graph.variance[at], np.zeros((len(at), 1)))
        frontier, _ = advance(frontier, closing, last)
        assert len(frontier.times) <= 6


def test_what_is_no_network_or_has_no_row_is_refused():
    """Variances of nothing or less, and times that nothing connects."""
    for variance in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"above 0, got {variance}"):
            Network(1, np.array([0]), np.array([1]), np.array([variance]))
    with pytest.raises(ValueError, match="times 0 and 2"):
        Network(3, np.array([0, 2]), np.array([1, 3]), np.ones(2)).row(2)


PERIODS = 16
NETWORKS = {
    "a hierarchy": lambda generator: hierarchy(PERIODS, (1, 2, 4, 8), generator),
    "a hierarchy with gaps": lambda generator: _without(hierarchy(PERIODS, (1, 2, 4, 8), generator), generator),
    "spans that cross": lambda generator: scattered(PERIODS, 40, generator),
    "spans that cross, with gaps": lambda generator: scattered(PERIODS, 18, generator),
}


def _without(network, generator):
    kept = generator.random(len(network.start)) > 0.3
    return Network(network.periods, network.start[kept], network.end[kept], network.variance[kept])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("lag", [0, 1, 3, 8])
@pytest.mark.parametrize("made", NETWORKS.values(), ids=NETWORKS)
def test_the_weights_at_every_time_are_those_of_dense_least_squares(made, lag, seed):
    """Of histograms and windows, where edges lead there, whether or not the spans of edges lie within one another."""
    network = made(np.random.default_rng(seed))
    told = dict(online_rows(network, PERIODS, lag))
    before = {time: time - lag if lag else 0 for time in range(max(1, lag), PERIODS + 1)}
    assert told
    assert told.keys() == {time for time, since in before.items() if network.closed_by(time).connected(time, since)}
    for time, row in told.items():
        np.testing.assert_allclose(row, dense_row(network, time, before[time], time), atol=1e-9)

"""The network of releases against dense least squares and textbook resistances."""

import numpy as np
import pytest
from changeling_statistics import Network
from changeling_statistics.estimation.network import online_rows

from .graphs import dense_row


def hierarchy(periods, widths, generator=None):
    """The network of a hierarchy; variances 1, or random in [1, 5)."""
    spans = sorted(
        ((s, s + w) for w in widths for s in range(0, periods - w + 1, w)), key=lambda span: (span[1], span[0])
    )
    start, end = np.array(spans, dtype=np.intp).T
    variance = np.ones(len(spans)) if generator is None else generator.uniform(1, 5, len(spans))
    return Network(periods, start, end, variance)


def scattered(periods, edges, generator):
    """A random network, in which some times may be connected with nothing."""
    start = generator.integers(0, periods, edges)
    end = start + 1 + np.array([generator.integers(0, periods - s) for s in start])
    order = np.argsort(end, kind="stable")
    return Network(periods, start[order], end[order], generator.uniform(0.5, 4, edges))


def test_all_answers_are_fitted_at_once_retrospectively():
    """`fit` gives every time's row times the changes, whole columns at a time."""
    generator = np.random.default_rng(1)
    graph = hierarchy(12, (1, 2, 4), generator)
    changes = generator.normal(size=(len(graph.start), 3))
    rows = np.array([dense_row(graph, time) for time in range(1, 13)])
    np.testing.assert_allclose(graph.fit(changes)[1:], rows @ changes, atol=1e-9)
    assert not graph.fit(changes)[0].any()


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

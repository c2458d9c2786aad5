"""The weights of all online estimates at once are those of dense least squares on what had closed by then."""

import numpy as np
import pytest
from changeling_statistics import Network
from changeling_statistics.estimation.network import online_rows

from .graphs import dense_row, hierarchy, scattered

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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lag", [1, 3, 8])
@pytest.mark.parametrize("made", NETWORKS.values(), ids=NETWORKS)
def test_the_weights_at_every_time_are_those_of_dense_least_squares(made, lag, seed):
    """Of histograms and windows, where edges lead there, whether or not the spans of edges lie within one another."""
    network = made(np.random.default_rng(seed))
    told = 0
    for time, alone, over in online_rows(network, PERIODS, lag):
        known = network.closed_by(time)
        assert (alone is not None) == known.connected(time, 0)
        if alone is not None:
            np.testing.assert_allclose(alone, dense_row(network, time, 0, time), atol=1e-9)
        assert (over is not None) == (time >= lag and known.connected(time, time - lag))
        if over is not None:
            told += 1
            np.testing.assert_allclose(over, dense_row(network, time, time - lag, time), atol=1e-9)
    assert told

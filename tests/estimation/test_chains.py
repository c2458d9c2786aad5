"""Chains of change nodes: the shortest, and what they are made of."""

import numpy as np
import pytest
from changeling_statistics.estimation.sampling import Chains

from .graphs import hierarchy, scattered

PERIODS = 14


def _all_lengths(network, length):
    """The length of the shortest chain between all times, by going through all edges until nothing gets shorter."""
    shortest = np.full((PERIODS + 1, PERIODS + 1), np.inf)
    np.fill_diagonal(shortest, 0.0)
    for _ in range(PERIODS):
        for start, end, more in zip(network.start, network.end, length, strict=True):
            shortest[:, end] = np.minimum(shortest[:, end], shortest[:, start] + more)
    return shortest


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("crossing", [False, True])
def test_chains_are_the_shortest_and_lead_from_one_time_to_the_other(crossing, seed):
    """Their lengths are those found by trying every edge again and again; their edges follow one another."""
    generator = np.random.default_rng(seed)
    network = scattered(PERIODS, 25, generator) if crossing else hierarchy(PERIODS, (1, 2, 4))
    length, tells = generator.uniform(0.1, 1.0, len(network.start)), generator.random(len(network.start)) > 0.3
    times = np.sort(generator.choice(np.arange(PERIODS + 1, dtype=np.intp), 9, replace=False))
    order = generator.permutation(len(network.start))
    ways = Chains(PERIODS, network.start[order], network.end[order], length[order], tells[order], times)
    spans = list(zip(ways.start.tolist(), ways.end.tolist(), strict=True))
    first_of = {span: spans.index(span) for span in spans}
    distinct = np.array(sorted(first_of.values()))
    lengths = _all_lengths(Chains(PERIODS, ways.start[distinct], ways.end[distinct], 0, 0, 0), ways.length[distinct])
    chains = ways.edges()
    for pair, (source, target) in enumerate(zip(times[ways.first], times[ways.second], strict=True)):
        assert ways.expected[pair] == pytest.approx(lengths[source, target])
        edges = sorted(chains[pair].indices.tolist(), key=lambda edge: ways.start[edge])
        assert len(edges) == ways.hops[pair]
        assert ways.told[pair] == all(ways.tells[edge] for edge in edges)
        if edges:
            stops = [source, *(ways.end[edge] for edge in edges)]
            assert [ways.start[edge] for edge in edges] == stops[:-1]
            assert stops[-1] == target
            assert sum(ways.length[edge] for edge in edges) == pytest.approx(lengths[source, target])
    some = np.array([3, 0, 17], np.intp)
    np.testing.assert_array_equal(ways.edges(some).toarray(), chains[some].toarray())

"""Decoders against exact expectations over all reports."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
from changeling_aggregator.estimation import EmptyNode, histogram_change, input_counts
from changeling_aggregator.tallies import NodeTally, tally
from changeling_protocol import KaryResponse, MutationSpace, Odds, StateSpace

RANDOMIZERS = [
    KaryResponse(MutationSpace(1), Odds(3, 1)),
    KaryResponse(MutationSpace(2), Odds(7, 2)),
    KaryResponse(MutationSpace(2, repeats=True), Odds(2, 1)),
    KaryResponse(StateSpace(2), Odds(3, 2)),
    KaryResponse(StateSpace(3, null=False), Odds(5, 1)),
]


def matrices(randomizer):
    """P (symbols, inputs) and M_δv (z, inputs), spelled out."""
    space = randomizer.space
    P = np.array(
        [[randomizer.weight(o, u) / randomizer.total(u) for u in range(space.size)] for o in range(randomizer.symbols)]
    )
    M = np.zeros((space.answers + 1, space.size))
    for u in range(space.size):
        old, new = space.pair(u)
        M[new, u] += 1
        M[old, u] -= 1
    return P, M[1:]


def one_report(randomizer, symbol):
    return histogram_change(tally(randomizer, np.array([symbol], dtype=np.uint64)), randomizer)


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=str)
def test_the_decoded_change_is_unbiased_for_every_true_input(randomizer):
    """For every true input, the expectation over all reports of the decoded change is the change itself."""
    P, M = matrices(randomizer)
    decoded = np.array([one_report(randomizer, symbol).values for symbol in range(randomizer.symbols)])
    np.testing.assert_allclose(decoded.T @ P, M, atol=1e-12)


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=str)
def test_the_covariance_estimator_is_unbiased_for_every_true_input(randomizer):
    """Its expectation over all reports is the exact covariance of the decoded change."""
    P, M = matrices(randomizer)
    estimates = [one_report(randomizer, symbol) for symbol in range(randomizer.symbols)]
    for u in range(randomizer.space.size):
        expected = sum(P[o, u] * e.covariance for o, e in enumerate(estimates))
        exact = sum(P[o, u] * np.outer(e.values - M[:, u], e.values - M[:, u]) for o, e in enumerate(estimates))
        np.testing.assert_allclose(expected, exact, atol=1e-10)


@pytest.mark.parametrize("inputs", [(0, 0), (0, 1), (1, 2), (3, 6), (4, 4)])
def test_values_and_covariance_are_unbiased_for_several_entries_at_once(inputs):
    """Over every outcome of two entries' reports, with exact probabilities."""
    randomizer = RANDOMIZERS[1]
    P, M = matrices(randomizer)
    truth = M[:, inputs[0]] + M[:, inputs[1]]
    mean, spread, estimated = np.zeros(2), np.zeros((2, 2)), np.zeros((2, 2))
    for symbols in product(range(randomizer.symbols), repeat=2):
        probability = P[symbols[0], inputs[0]] * P[symbols[1], inputs[1]]
        estimate = histogram_change(tally(randomizer, np.array(symbols, dtype=np.uint64)), randomizer)
        mean += probability * estimate.values
        spread += probability * np.outer(estimate.values - truth, estimate.values - truth)
        estimated += probability * estimate.covariance
    np.testing.assert_allclose(mean, truth, atol=1e-12)
    np.testing.assert_allclose(estimated, spread, atol=1e-10)


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=str)
def test_the_closed_form_agrees_with_the_full_matrices(randomizer):
    """Inverse, estimate and covariance agree to 1e-9 with numpy.linalg on P, for random tallies."""
    P, M = matrices(randomizer)
    generator = np.random.default_rng(5)
    for _ in range(20):
        O = generator.integers(0, 1000, randomizer.symbols)
        node = NodeTally(int(O.sum()), O)
        estimate = histogram_change(node, randomizer)
        s = np.linalg.solve(P, O)
        A = M @ np.linalg.inv(P)
        covariance = A @ np.diag(O) @ A.T - M @ np.diag(s) @ M.T
        np.testing.assert_allclose(input_counts(node, randomizer), s, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(estimate.values, M @ s, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(estimate.covariance, covariance, rtol=1e-9, atol=1e-9 * abs(covariance).max())


def test_no_matrix_over_the_mutations_is_built():
    """Decoding 10,101 mutations takes less memory than a hundredth of one matrix P."""
    randomizer = KaryResponse(MutationSpace(100), Odds(3, 1))
    node = NodeTally(randomizer.symbols, np.ones(randomizer.symbols, dtype=np.int64))
    histogram_change(node, randomizer)
    tracemalloc.start()
    histogram_change(node, randomizer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * randomizer.symbols**2 / 100


def test_an_empty_node_says_nothing():
    """It has no estimate, rather than an estimate of no change with no error."""
    randomizer = RANDOMIZERS[0]
    with pytest.raises(EmptyNode):
        histogram_change(NodeTally(0, np.zeros(3, dtype=np.int64)), randomizer)

"""Decoding a node: k-RR's closed form, custom matrices, what cannot be decoded; the contract is in tests/contracts."""

from fractions import Fraction
from time import perf_counter

import numpy as np
import pytest
from changeling_protocol import (
    CustomResponse,
    KaryResponse,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)
from changeling_statistics import (
    EmptyNode,
    NodeTally,
    class_variances,
    counterpart_of,
    histogram_change,
)
from changeling_statistics.testing import matrices

from ..contracts.randomizers import steep


def test_an_empty_node_says_nothing():
    """It has no estimate, rather than an estimate of no change with no error."""
    with pytest.raises(EmptyNode):
        histogram_change(NodeTally(0, np.zeros(3, dtype=np.int64)), KaryResponse(MutationSpace(1), Odds(3, 1)))


@pytest.mark.parametrize(
    "randomizer", [KaryResponse(MutationSpace(2), Odds(2, 2)), KaryResponse(StateSpace(2), Odds(1, 1))]
)
def test_odds_of_one_say_nothing(randomizer):
    """They are refused with the odds named, rather than divided by zero."""
    with pytest.raises(ValueError, match="say nothing"):
        histogram_change(NodeTally(1, np.ones(randomizer.symbols, np.int64)), randomizer)


def test_a_custom_decoder_has_the_least_variance_at_equal_inputs():
    """No unbiased decoder, tried by adding what decodes to zero, has less where inputs are equally frequent."""
    randomizer = steep(MutationSpace(2))
    P, _ = matrices(randomizer)
    D = P.mean(1)
    eye = np.eye(randomizer.symbols, dtype=np.int64)
    A = np.array([histogram_change(NodeTally(1, row), randomizer).values for row in eye]).T
    blind = np.linalg.svd(P.T)[2][np.linalg.matrix_rank(P) :]
    assert len(blind) == 1
    for step in (-0.01, 0.01):
        for answer in range(2):
            other = A[answer] + step * blind[0]
            np.testing.assert_allclose(other @ P, A[answer] @ P, atol=1e-9)
            assert D @ other**2 > D @ A[answer] ** 2


def test_a_matrix_without_a_left_inverse_is_refused():
    """Three symbols cannot tell the changes of two answers apart; two columns alike neither."""
    few = CustomResponse(MutationSpace(2), ((6, 1, 6, 6, 1, 6, 1), (1, 1, 6, 2, 9, 1, 6), (3, 6, 1, 1, 5, 6, 6)))
    alike = CustomResponse(StateSpace(2), ((3, 1, 1), (1, 2, 2), (1, 2, 2)))
    for randomizer in (few, alike):
        with pytest.raises(ValueError, match="cannot be decoded without bias"):
            histogram_change(NodeTally(3, np.ones(3, np.int64)), randomizer)


def test_a_matrix_need_only_tell_what_is_estimated():
    """Two symbols for one answer's insertion, deletion and no change: they tell the change of the histogram, though
    not how many mutated, so the covariance is an upper bound."""
    randomizer = CustomResponse(MutationSpace(1), ((2, 3, 1), (2, 1, 3)))
    estimate = histogram_change(NodeTally(9, np.array([7, 2])), randomizer)
    np.testing.assert_allclose(estimate.values, [10])
    np.testing.assert_allclose(estimate.covariance, [[36]])
    assert estimate.upper_bound


@pytest.mark.timed
def test_large_alphabets_are_kept_as_sums():
    """16 answers have 48,621 sign vectors: 35 slots instead, a million reports tallied in seconds and decoded."""
    signed = SignedSubset(MutationSpace(16), Odds(100, 1), spoken=Fraction(1, 30))
    subset = SubsetSelection(StateSpace(16), Odds(20, 1), 6)
    assert counterpart_of(signed).slots == 1 + 2 * 17
    assert counterpart_of(subset).slots == 17
    generator = np.random.default_rng(3)
    for randomizer in (signed, subset):
        symbols = generator.integers(0, randomizer.symbols, 10**6).astype(np.uint64)
        started = perf_counter()
        estimate = histogram_change(counterpart_of(randomizer).tally(symbols), randomizer)
        assert perf_counter() - started < 20
        assert estimate.values.shape == (16,)
        assert estimate.upper_bound == (randomizer is signed)


@pytest.mark.parametrize("answers", [14, 16, 41])
@pytest.mark.parametrize("favoured", [2, 3, 7, 55, 2981])
def test_the_bound_from_sums_is_not_far_above(answers, favoured):
    """On average at most an eighth above the mean exact variance, for balanced vectors and u = min(1, 1/K), however
    many of the entries change."""
    space, odds = MutationSpace(answers), Odds(favoured, 1)
    share = Fraction(SignedSubset(space, odds).favoured, SignedSubset(space, odds).vectors.count)
    spoken = min(Fraction(1), 1 / (share * (favoured - 1)))
    randomizer = SignedSubset(space, odds, spoken=spoken.limit_denominator(10**6))
    of_classes = class_variances(randomizer, False)  # a deletion is as noisy as an insertion
    unchanged, changed = of_classes.none, (2 * of_classes.came + (answers - 1) * of_classes.moved) / (answers + 1)
    for moved in (0, 0.02, 0.5, 1):
        quiet = sum(
            part * randomizer.quiet * randomizer.weight(0, true) / randomizer.total(true)
            for part, true in ((1 - moved, 0), (moved, 1))
        )
        expected = NodeTally(1, np.array([quiet, *np.zeros(2 * randomizer.states)]))
        stated = np.diag(histogram_change(expected, randomizer).covariance).mean()
        exact = (1 - moved) * unchanged + moved * changed
        assert exact * (1 - 1e-6) < stated < 1.125 * exact


@pytest.mark.timed
@pytest.mark.parametrize(
    "randomizer",
    [
        KaryResponse(MutationSpace(99, repeats=True), Odds(20, 1)),
        SignedSubset(MutationSpace(16), Odds(20, 1), spoken=Fraction(1, 8)),
        SubsetSelection(StateSpace(16), Odds(20, 1), 5),
        UnaryEncoding(StateSpace(16), Odds(20, 1)),
    ],
    ids=lambda r: type(r).__name__,
)
def test_the_noise_of_large_alphabets_is_quick(randomizer):
    """10,000 symbols, or 16 answers: averages and covariances in well under a second, from symmetry alone."""
    counterpart_of.cache_clear()
    class_variances.cache_clear()
    started = perf_counter()
    assert class_variances(randomizer, False).moved > 0
    assert counterpart_of(randomizer).report_covariance(1).shape == (randomizer.space.answers,) * 2
    assert perf_counter() - started < 1

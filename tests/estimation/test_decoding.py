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
from changeling_statistics import EmptyNode, NodeTally, class_variances, counterpart_of, histogram_change
from changeling_statistics.testing import matrices

from ..contracts.randomizers import steep

FEW = CustomResponse(MutationSpace(2), ((6, 1, 6, 6, 1, 6, 1), (1, 1, 6, 2, 9, 1, 6), (3, 6, 1, 1, 5, 6, 6)))
ALIKE = CustomResponse(StateSpace(2), ((3, 1, 1), (1, 2, 2), (1, 2, 2)))


@pytest.mark.parametrize(
    ("randomizer", "reports", "named"),
    [
        (KaryResponse(MutationSpace(1), Odds(3, 1)), 0, "nothing was reported"),
        (KaryResponse(MutationSpace(2), Odds(2, 2)), 1, "say nothing"),
        (KaryResponse(StateSpace(2), Odds(1, 1)), 1, "say nothing"),
        (FEW, 1, "cannot be decoded without bias"),
        (ALIKE, 1, "cannot be decoded without bias"),
    ],
    ids=["an empty node", "odds of one", "odds of one, states", "too few symbols", "two columns alike"],
)
def test_what_says_nothing_has_no_estimate(randomizer, reports, named):
    """Rather than one of no change with no error, or a division by zero."""
    tally = NodeTally(reports * randomizer.symbols, np.full(randomizer.symbols, reports, np.int64))
    with pytest.raises(ValueError if reports else EmptyNode, match=named):
        histogram_change(tally, randomizer)


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
def test_large_alphabets_are_quick(randomizer):
    """10,000 symbols, or 16 answers: variances in well under a second, from symmetry alone. Of vectors and sets only
    sums are kept, in which a million reports are tallied in seconds, and decoded."""
    counterpart_of.cache_clear()
    class_variances.cache_clear()
    started, answers = perf_counter(), randomizer.space.answers
    counterpart = counterpart_of(randomizer)
    assert class_variances(randomizer, False).moved > 0
    assert counterpart.report_covariance(1).shape == (answers, answers)
    assert perf_counter() - started < 1
    sums = {SignedSubset: 1 + 2 * 17, SubsetSelection: 17}
    if type(randomizer) in sums:
        assert counterpart.slots == sums[type(randomizer)]
        symbols = np.random.default_rng(3).integers(0, randomizer.symbols, 10**6).astype(np.uint64)
        estimate = histogram_change(counterpart.tally(symbols), randomizer)
        assert perf_counter() - started < 20
        assert estimate.values.shape == (16,)
        assert estimate.upper_bound == isinstance(randomizer, SignedSubset)


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

"""Ranks of sign vectors: an order without gaps, in exact integers, alone and many at once."""

import numpy as np
import pytest
from changeling_protocol import (
    MutationSpace,
    Odds,
    SignedSubset,
    SignVectors,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)
from changeling_statistics import counterpart_of
from changeling_statistics.randomizers.counted import unrank_signs


@pytest.mark.parametrize(
    "randomizer",
    [
        SignedSubset(MutationSpace(64), Odds(3, 1)),
        SignedSubset(MutationSpace(62), Odds(3, 1)),
        SignedSubset(MutationSpace(100), Odds(3, 1), 5),
        SignedSubset(MutationSpace(1000), Odds(3, 1), 1),
        SubsetSelection(StateSpace(64), Odds(3, 1), 30),
    ],
    ids=lambda r: f"{type(r).__name__}-{r.space.answers}",
)
def test_the_largest_alphabets_are_unranked_exactly(randomizer):
    """First, last and random symbols of alphabets near 2^63: no integer overflows on the way."""
    vectors = randomizer.vectors if isinstance(randomizer, SignedSubset) else randomizer.subsets
    ranks = np.random.default_rng(4).integers(0, vectors.count, 200)
    ranks[:2] = 0, vectors.count - 1
    assert unrank_signs(vectors, ranks).tolist() == [list(vectors.unrank(int(rank))) for rank in ranks]
    assert all(vectors.rank(vectors.unrank(int(rank))) == rank for rank in ranks[:20])


def test_bits_are_read_up_to_the_last():
    """Bit i of a symbol speaks of input i, also of the 62nd."""
    response = UnaryEncoding(StateSpace(61), Odds(3, 1))
    said = counterpart_of(response).contents(np.array([0, 1, 2**61, response.symbols - 1], np.uint64))
    assert said.sum(1).tolist() == [0, 1, 1, 62]
    assert said[1, 0] == said[2, 61] == 1


def test_what_is_not_among_the_vectors_is_refused():
    """Ranks outside, and vectors of another shape or length."""
    vectors = SignVectors(4, ((2, 2),))
    for rank in (-1, 6):
        with pytest.raises(ValueError, match="ranks run from 0 to 5"):
            vectors.unrank(rank)
    for signs in ((1, 1, 1, -1), (1, -1), (1, -1, 0, 0)):
        with pytest.raises(ValueError, match="not a vector of 4"):
            vectors.rank(signs)

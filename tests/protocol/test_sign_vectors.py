"""Ranks of sign vectors: an order without gaps, in exact integers, alone and many at once."""

from itertools import product

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

SMALL = [
    SignVectors(0, ((0, 0),)),
    SignVectors(1, ((1, 0),)),
    SignVectors(3, ((1, 1),)),
    SignVectors(4, ((2, 2),)),
    SignVectors(5, ((2, 3), (3, 2))),
    SignVectors(6, ((2, 2),)),
    SignVectors(6, ((4, 0),)),
    SignVectors(5, ((1, 1), (2, 0), (0, 3))),
]


@pytest.mark.parametrize("vectors", SMALL, ids=str)
def test_ranks_number_the_vectors_without_gaps(vectors):
    """Every vector of one of the shapes has one rank below the count, and comes back from it."""
    listed = [
        signs
        for signs in product((1, -1, 0), repeat=vectors.length)
        if (signs.count(1), signs.count(-1)) in vectors.shapes
    ]
    assert len(listed) == vectors.count
    assert sorted(vectors.rank(signs) for signs in listed) == list(range(vectors.count))
    assert all(vectors.unrank(vectors.rank(signs)) == signs for signs in listed)


@pytest.mark.parametrize("vectors", SMALL[2:], ids=str)
def test_fixing_signs_divides_the_vectors(vectors):
    """The vectors with given signs at two positions are the completed ones of the rest, each once, over all signs."""
    found = []
    for first, last in product((1, -1, 0), repeat=2):
        fixed = {vectors.length - 1: last, 0: first}
        rest = vectors.completing(fixed)
        completed = [vectors.completed(rest.unrank(i), fixed) for i in range(rest.count)]
        assert all((signs[0], signs[-1]) == (first, last) for signs in completed)
        found += [vectors.rank(signs) for signs in completed]
    assert sorted(found) == list(range(vectors.count))


@pytest.mark.parametrize("vectors", SMALL[1:], ids=str)
def test_many_at_once_are_as_one_by_one(vectors):
    """The vectorised unranking gives the same vectors."""
    ranks = np.arange(vectors.count, dtype=np.int64)
    assert unrank_signs(vectors, ranks).tolist() == [list(vectors.unrank(rank)) for rank in range(vectors.count)]


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

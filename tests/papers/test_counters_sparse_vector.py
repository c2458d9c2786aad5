"""The sparse vector technique: every transcript of small streams, scales, and shifts."""

from fractions import Fraction
from itertools import product
from math import exp, log

import numpy as np
import pytest
from changeling_central import BudgetExhausted
from changeling_central.testing import Forbidden, NoNoise
from changeling_papers import SparseVector, SparseVectorState

EPSILON = Fraction(2)


GRID = 60


"""Noise is enumerated to ±60, beyond which Lap(2) has less than 10⁻¹² of its mass."""


class Fixed(NoNoise):
    """Draws from a list; remembers the scales."""

    def __init__(self, draws):
        self.draws, self.scales = iter(draws), []

    def laplace(self, scale, size):
        assert size == 1
        self.scales.append(scale)
        return np.array([next(self.draws)])


def law(scale):
    grid = np.arange(-GRID, GRID + 1)
    p = exp(-1 / scale)
    return dict(zip(grid.tolist(), ((1 - p) / (1 + p) * p ** np.abs(grid)).tolist(), strict=True))


def transcripts(vector, queries):
    """The chance of every transcript, the code itself run on every noise: the threshold's first, then each query's."""
    raised, asked = law(2 / float(vector.epsilon)), law(4 / float(vector.epsilon))
    chances = {}
    for draw, weight in raised.items():
        open_ = {(): weight}
        for number, query in enumerate(queries):
            still = {}
            for answers, mass in open_.items():
                state = SparseVectorState(None if number == 0 else draw, False)
                for other, its in asked.items():
                    draws = [draw, other] if number == 0 else [other]
                    above = vector.step(state, query, Fixed(draws))[1]
                    into = chances if above else still
                    into[*answers, above] = into.get((*answers, above), 0) + mass * its
            open_ = still
        for answers, mass in open_.items():
            chances[answers] = chances.get(answers, 0) + mass
    return chances


@pytest.mark.heavy
def test_no_transcript_of_the_sparse_vector_tells_neighbours_apart_beyond_epsilon_enumerated():
    """All pairs of two queries that each move by at most 1, and four far above the threshold before one far below it,
    which the theorem's bound is made for: every log ratio within ε, that of the latter above 0.9·ε.
    """
    vector = SparseVector(1.0, EPSILON)
    small, far = list(product((0, 1, 2), repeat=2)), [(9, 9, 9, 9, -7), (10, 10, 10, 10, -8)]
    found = {queries: transcripts(vector, queries) for queries in [*small, *far]}

    def told_apart(one, other):
        return max(abs(log(found[one][t] / found[other][t])) for t in found[one])

    for one, other in product(small, small):
        if max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1:
            assert told_apart(one, other) <= float(EPSILON)
    assert 0.9 * float(EPSILON) < told_apart(*far) <= float(EPSILON)


def test_the_scales_are_those_of_the_algorithm():
    """Threshold Lap(2/ε), drawn once; every query Lap(4/ε)."""
    noise, vector = Fixed([0, 0, 0, 9]), SparseVector(5.0, EPSILON)
    state, _ = vector.step(vector.start(), 0, noise)
    state, _ = vector.step(state, 5, noise)
    assert not state.halted
    state, above = vector.step(state, 0, noise)
    assert above
    assert noise.scales == [1.0, 2.0, 2.0, 2.0]
    with pytest.raises(BudgetExhausted, match="once"):
        vector.step(state, 0, Forbidden())


def test_a_shift_of_threshold_and_answer_changes_no_answer_however_large_the_noise():
    """What the proof moves noise by: 0.5 + 2⁶⁰ + 1 as a float is 2⁶⁰, which would answer "above" at 2⁶⁰ + 1."""
    vector = SparseVector(0.5, EPSILON)
    for raised in (0, 2**53, 2**60, -(2**60)):
        for moved in range(4):
            for answer in (0, 1):
                state = SparseVectorState(raised + moved)
                assert vector.step(state, raised + moved + answer, Fixed([0]))[1] == (answer == 1)

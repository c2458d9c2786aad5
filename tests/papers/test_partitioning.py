"""The sparse vector, private partitioning, and the releases that feed on it."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp, log, pi

import numpy as np
import pytest
from changeling_central import BadState, BudgetExhausted
from changeling_central.testing import Forbidden, NoNoise, SeededNoise
from changeling_papers import (
    BasicCounting,
    InfiniteMechanism,
    LinearQueries,
    PartitionedRelease,
    Partitioning,
    SparseVector,
    insertion_minus_deletion,
    sparse_release,
)
from changeling_papers.partitioning import SparseVectorState

from .scripted import Exact

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


"""Noise is enumerated to ±60, beyond which Lap(2) has less than 10⁻¹² of its mass."""


def cuts(partitioning, updates, noise):
    state, ends = partitioning.start(), []
    for t, value in enumerate(updates, 1):
        state, ended = partitioning.step(state, value, noise)
        if ended:
            ends.append(t)
    return ends


def test_limits_and_thresholds_of_the_infinite_partitioning_are_those_of_algorithm_2():
    """With no updates and no noise, segments end at T_j alone: 2, 4 = 2², 16, 256; θ_j as stated."""
    infinite = Partitioning(Fraction(1), 0.1)
    assert cuts(infinite, [0] * 300, NoNoise()) == [2, 4, 16, 256]
    assert infinite.threshold(3, 16) == pytest.approx(7 * log(2 * 16 / (0.1 * 6 / (pi**2 * 9))))
    state = infinite.start()
    for _ in range(4):
        state, _ = infinite.step(state, 0, NoNoise())
    assert (state.segment, state.limit, state.time) == (3, 16, 4)


def test_a_finite_partitioning_ends_its_segments_by_threshold_and_at_the_end():
    """100 steps of one update, no noise: a segment once its count is above θ; the last at T; nothing after it."""
    finite = Partitioning(Fraction(4), 0.05, periods=100)
    size = int(finite.threshold(1, 100)) + 1
    assert finite.threshold(1, 100) == finite.threshold(7, 100) == pytest.approx(7 / 4 * log(200 / (0.05 / 100)))
    assert cuts(finite, [1] * 100, NoNoise()) == [*range(size, 100, size), 100]
    state = finite.start()
    for _ in range(100):
        state, _ = finite.step(state, 1, NoNoise())
    with pytest.raises(BudgetExhausted, match="100 steps"):
        finite.step(state, 1, Forbidden())


@pytest.mark.heavy
def test_segments_are_few_and_hold_few_updates():
    """Lemma 7 with its constants, 20,000 steps, 400 updates, ε = 1, β = .1: a segment holds at most
    θ + (6/ε) ln(2/β_j); at most n_t + log₂ log₂ t + 2 segments. One seeded run; the lemma's own false alarm is .1."""
    partitioning, random = Partitioning(Fraction(1), 0.1), np.random.default_rng(4)
    updates = (random.random(20_000) < 0.02).astype(int).tolist()
    noise, state, held = SeededNoise(4), partitioning.start(), 0
    for t, value in enumerate(updates, 1):
        threshold = partitioning.threshold(state.segment, state.limit)
        slack = 6 * log(2 * (pi * state.segment) ** 2 / (6 * 0.1))
        held += value
        assert held <= threshold + slack + 1
        state, ended = partitioning.step(state, value, noise)
        held = 0 if ended else held
        assert state.segment - 1 <= sum(updates[:t]) + log(log(max(t, 4), 2), 2) + 2


def test_without_noise_a_sparse_release_answers_for_the_ended_segments():
    """At every t the answer is the count at the last segment's end."""
    cutter = Partitioning(Fraction(1), 0.1)
    release = PartitionedRelease(cutter, InfiniteMechanism(Exact(BasicCounting()), Fraction(1)))
    random = np.random.default_rng(3)
    updates = [int(x) for x in random.integers(0, 6, 200)]
    ends, state = cuts(cutter, updates, NoNoise()), release.start()
    assert len(ends) > 3
    for t, value in enumerate(updates, 1):
        state, answer = release.step(state, (value,), NoNoise())
        assert answer == sum(updates[: max([0, *(end for end in ends if end <= t)])])


def test_bad_input_draws_nothing():
    """Numbers that are none, negative counts, broken states, impossible parameters."""
    partitioning, vector = Partitioning(Fraction(1)), SparseVector(0.0, Fraction(1))
    for value in (-1, 1.0, None):
        with pytest.raises(ValueError, match="number of its updates"):
            partitioning.step(partitioning.start(), value, Forbidden())
    with pytest.raises(ValueError, match="whole number"):
        vector.step(vector.start(), 1.0, Forbidden())
    release = sparse_release(LinearQueries(np.eye(2, dtype=int)), Fraction(1))
    for data in ((np.array([1]),), ()):
        with pytest.raises(ValueError, match=r"histogram|a dataset for each"):
            release.step(release.start(), data, Forbidden())
    two_streams = insertion_minus_deletion(LinearQueries(np.eye(2, dtype=int)), Fraction(1))
    for foreign in (
        replace(release.start(), streams=two_streams.start().streams),
        release.step(release.start(), (np.array([10**6, 0]),), NoNoise())[0],
    ):
        with pytest.raises(BadState):
            release.check(replace(foreign, partition=partitioning.start()))
    for bad in (
        lambda: Partitioning(Fraction(0)),
        lambda: Partitioning(Fraction(1), 1.0),
        lambda: Partitioning(Fraction(1), 0.5, 0),
        lambda: SparseVector(float("inf"), Fraction(1)),
        lambda: sparse_release(BasicCounting(), Fraction(1), cutting=Fraction(1)),
    ):
        with pytest.raises(ValueError, match=r"needs|at least|share"):
            bad()

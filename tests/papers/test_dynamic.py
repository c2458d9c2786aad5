"""Fully dynamic releases: what entries may do, what neighbours are told apart by, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest
from changeling_central.errors import ConstraintBroken
from changeling_central.noise import OpenDPNoise
from changeling_papers import (
    BasicCounting,
    FullyDynamic,
    InfiniteMechanism,
    IntervalTree,
    LinearQueries,
    MultiplicativeWeights,
    PartitionedRelease,
    Partitioning,
    Protects,
    Update,
    fully_dynamic,
    insertion_minus_deletion,
)
from changeling_statistics import BadChangelog

from tests.central.stand_ins import Forbidden, NoNoise
from tests.seeded_noise import SeededNoise

from .audits import excess
from .scripted import Exact


def churn(random, steps, items, lifetime):
    """Updates step by step: an insertion each, and the deletion of entries `lifetime` steps later on average."""
    there, stream = {}, []
    for t in range(steps):
        gone = [e for e in there if random.random() < 1 / lifetime]
        stream.append([*(Update(e, None) for e in gone), Update(t, int(random.integers(items)))])
        for e in gone:
            del there[e]
        there[t] = True
    return stream


def dictionary(stream, items):
    """The truth after every step."""
    there, counts = {}, []
    for updates in stream:
        for entry, item in updates:
            if item is None:
                del there[entry]
            else:
                there[entry] = item
        counts.append(np.bincount(list(there.values()) or [0], minlength=items) * bool(there))
    return counts


@pytest.mark.parametrize("protects", list(Protects))
def test_without_noise_the_answers_are_those_of_a_dictionary_at_the_last_segments_end(protects):
    """300 steps of churn; counts large enough that nothing halts would need noise-free γ, so ε is huge."""
    stream = churn(np.random.default_rng(1), 300, 3, 40)
    truth = dictionary(stream, 3)
    tree = IntervalTree(Exact(LinearQueries(np.eye(3, dtype=int))), Fraction(10**9), counting=Exact(BasicCounting()))
    mechanism = FullyDynamic(Partitioning(Fraction(20)), tree, protects)
    state, expected, ends = mechanism.start(), np.zeros(3, int), 0
    for t, updates in enumerate(stream):
        before = state.tree.segments
        state, answers = mechanism.step(state, updates, NoNoise())
        if state.tree.segments > before:
            expected, ends = truth[t], ends + 1
        assert answers.tolist() == expected.tolist()
    assert ends > 20


def test_an_item_that_comes_and_goes_within_a_segment_is_never_seen():
    """And one that goes and comes again within a segment is deleted from its node and born anew."""
    tree = IntervalTree(Exact(BasicCounting()), Fraction(10**9), counting=Exact(BasicCounting()))
    mechanism = FullyDynamic(Partitioning(Fraction(1000)), tree)
    state, answer = mechanism.step(mechanism.start(), [Update("a", 0), Update("b", 0)], NoNoise())
    assert answer == 2
    assert state.tree.segments == 1
    state, answer = mechanism.step(
        state, [Update("a", None), Update("a", 0), Update("c", 0), Update("c", None)], NoNoise()
    )
    assert state.tree.segments == 2
    assert answer == 2
    assert state.held.get("a").segment == 2
    assert "c" not in state.held


@pytest.mark.parametrize("protects", list(Protects))
def test_the_total_is_the_budget(protects):
    """Partitioning and tree add up to ε and δ; where entries are protected the partitioning counts twice."""
    mechanism = fully_dynamic(BasicCounting(), Fraction(2), Fraction(1, 10**6), protects=protects)
    assert mechanism.guarantee.epsilon == 2
    assert mechanism.guarantee.delta == Fraction(1, 10**6)
    assert mechanism.partitioning.epsilon == (Fraction(1, 2) if protects is Protects.UPDATE else Fraction(1, 4))
    assert insertion_minus_deletion(BasicCounting(), Fraction(2)).guarantee.epsilon == 2


def test_contradictions_and_broken_constraints_are_named_and_draw_nothing():
    """The number of the update and of the step; the state before is as good as it was."""
    mechanism = fully_dynamic(LinearQueries(np.eye(2, dtype=int)), Fraction(1), protects=Protects.ENTRY)
    state, _ = mechanism.step(mechanism.start(), [Update("a", 0), Update("b", 1)], SeededNoise(0))
    state, _ = mechanism.step(state, [Update("a", None)], SeededNoise(0))
    for updates, error, named in (
        ([Update("c", 0), Update("x", None)], BadChangelog, "update 2 of step 3: deletes"),
        ([Update("a", None)], BadChangelog, "update 1 of step 3: deletes"),
        ([Update("b", 1)], BadChangelog, "update 1 of step 3: inserts an entry that is there"),
        ([Update("a", 1)], ConstraintBroken, "update 1 of step 3: inserts an entry again"),
        ([Update("d", 0), Update("d", None), Update("d", 0)], ConstraintBroken, "update 3 of step 3"),
        ([Update("d", 2)], ValueError, "one of 0 to 1"),
        ([Update("d", 0.5)], ValueError, "one of 0 to 1"),
    ):
        with pytest.raises(error, match=named):
            mechanism.step(state, updates, Forbidden())
    assert mechanism.step(state, [], SeededNoise(0))
    again = fully_dynamic(BasicCounting(), Fraction(1))
    state, _ = again.step(again.start(), [Update("a", 0), Update("a", None), Update("a", 0)], SeededNoise(0))


def test_insertion_minus_deletion_is_the_difference_of_two_streams():
    """Exact at segment ends, for numbers and histograms."""
    random, exact = np.random.default_rng(5), InfiniteMechanism(Exact(LinearQueries(np.eye(2, dtype=int))), Fraction(1))
    mechanism = PartitionedRelease(Partitioning(Fraction(1000)), exact, signs=(1, -1))
    total, state = np.zeros(2, int), mechanism.start()
    for _ in range(30):
        came, went = random.integers(1, 9, 2), random.integers(0, 2, 2)
        total = total + came - went
        state, answers = mechanism.step(state, (came, went), NoNoise())
        assert answers.tolist() == total.tolist()


@pytest.mark.heavy
@pytest.mark.parametrize("protects", list(Protects))
def test_releases_of_neighbouring_streams_are_alike_within_epsilon_audited(protects):
    """One entry's deletion, or the whole entry, more or less; 2·3,000 runs, ε = 3; the sum of all answers over 6 steps,
    cut at its deciles, and whether a segment ended at the step of the change: none is met more than e^ε times as often,
    by 4 standard errors (false alarm below 10⁻³ over 11 events). Without noise, the same audit finds them out. It sees
    errors of orders of magnitude alone; what charges add up to is proved in test_dynamic_tree.py."""
    epsilon, at = Fraction(3), 3
    base = [[Update(f"{t}{i}", 0) for i in range(3)] for t in range(6)]
    base[at] = [Update("10", None), Update("11", None)]
    other = [list(updates) for updates in base]
    other[at] = base[at][1:]
    if protects is Protects.ENTRY:
        other[1] = other[1][1:]
    mechanism = fully_dynamic(BasicCounting(), epsilon, protects=protects, cutting=Fraction(1, 2), failure=0.9)

    def audited(noises, runs):
        seen = []
        for noise, stream in zip(noises, (base, other), strict=True):
            rows = []
            for _ in range(runs):
                state, total = mechanism.start(), 0
                for updates in stream:
                    before = state.tree.segments
                    state, answer = mechanism.step(state, updates, noise)
                    total += answer
                    if updates is stream[at]:
                        ended = state.tree.segments > before
                rows.append((total, ended))
            seen.append(np.array(rows))
        edges = np.quantile(np.concatenate(seen)[:, 0], np.arange(0.1, 1, 0.1))
        events = [np.bincount(np.searchsorted(edges, rows[:, 0]), minlength=10).tolist() for rows in seen]
        ended = [[int(rows[:, 1].sum()), runs - int(rows[:, 1].sum())] for rows in seen]
        return excess([*zip(*events, strict=True), *zip(*ended, strict=True)], float(epsilon))

    assert audited((SeededNoise(1), SeededNoise(2)), 3000) <= 4
    assert audited((NoNoise(), NoNoise()), 300) > 4


def test_any_static_mechanism_can_be_taken_with_opendp():
    """Counting, query sets, multiplicative weights; pure and with delta."""
    stream = churn(np.random.default_rng(1), 12, 2, 4)
    for static in (LinearQueries(np.eye(2, dtype=int)), MultiplicativeWeights(np.eye(2, dtype=int))):
        for delta in (Fraction(0), Fraction(1, 10**6)):
            mechanism = fully_dynamic(static, Fraction(200), delta)
            state = mechanism.start()
            for updates in stream:
                state, answers = mechanism.step(state, updates, OpenDPNoise())
            assert answers.shape == (2,)
            assert state.tree.segments >= 3

"""DCR: no pair of neighbours is told apart beyond the stated loss, which is reached; unbiased; variance linear."""

from fractions import Fraction
from itertools import pairwise, product
from math import exp, log

import numpy as np
import pytest
from changeling_central import (
    BadState,
    BudgetExhausted,
    Law,
    NodeNoise,
    OpenDPNoise,
    calibrated,
    clipped_sum,
    counting,
    histogram_query,
)
from changeling_central.nodes import disjoint_release
from changeling_protocol import AtMost, AtMostWithin, Hybrid, TimeBounded

from tests.seeded_noise import SeededNoise

from .examples import CALENDAR, histories, mutations_of, transcript
from .saved_fields import resumed
from .stand_ins import CountedNoise, Forbidden, NoNoise

COUNT = counting(["a", "b"], ["a"], "a")
QUERIES = [COUNT, histogram_query(["a", "b"], ["a", "b"]), clipped_sum({"a": 3, "b": 5}, ["a", "b"], 3, 5)]
CONSTRAINTS = [
    AtMostWithin(2, 2),
    AtMost(1),
    AtMost(2),
    AtMost(4),
    TimeBounded(1),
    TimeBounded(3),
    Hybrid((AtMost(2), TimeBounded(2))),
]
BOUNDS = [0, 2, 4, 6, 8]
EPSILON = Fraction(3, 2)


def small_query(query, states):
    return query.node_changes(mutations_of(states), BOUNDS)


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: ",".join(q.names))
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_the_loss_of_every_transcript_is_at_most_epsilon(query, constraint):
    """Over every history an entry can have: Laplace loss is the sum of its shifts over the scale."""
    release = disjoint_release(query, BOUNDS, constraint, EPSILON)
    losses = [
        Fraction(int(np.abs(transcript(release, query, CALENDAR, states, lambda change: change)).sum()))
        / Fraction(release.noise.scale)
        for states in histories(2, constraint, 8)
    ]
    assert max(losses) <= EPSILON


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_stated_loss_is_reached_by_at_most_k(k):
    """A count that is k-epsilon, and a histogram that is (2k-1)-epsilon and not 2k."""
    for query, shifts in ((COUNT, k), (QUERIES[1], 2 * k - 1)):
        release = disjoint_release(query, BOUNDS, AtMost(k), EPSILON)
        most = max(np.abs(small_query(query, states)).sum() for states in histories(2, AtMost(k), 8))
        assert most == shifts
        assert release.noise.scale == pytest.approx(shifts / 1.5)


def test_an_entry_that_mutates_otherwise_costs_twice_what_one_that_is_lacking_does():
    """Inserted in one node or in another: 2ε, which is why the guarantee says what neighbours are."""
    release = disjoint_release(COUNT, BOUNDS, AtMost(1), EPSILON)
    shifts = [small_query(COUNT, states) for states in histories(1, AtMost(1), 8)]
    most = max(np.abs(one - other).sum() for one, other in product(shifts, shifts))
    assert most / release.noise.scale == pytest.approx(2 * float(EPSILON))
    assert "one lacks an entry" in release.guarantee.neighbours


def test_the_probabilities_of_outputs_stay_within_e_to_the_epsilon():
    """The discrete Laplace law itself, on a grid of two nodes: insertion and deletion against absence."""
    release = disjoint_release(COUNT, [0, 1, 2], AtMost(2), Fraction(1))
    x = np.arange(-200, 201)
    weight = np.exp(-np.abs(x) / release.noise.scale)
    law = dict(zip(x.tolist(), weight / weight.sum(), strict=True))
    ratios = [log(law[a] * law[b] / (law[a - 1] * law[b + 1])) for a, b in product(range(-90, 91), repeat=2)]
    assert max(map(abs, ratios)) == pytest.approx(1.0)
    assert max(map(abs, ratios)) <= 1.0 + 1e-12


@pytest.mark.parametrize(("law", "k", "delta"), [(Law.GAUSSIAN, 3, 1e-4), (Law.LAPLACE, 12, 1e-3)])
def test_a_delta_is_enough_for_every_history(law, k, delta):
    """δ(ε) of the worst shifts from the laws' own probabilities, convolved exactly, is at most the stated one."""
    bounds = list(range(k + 1))
    release = disjoint_release(COUNT, bounds, AtMost(k), Fraction(1), Fraction(delta), law)
    scale = release.noise.scale
    x = np.arange(-80, 81)
    weight = np.exp(-np.abs(x) / scale) if law is Law.LAPLACE else np.exp(-(x**2) / (2 * scale**2))
    p, one = weight / weight.sum(), {}
    for here, mass in zip(x[1:].tolist(), p[1:].tolist(), strict=True):
        loss = (abs(here - 1) - abs(here)) / scale if law is Law.LAPLACE else (1 - 2 * here) / (2 * scale**2)
        one[round(loss, 9)] = one.get(round(loss, 9), 0.0) + mass
    losses = {0.0: 1.0}
    for _ in range(k):
        together: dict[float, float] = {}
        for (a, m), (b, n) in product(losses.items(), one.items()):
            together[round(a + b, 9)] = together.get(round(a + b, 9), 0.0) + m * n
        losses = together
    true = sum(m * max(0.0, 1 - exp(1 - loss)) for loss, m in losses.items())
    assert true <= delta
    assert true >= delta / 3, "the noise is more than the guarantee needs"
    assert release.guarantee.delta == Fraction(delta)
    if law is Law.LAPLACE:
        assert scale < disjoint_release(COUNT, bounds, AtMost(k), Fraction(1)).noise.scale


def test_sums_of_changes_are_unbiased_and_their_variance_grows_linearly():
    """4,000 runs: mean within 4.5 standard errors (false alarm 1e-5 each), variance within 15% of i·σ²."""
    release = disjoint_release(COUNT, list(range(9)), AtMost(2), Fraction(1))
    noise, change = SeededNoise(5), np.array([3])
    sums = np.empty((4000, 8))
    for run in range(len(sums)):
        state, total = release.start(), 0
        for i in range(8):
            state, noisy = release.step(state, change, noise)
            total += int(noisy[0])
            sums[run, i] = total
    variance = release.noise.variance * np.arange(1, 9)
    assert np.all(np.abs(sums.mean(0) - 3 * np.arange(1, 9)) < 4.5 * np.sqrt(variance / len(sums)))
    assert np.all(np.abs(sums.var(0) / variance - 1) < 0.15)


@pytest.mark.parametrize("law", list(Law))
def test_opendps_noise_has_the_variance_that_is_stated(law):
    """80,000 draws of the sampler, which has no seed: within 6%, 7.5 standard errors for Laplace (false alarm 1e-9)."""
    for scale in (0.7, 6.0):
        noise = NodeNoise(law, scale)
        drawn = noise.draw(OpenDPNoise(), 80_000)
        assert drawn.var() == pytest.approx(noise.variance, rel=0.06)


def test_a_release_goes_on_from_saved_fields_and_ends_with_its_guarantee():
    """The state is what fields say; after the last node nothing is drawn."""
    release = disjoint_release(COUNT, BOUNDS, AtMost(2), EPSILON)
    state = release.start()
    for _ in range(4):
        state, _ = release.step(release.resumed(release.saved(state)), np.array([1]), NoNoise())
    with pytest.raises(BudgetExhausted, match="4 nodes"):
        release.step(state, np.array([1]), Forbidden())
    for broken in ({}, {"released": "1"}, {"released": -1}, {"released": 1, "more": 2}):
        with pytest.raises(BadState):
            resumed(release, broken)


@pytest.mark.parametrize("change", [np.array([1, 2]), np.array([1.5]), np.array(3), np.array([[1]])])
def test_a_change_that_is_not_of_the_query_draws_nothing(change):
    """Another shape, or no integers."""
    release = disjoint_release(COUNT, BOUNDS, AtMost(2), EPSILON)
    with pytest.raises(ValueError, match="a change is 1 integers"):
        release.step(release.start(), change, Forbidden())


def test_one_draw_a_column_and_node():
    """Nothing is drawn ahead, nothing twice."""
    release, noise = disjoint_release(QUERIES[1], BOUNDS, AtMost(2), EPSILON), CountedNoise()
    state = release.start()
    for i, _ in enumerate(pairwise(BOUNDS), 1):
        state, _ = release.step(state, np.array([1, 1]), noise)
        assert noise.drawn == 2 * i


def test_impossible_releases_are_refused():
    """Bounds that do not rise, no budget, Gaussian noise without delta, a query that nothing changes."""
    for arguments, fault in (
        ((COUNT, [0, 0], AtMost(1), EPSILON), "rise"),
        ((COUNT, [0], AtMost(1), EPSILON), "at least two"),
        ((COUNT, BOUNDS, AtMost(1), Fraction(0)), "epsilon > 0"),
        ((COUNT, BOUNDS, AtMost(1), EPSILON, Fraction(0), Law.GAUSSIAN), "delta above 0"),
        ((COUNT, BOUNDS, AtMost(1), EPSILON, Fraction(1)), "delta < 1"),
    ):
        with pytest.raises(ValueError, match=fault):
            disjoint_release(*arguments)
    with pytest.raises(ValueError, match="counts nothing"):
        calibrated({}, EPSILON)

"""HDCR: losses over every history, the paper's sum that is too small, covers and the release graph."""

from fractions import Fraction

import numpy as np
import pytest
from changeling_central import (
    BadState,
    BestEstimates,
    BudgetExhausted,
    Law,
    OpenDPNoise,
    best_hierarchy,
    counting,
    cover_sum,
    hierarchy,
    histogram_query,
    read_state,
    retrospective,
    written_state,
)
from changeling_central.nodes import HdcrState, hierarchy_shifts, layer_widths, network_of, online_variance
from changeling_protocol import AtMost, AtMostWithin, Calendar, Hybrid, TimeBounded
from changeling_statistics import Frontier

from tests.seeded_noise import SeededNoise

from .examples import CALENDAR, histories, transcript
from .saved_fields import resumed
from .stand_ins import Forbidden, NoNoise

COUNT = counting(["a", "b"], ["a"], "a")
HISTOGRAM = histogram_query(["a", "b"], ["a", "b"])
CONSTRAINTS = [AtMost(1), AtMost(2), AtMost(4), TimeBounded(1), TimeBounded(2), TimeBounded(3), TimeBounded(5),
               AtMostWithin(2, 3), Hybrid((AtMost(2), TimeBounded(2)))]  # fmt: skip
EPSILON = Fraction(1)


def released(nodes):
    return [value for one in nodes for value in one.values]


@pytest.mark.parametrize("query", [COUNT, HISTOGRAM], ids=["count", "histogram"])
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_loss_of_every_transcript_is_at_most_epsilon(query, constraint, layers):
    """All layers together, over every history of one entry."""
    mechanism = hierarchy(query, CALENDAR, constraint, EPSILON, layers=layers)
    losses = [
        Fraction(int(np.abs(transcript(mechanism, query, CALENDAR, states, released)).sum()))
        / Fraction(mechanism.noise.scale)
        for states in histories(2, constraint, 8)
    ]
    assert max(losses) <= EPSILON


@pytest.mark.parametrize("k", [1, 2])
def test_at_most_k_entries_reach_the_stated_loss_of_all_layers(k):
    """The bound is not a loose one: hk but for the root, which one entry reaches once."""
    mechanism = hierarchy(COUNT, CALENDAR, AtMost(k), EPSILON, layers=2)
    most = max(
        np.abs(transcript(mechanism, COUNT, CALENDAR, states, released)).sum() for states in histories(1, AtMost(k), 8)
    )
    assert most == 2 * k
    assert mechanism.noise.scale == 2 * k
    assert hierarchy(COUNT, CALENDAR, AtMost(2), EPSILON, layers=3).noise.scale == 2 + 2 + 1


def test_the_papers_sum_for_time_bounded_entries_is_exceeded_by_an_entry():
    """B = W, c = 2: an entry reaches 2 nodes in layer 1 too, where the paper counts 1.5, and 4 in all, not 3.5."""
    calendar = Calendar(0, 2, 8)
    reached = hierarchy_shifts(COUNT, calendar, TimeBounded(2), (1, 2))
    assert reached == {1: 4}
    mechanism = hierarchy(COUNT, calendar, TimeBounded(2), EPSILON, layers=2)
    most = max(
        np.abs(transcript(mechanism, COUNT, calendar, (0,) * 3 + tail, released)).sum()
        for tail in histories(1, TimeBounded(2), 5)
    )
    papers = sum((2 / 2) / 2**i + 1 for i in range(2))
    assert most == 4 > papers


@pytest.mark.parametrize(("c", "h", "T"), [(2, 1, 9), (2, 4, 13), (2, 5, 31), (3, 3, 29), (4, 2, 20), (5, 3, 60)])
def test_every_range_is_covered_and_the_covers_are_as_short_as_the_paper_says(c, h, T):
    """Without noise every cover sum and every best estimate is the truth; theorem 4.4 bounds the nodes."""
    mechanism, nodes = hierarchy(COUNT, Calendar(0, 1, T), AtMost(1), EPSILON, branching=c, layers=h), []
    state, estimates = mechanism.start(), BestEstimates(T, mechanism.widths, 1)
    frontier, changes = estimates.start(), np.random.default_rng(1).integers(-9, 9, T)
    for t, change in enumerate(changes, 1):
        state, closed = mechanism.step(state, np.array([change]), NoNoise())
        nodes.extend(closed)
        frontier, level = estimates.step(frontier, closed)
        assert level.values == pytest.approx([changes[:t].sum()])
        assert level.variance == pytest.approx(network_of(nodes, T).resistance(t))
        assert level.variance == pytest.approx(online_variance(c, h, T)[t - 1] * mechanism.noise.variance)
    for left in range(T):
        for right in range(left + 1, T + 1):
            level = cover_sum(nodes, left, right, mechanism.widths)
            assert level.values == changes[left:right].sum()
            needed = next(i for i in range(20) if c**i >= right - left)
            if h >= needed:
                most = max(1, 2 * (c - 1) * needed)
                assert level.variance <= most * mechanism.noise.variance * (1 + 1e-12)
    values, variances = retrospective(nodes, T)
    assert values[1:, 0] == pytest.approx(np.cumsum(changes))
    assert variances[-1] == pytest.approx(network_of(nodes, T).resistance(T))


def test_best_estimates_beat_cover_sums_by_half_at_equal_budget():
    """T = 512, c = 2: mean variance online at least 1.5 times lower, retrospectively 2 times; exact figures."""
    T = 512
    mechanism = hierarchy(COUNT, Calendar(0, 1, T), AtMost(2), EPSILON, branching=2, layers=9)
    nodes, state = [], mechanism.start()
    for _ in range(T):
        state, closed = mechanism.step(state, np.array([0]), NoNoise())
        nodes.extend(closed)
    covers = np.mean([cover_sum(nodes, 0, t, mechanism.widths).variance for t in range(1, T + 1)])
    online = online_variance(2, 9, T).mean() * mechanism.noise.variance
    assert covers / online > 1.5
    assert covers / retrospective(nodes, T)[1][1:].mean() > 2


@pytest.mark.heavy
def test_estimates_are_unbiased_and_have_the_variance_they_state():
    """3,000 runs, 21 periods, two columns: 4.5 standard errors of the mean, 15% of the variance (below 1e-3)."""
    T, runs = 21, 3000
    mechanism = hierarchy(HISTOGRAM, Calendar(0, 1, T), AtMost(2), EPSILON, branching=3, layers=3)
    estimates, noise = BestEstimates(T, mechanism.widths, 2), SeededNoise(8)
    changes = np.random.default_rng(2).integers(-5, 20, (T, 2))
    errors, stated = np.empty((runs, T, 2)), np.empty(T)
    for run in range(runs):
        state, frontier = mechanism.start(), estimates.start()
        for t in range(T):
            state, closed = mechanism.step(state, changes[t], noise)
            frontier, level = estimates.step(frontier, closed)
            errors[run, t], stated[t] = level.values - changes[: t + 1].sum(0), level.variance
    assert np.all(np.abs(errors.mean(0)) < 4.5 * np.sqrt(stated / runs)[:, None])
    assert np.all(np.abs(errors.var(0) / stated[:, None] - 1) < 0.15)


@pytest.mark.parametrize("law", list(Law))
def test_it_runs_with_opendps_samplers_and_resumes_from_its_fields(law):
    """The state and the graph come back from their fields bit for bit."""
    delta = Fraction(0) if law is Law.LAPLACE else Fraction(1, 10**6)
    mechanism = hierarchy(HISTOGRAM, Calendar(0, 1, 8), AtMost(2), EPSILON, delta, layers=3, law=law)
    estimates, noise = BestEstimates(8, mechanism.widths, 2), OpenDPNoise()
    state, frontier, counts = mechanism.start(), estimates.start(), []
    for _ in range(8):
        again = mechanism.resumed(mechanism.saved(state))
        assert again.period == state.period
        assert np.array_equal(again.sums, state.sums)
        state, closed = mechanism.step(again, np.array([1, 2]), noise)
        counts.append(len(closed))
        revived = read_state(written_state("graph", frontier), "graph", Frontier)
        assert np.array_equal(revived.values, frontier.values)
        assert np.array_equal(revived.planned, frontier.planned)
        frontier, _ = estimates.step(revived, closed)
    assert counts == [1, 2, 1, 3, 1, 2, 1, 3]


def test_nothing_is_drawn_beyond_the_calendar_or_for_what_does_not_fit():
    """Budgets, changes and states are checked first."""
    mechanism = hierarchy(COUNT, CALENDAR, AtMost(2), EPSILON, layers=2)
    with pytest.raises(BudgetExhausted, match="4 periods"):
        mechanism.step(HdcrState(4, np.zeros((2, 1), np.int64)), np.array([0]), Forbidden())
    with pytest.raises(BadState, match="shape"):
        mechanism.step(HdcrState(0, np.zeros((3, 1), np.int64)), np.array([0]), Forbidden())
    with pytest.raises(ValueError, match="a change is"):
        mechanism.step(mechanism.start(), np.array([0.5]), Forbidden())
    for broken in ({}, {"period": 1}, {"period": -1, "sums": [[0]]}, {"period": 1, "sums": [["x"]]}):
        with pytest.raises(BadState):
            resumed(mechanism, broken)
    with pytest.raises(BadState):
        mechanism.resumed(mechanism.saved(HdcrState(1, np.zeros((1, 1), np.int64))))
    with pytest.raises(ValueError, match="fewer layers"):
        hierarchy(COUNT, CALENDAR, AtMost(2), EPSILON, layers=4)
    with pytest.raises(ValueError, match="branching >= 2"):
        layer_widths(1, 3)


def test_the_chosen_hierarchy_is_the_best_of_all_by_its_exact_variance():
    """And a single cadence where the horizon is short."""
    calendar = Calendar(0, 3600, 744)
    best = best_hierarchy(COUNT, calendar, AtMost(2), EPSILON)
    for branching, layers in ((2, 9), (2, 10), (4, 5), (8, 3), (16, 2), (2, 1)):
        other = hierarchy(COUNT, calendar, AtMost(2), EPSILON, branching=branching, layers=layers)
        assert best.mean_variance <= online_variance(branching, layers, 744).mean() * other.noise.variance * (1 + 1e-9)
    assert best_hierarchy(COUNT, Calendar(0, 3600, 3), AtMost(2), EPSILON).layers == 1

"""SWCR: directly and from a hierarchy; and the advice which is better."""

from fractions import Fraction

import numpy as np
import pytest
from changeling_central import (
    BadState,
    BestEstimates,
    BudgetExhausted,
    Law,
    NodeRelease,
    Windows,
    clipped_sum,
    counting,
    cover_sum,
    hierarchy,
    histogram_query,
    sliding_windows,
)
from changeling_central.changes.advisor import advise, needed_layers, spans
from changeling_central.nodes import SwcrState, network_of, window_shifts
from changeling_protocol import AtMost, AtMostWithin, Hybrid, Node, TimeBounded

from tests.seeded_noise import SeededNoise

from .examples import histories, transcript
from .saved_fields import resumed
from .stand_ins import Forbidden, NoNoise

COUNT = counting(["a", "b"], ["a"], "a")
HISTOGRAM = histogram_query(["a", "b"], ["a", "b"])
EPSILON = Fraction(1)
WINDOWS = [Windows(0, 4, 2, 3), Windows(0, 3, 2, 3), Windows(0, 2, 3, 3), Windows(0, 6, 1, 3), Windows(0, 4, 4, 2)]
CONSTRAINTS = [
    AtMostWithin(2, 2),
    AtMost(1),
    AtMost(2),
    AtMost(3),
    TimeBounded(1),
    TimeBounded(3),
    Hybrid((AtMost(2), TimeBounded(2))),
]


def released(window):
    return [] if window is None else list(window.values)


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("query", [COUNT, HISTOGRAM], ids=["count", "histogram"])
def test_the_loss_of_every_transcript_is_at_most_epsilon(windows, constraint, query):
    """Over every history of one entry, and the state goes through its fields."""
    mechanism = sliding_windows(query, windows, constraint, EPSILON)
    seconds = windows.length + (windows.count - 1) * windows.every
    losses = [
        Fraction(int(np.abs(transcript(mechanism, query, windows.calendar, states, released)).sum()))
        / Fraction(mechanism.noise.scale)
        for states in histories(2, constraint, min(seconds, 8))
    ]
    assert max(losses) <= EPSILON


@pytest.mark.parametrize("law", list(Law))
def test_a_hybrid_release_with_a_delta_covers_each_of_its_classes(law):
    """f from -1 to 1, W = 8P: at most 2 mutations shift 8 windows by 1 and 8 by 2, L1 length 24; entries bounded by
    3 s shift 11 by 2, which is 22, but √44 > √40 of L2 length, and they cost the larger delta of Gaussian noise."""
    query, windows = clipped_sum({"a": -1, "b": 1}, ["a", "b"], -1, 1), Windows(0, 8, 1, 40)
    classes, delta = (AtMost(2), TimeBounded(3)), Fraction(1, 10**6)
    drawn = sliding_windows(query, windows, Hybrid(classes), EPSILON, delta, law).noise
    for one in classes:
        assert drawn.delta(window_shifts(query, windows, one), float(EPSILON)) <= float(delta)
    assert window_shifts(query, windows, AtMost(2)) == {1: 8, 2: 8}
    assert window_shifts(query, windows, TimeBounded(3)) == {2: 11}


@pytest.mark.parametrize("length", range(1, 8))
@pytest.mark.parametrize("every", range(1, 8))
def test_no_entry_reaches_more_windows_than_the_theorems_count_and_some_reach_as_many(length, every):
    """k⌈W/P⌉ and ⌈(B+W)/P⌉ against every half-second mutation or span of a long release."""
    windows = Windows(0, length, every, 40)
    ends = length + every * np.arange(40)
    for bound in range(1, 6):
        met = [
            int(((ends >= t) & (ends - length < t + bound)).sum()) for t in np.arange(2 * length, 4 * length + 30) / 2
        ]
        assert max(met) == windows.reached(TimeBounded(bound))
    single = [int(((ends >= t) & (ends - length < t)).sum()) for t in np.arange(2 * length, 4 * length + 30) / 2]
    assert max(single) == windows.reached(AtMost(1))
    assert windows.reached(Hybrid((AtMost(1), TimeBounded(5)))) == windows.reached(TimeBounded(5))


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_windows_directly_and_from_a_hierarchy_are_the_change_over_them(windows):
    """Without noise; and the graph's variance is the resistance across the window among what has closed."""
    calendar, rng = windows.calendar, np.random.default_rng(3)
    changes = rng.integers(-9, 9, (calendar.periods, 1))
    direct = sliding_windows(COUNT, windows, AtMost(1), EPSILON)
    layers = needed_layers(2, windows.periods)
    tree = hierarchy(COUNT, calendar, AtMost(1), EPSILON, layers=layers)
    estimates = BestEstimates(calendar.periods, tree.widths, 1, windows.periods)
    state, nodes, tree_state, frontier = direct.start(), [], tree.start(), estimates.start()
    found = 0
    for period, change in enumerate(changes, 1):
        state, window = direct.step(direct.resumed(direct.saved(state)), change, NoNoise())
        tree_state, closed = tree.step(tree_state, change, NoNoise())
        nodes.extend(closed)
        frontier, _ = estimates.step(frontier, closed)
        assert (window is not None) == windows.ends_at(period)
        if window is None:
            continue
        found += 1
        first = period - windows.periods
        true = changes[first:period].sum(0)
        assert window.node == Node(first, period)
        assert window.values == true
        assert cover_sum(nodes, first, period, tree.widths).values == true
        level = estimates.in_window(frontier)
        assert level.values == pytest.approx(true)
        assert level.variance == pytest.approx(network_of(nodes, calendar.periods).resistance(period, first))
    assert found == windows.count


def test_windows_are_unbiased_with_the_variance_they_state():
    """4,000 runs: 4.5 standard errors, 15% of the variance (false alarm below 1e-4 in all)."""
    windows, noise = Windows(0, 4, 2, 5), SeededNoise(4)
    mechanism = sliding_windows(COUNT, windows, AtMost(2), EPSILON)
    errors = np.empty((4000, 5))
    for run in range(len(errors)):
        state, found = mechanism.start(), []
        for _ in range(windows.calendar.periods):
            state, window = mechanism.step(state, np.array([2]), noise)
            found.extend(released(window))
        errors[run] = np.array(found) - 2 * windows.periods
    assert np.all(np.abs(errors.mean(0)) < 4.5 * np.sqrt(mechanism.noise.variance / len(errors)))
    assert np.all(np.abs(errors.var(0) / mechanism.noise.variance - 1) < 0.15)


def test_nothing_is_drawn_between_windows_or_after_the_last():
    """And a state of other windows is refused."""
    windows = Windows(0, 4, 2, 2)
    mechanism = sliding_windows(COUNT, windows, AtMost(1), EPSILON)
    state, window = mechanism.step(mechanism.start(), np.array([1]), Forbidden())
    assert window is None
    with pytest.raises(BudgetExhausted, match="2 windows"):
        mechanism.step(SwcrState(3, state.recent), np.array([1]), Forbidden())
    with pytest.raises(BadState):
        mechanism.step(SwcrState(0, np.zeros((5, 1), np.int64)), np.array([1]), Forbidden())
    with pytest.raises(BadState):
        resumed(mechanism, {"period": 0})
    with pytest.raises(ValueError, match="number >= 1"):
        Windows(0, 4, 0, 2)


ASKED = [(1, 1), (4, 1), (24, 1), (64, 1), (100, 7), (60, 4)]


@pytest.mark.parametrize(("length", "every"), ASKED)
@pytest.mark.parametrize("constraint", [AtMost(1), AtMost(3), TimeBounded(5), TimeBounded(40)], ids=str)
def test_the_advice_is_what_exact_variances_say(length, every, constraint):
    """Figures agree with mechanisms that are built and a network that is solved, for one branching."""
    windows = Windows(0, length, every, 12)
    advice = advise(COUNT, windows, constraint, EPSILON, branchings=[2])
    (one,) = advice.hierarchies
    assert advice.direct == sliding_windows(COUNT, windows, constraint, EPSILON).noise.variance
    assert one.layers == max(1, int(np.ceil(np.log2(windows.periods))))
    tree = hierarchy(COUNT, windows.calendar, constraint, EPSILON, layers=one.layers)
    nodes = [
        NodeRelease(Node(s, s + w), np.zeros(1, np.int64), tree.noise.variance)
        for w in tree.widths
        for s in range(0, windows.calendar.periods - w + 1, w)
    ]
    network = network_of(nodes, windows.calendar.periods)
    graph = [network.closed_by(span.end).resistance(span.end, span.start) for span in spans(windows)]
    cover = [cover_sum(nodes, span.start, span.end, tree.widths).variance for span in spans(windows)]
    assert one.mean_graph == pytest.approx(np.mean(graph))
    assert (one.mean_cover, one.worst_cover) == (pytest.approx(np.mean(cover)), pytest.approx(max(cover)))
    assert advice.hierarchy_is_better == (np.mean(graph) < advice.direct * (1 - 1e-9))


@pytest.mark.parametrize("length", [16, 21, 22])
def test_the_papers_inequality_advises_a_hierarchy_that_loses(length):
    """c = 2, P = B = 1: (23) holds, but the worst cover sum of the hierarchy has the higher variance."""
    bound, h = 1, needed_layers(2, length)
    papers_sum = (2**h - 1) / (2**h - 2 ** (h - 1)) * bound + h
    assert 2 * h * papers_sum**2 < (length + bound) ** 2, "the paper's advice: from a hierarchy"
    advice = advise(COUNT, Windows(0, length, 1, 300), TimeBounded(bound), EPSILON, branchings=[2])
    assert not advice.cover_is_better


def test_the_papers_inequality_advises_a_hierarchy_of_no_layers():
    """W = dT: ⌈log_c 1⌉ = 0 layers, so (22) reads 0 < 1; with one layer both are the same release."""
    advice = advise(COUNT, Windows(0, 1, 1, 20), AtMost(2), EPSILON)
    assert all(one.layers == 1 for one in advice.hierarchies)
    assert not advice.hierarchy_is_better
    assert not advice.cover_is_better


def test_long_windows_are_better_from_a_hierarchy_and_single_periods_directly():
    """The two ends of theorem 4.8."""
    assert not advise(COUNT, Windows(0, 1, 1, 20), AtMost(2), EPSILON).hierarchy_is_better
    long = advise(COUNT, Windows(0, 256, 1, 200), AtMost(2), EPSILON)
    assert long.hierarchy_is_better
    assert long.cover_is_better
    with pytest.raises(ValueError, match="fewer windows"):
        advise(COUNT, Windows(0, 5000, 1, 2), AtMost(2), EPSILON)

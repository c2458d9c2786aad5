"""Noisy changes of nodes: no history of an entry costs more than is stated, and some cost as much; and estimates."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from changeling_central import (
    Asked,
    Law,
    NodeNoise,
    OpenDPNoise,
    Windows,
    answer_query,
    calibrated,
    clipped_sum,
    offered,
    sliding_windows,
)
from changeling_central.levels import window_shifts
from changeling_central.testing import Forbidden, NoNoise
from changeling_papers import BestEstimates, best_hierarchy, cover_sum, hierarchy, retrospective, state_diagram
from changeling_papers.hierarchy import online_variances
from changeling_protocol import AtMost, AtMostWithin, Calendar, Hybrid, Node, TimeBounded

from tests.central.examples import CALENDAR, QUERIES, Listed, exact_delta, histories, stepped, transcripts

COUNT, HISTOGRAM = QUERIES["count"], QUERIES["histogram"]
SUM = clipped_sum({"a": 3, "b": 5}, ["a", "b"], 3, 5)
MEAN = answer_query("mean of x from -2 to 8", ["-2", "8"])
CONSTRAINTS = [AtMost(2), AtMost(4), TimeBounded(1), TimeBounded(3), AtMostWithin(2, 3),
               Hybrid((AtMost(2), TimeBounded(2)))]  # fmt: skip
WINDOWS = [Windows(0, 4, 2, 3), Windows(0, 3, 2, 3), Windows(0, 2, 3, 3), Windows(0, 6, 1, 3), Windows(0, 4, 4, 2)]
EPSILON, DELTA = Fraction(1), Fraction(1, 1000)
EVERY = cache(lambda *bounds: list(histories(2, *bounds)))
"""Every history of two answers under a constraint, over so many seconds."""


def released(release):
    """The values of the nodes that a step releases."""
    return [value for node in release for value in node.values]


@pytest.mark.parametrize("query", [COUNT, HISTOGRAM, SUM, MEAN], ids=["count", "histogram", "sum", "mean"])
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("shape", [1, 3, *WINDOWS[:4]], ids=str)
def test_the_loss_of_every_transcript_is_at_most_epsilon(query, constraint, shape):
    """All layers of a hierarchy, or all windows, over every history: an entry's shifts over the scale."""
    if isinstance(shape, int):
        mechanism, calendar, seconds = hierarchy(query, CALENDAR, constraint, EPSILON, shape=(2, shape)), CALENDAR, 8
    else:
        mechanism, calendar = sliding_windows(query, shape, constraint, EPSILON), shape.calendar
        seconds = min(shape.length + (shape.count - 1) * shape.every, 8)
    moved = np.abs(transcripts(mechanism, query, calendar, EVERY(constraint, seconds), released))
    assert Fraction(int(moved.sum(1).max())) / Fraction(mechanism.noise.scale) <= EPSILON


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_stated_loss_is_reached_by_at_most_k(k):
    """A count is k-epsilon a layer but for the root, which one entry reaches once; a histogram 2k - 1, and not 2k; a
    mean, whose bounds are 5 from their middle, 10 a mutation."""
    for query, layers, shifts in (
        (COUNT, 1, k), (HISTOGRAM, 1, 2 * k - 1), (MEAN, 1, 10 * k), *[(COUNT, 2, 2 * k)] * (k <= 2)
    ):  # fmt: skip
        mechanism = hierarchy(query, CALENDAR, AtMost(k), EPSILON, shape=(2, layers))
        every = EVERY(AtMost(k), 8)
        assert np.abs(transcripts(mechanism, query, CALENDAR, every, released)).sum(1).max() == shifts
        assert mechanism.noise.scale == pytest.approx(shifts)
    assert hierarchy(COUNT, CALENDAR, AtMost(2), EPSILON, shape=(2, 3)).noise.scale == 2 + 2 + 1


def test_an_entry_that_mutates_otherwise_costs_twice_what_one_that_is_lacking_does():
    """Inserted in one node or in another: 2ε, which is why the guarantee says what neighbours are."""
    mechanism = hierarchy(COUNT, CALENDAR, AtMost(1), EPSILON)
    shifts = transcripts(mechanism, COUNT, CALENDAR, list(histories(1, AtMost(1), 8)), released)
    most = max(np.abs(one - other).sum() for one, other in combinations(shifts, 2))
    assert most / mechanism.noise.scale == pytest.approx(2 * float(EPSILON))
    assert "one lacks an entry" in mechanism.guarantee.neighbours


UNITS = clipped_sum({"a": -1, "b": 1}, ["a", "b"], -1, 1)
GAUSSIAN = {"count": COUNT, "histogram": HISTOGRAM, "fixed": QUERIES["fixed"], "sum": UNITS}


@pytest.mark.parametrize("name", GAUSSIAN)
@pytest.mark.parametrize("constraint", [AtMostWithin(2, 2), Hybrid((AtMost(2), TimeBounded(2)))], ids=str)
@pytest.mark.parametrize("windows", [None, Windows(0, 6, 1, 3)], ids=["hierarchy", "windows"])
def test_the_gaussian_delta_of_every_history_is_at_most_the_stated_one(name, constraint, windows):
    """From the law itself, not from a PLD; two layers, or three windows. The worst is within 5 times of the delta."""
    query = GAUSSIAN[name]
    if windows:
        mechanism = sliding_windows(query, windows, constraint, EPSILON, DELTA, Law.GAUSSIAN)
    else:
        mechanism = hierarchy(query, CALENDAR, constraint, EPSILON, DELTA, (2, 2), Law.GAUSSIAN)
    calendar, every = windows.calendar if windows else CALENDAR, EVERY(constraint, 8, query.fixed)
    moved = np.unique(np.sort(np.abs(transcripts(mechanism, query, calendar, every, released))), axis=0).tolist()
    found = {tuple(shift for shift in row if shift) for row in moved}
    worst = max(exact_delta(Law.GAUSSIAN, mechanism.noise.scale, shifts, float(EPSILON)) for shifts in found)
    assert float(DELTA) / 5 <= worst <= float(DELTA)


@pytest.mark.parametrize("law", list(Law))
def test_a_hybrid_release_with_a_delta_covers_each_of_its_classes(law):
    """f from -1 to 1, W = 8P: at most 2 mutations shift 8 windows by 1 and 8 by 2, L1 length 24; entries bounded by
    3 s shift 11 by 2, which is 22, but √44 > √40 of L2 length, and they cost the larger delta of Gaussian noise."""
    query, windows = UNITS, Windows(0, 8, 1, 40)
    classes, delta = (AtMost(2), TimeBounded(3)), Fraction(1, 10**6)
    drawn = sliding_windows(query, windows, Hybrid(classes), EPSILON, delta, law).noise
    for one in classes:
        assert drawn.delta(window_shifts(query, windows, one), float(EPSILON)) <= float(delta)
    assert window_shifts(query, windows, AtMost(2)) == {1: 8, 2: 8}
    assert window_shifts(query, windows, TimeBounded(3)) == {2: 11}


def test_the_papers_sum_for_time_bounded_entries_is_exceeded_by_an_entry():
    """B = W, c = 2: an entry reaches 2 nodes in layer 1 too, where the paper counts 1.5, and 4 in all, not 3.5."""
    calendar = Calendar(0, 2, 8)
    mechanism = hierarchy(COUNT, calendar, TimeBounded(2), EPSILON, shape=(2, 2))
    assert mechanism.noise.scale == 4
    late = [(0,) * 3 + tail for tail in histories(1, TimeBounded(2), 5)]
    most = np.abs(transcripts(mechanism, COUNT, calendar, late, released)).sum(1).max()
    assert most == 4 > sum((2 / 2) / 2**i + 1 for i in range(2))


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_no_entry_reaches_more_windows_than_the_theorems_count_and_some_reach_as_many(length, every):
    """k⌈W/P⌉ and ⌈(B+W)/P⌉ against every half-second mutation or span of a long release."""
    windows = Windows(0, length, every, 40)
    ends, times = length + every * np.arange(40), np.arange(2 * length, 4 * length + 30) / 2
    for bound in range(1, 6):
        met = [int(((ends >= t) & (ends - length < t + bound)).sum()) for t in times]
        assert max(met) == windows.reached(TimeBounded(bound))
    assert max(int(((ends >= t) & (ends - length < t)).sum()) for t in times) == windows.reached(AtMost(1))


@pytest.mark.parametrize("length", [16, 21, 22])
def test_the_papers_inequality_advises_a_hierarchy_that_loses(length):
    """c = 2, P = B = 1: (23) holds, but the worst cover sum of the hierarchy has the higher variance."""
    bound, h = 1, (length - 1).bit_length()
    papers_sum = (2**h - 1) / (2**h - 2 ** (h - 1)) * bound + h
    assert 2 * h * papers_sum**2 < (length + bound) ** 2, "the paper's advice: from a hierarchy"
    windows, constraint = Windows(0, length, 1, 300), TimeBounded(bound)
    tree = hierarchy(COUNT, windows.calendar, constraint, EPSILON, shape=(2, h))
    _, steps = stepped(tree, np.zeros((tree.calendar.periods, 1), int), NoNoise())
    nodes, starts = [node for closed in steps for node in closed], range(tree.calendar.periods - windows.periods + 1)
    worst = max(cover_sum(nodes, first, first + windows.periods, tree.widths).variance for first in starts)
    assert worst >= sliding_windows(COUNT, windows, constraint, EPSILON).noise.variance


every_tree = pytest.mark.parametrize(("c", "h", "T"), [(2, 1, 9), (2, 4, 13), (3, 3, 29), (4, 2, 20)])


@every_tree
def test_estimates_online_and_retrospective_are_those_of_weighted_least_squares(c, h, T):
    """Against the normal equations of all nodes, each of which is drawn once; online, of those that have closed."""
    random, mechanism = (
        np.random.default_rng(3),
        hierarchy(HISTOGRAM, Calendar(0, 1, T), AtMost(1), EPSILON, shape=(c, h)),
    )
    noise, nodes, estimates = Listed(random.integers(-50, 50, 200)), [], BestEstimates(T, mechanism.widths, 2)
    frontier, (_, released_) = estimates.start(), stepped(mechanism, random.integers(-9, 9, (T, 2)), noise)
    for t, closed in enumerate(released_, 1):
        nodes.extend(closed)
        frontier, level = estimates.step(frontier, closed)
        values, variances = retrospective(nodes, t)
        assert len(frontier.times) <= h + 1, "at most one open node a layer"
        assert level.values == pytest.approx(values[t])
        assert level.variance == pytest.approx(variances[t])
        assert level.variance == pytest.approx(online_variances(c, h, np.array([t]))[0] * mechanism.noise.variance)
    assert noise.drawn == 2 * len(nodes)
    A = np.array([[(t == n.node.end) - (t == n.node.start and t > 0) for t in range(1, T + 1)] for n in nodes], float)
    weights = np.array([1 / n.variance for n in nodes])
    covariance = np.linalg.inv(A.T @ (A * weights[:, None]))
    levels = covariance @ A.T @ (np.array([n.values for n in nodes]) * weights[:, None])
    assert values[1:] == pytest.approx(levels)
    assert variances[1:] == pytest.approx(np.diag(covariance))


@every_tree
def test_every_range_is_covered_and_the_covers_are_as_short_as_the_paper_says(c, h, T):
    """Without noise every cover sum is the truth; theorem 4.4 bounds the nodes."""
    mechanism = hierarchy(COUNT, Calendar(0, 1, T), AtMost(1), EPSILON, shape=(c, h))
    changes = np.random.default_rng(1).integers(-9, 9, (T, 1))
    nodes = [node for closed in stepped(mechanism, changes, NoNoise())[1] for node in closed]
    for left, right in combinations(range(T + 1), 2):
        level = cover_sum(nodes, left, right, mechanism.widths)
        assert level.values == changes[left:right].sum()
        needed = next(i for i in range(20) if c**i >= right - left)
        if h >= needed:
            assert level.variance <= max(1, 2 * (c - 1) * needed) * mechanism.noise.variance * (1 + 1e-12)


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_a_window_is_the_change_over_it_and_nothing_is_drawn_between_windows(windows):
    """Without noise; each with the node that it is of."""
    changes, found = np.random.default_rng(3).integers(-9, 9, (windows.calendar.periods, 1)), 0
    ends = range(windows.periods, windows.calendar.periods + 1, windows.stride)
    direct = sliding_windows(COUNT, windows, AtMost(1), EPSILON)
    state = direct.start()
    for period, change in enumerate(changes, 1):
        noise = NoNoise() if period in ends else Forbidden()
        state, ended = direct.step(state, change, noise)
        assert len(ended) == (period in ends)
        for window in ended:
            found += 1
            assert window.node == Node(period - windows.periods, period)
            assert window.values == changes[period - windows.periods : period].sum(0)
    assert found == windows.count


@pytest.mark.parametrize(("law", "scale"), [(Law.LAPLACE, 0.7), (Law.GAUSSIAN, 6.0)])
def test_opendps_noise_has_the_variance_that_is_stated(law, scale):
    """30,000 draws of the sampler, which has no seed: within 9%, 7 standard errors for Laplace (false alarm 1e-9)."""
    noise = NodeNoise(law, scale)
    assert noise.draw(OpenDPNoise(), 30_000).var() == pytest.approx(noise.variance, rel=0.09)


def test_the_chosen_hierarchy_is_the_best_of_all_by_its_exact_variance():
    """And a single cadence where the horizon is short."""
    calendar = Calendar(0, 3600, 744)
    best = best_hierarchy(COUNT, calendar, AtMost(2), EPSILON)
    for branching, layers in ((2, 9), (2, 10), (4, 5), (8, 3), (16, 2), (2, 1)):
        other = hierarchy(COUNT, calendar, AtMost(2), EPSILON, shape=(branching, layers))
        assert best.mean_variance <= online_variances(
            branching, layers, np.arange(1, 745)
        ).mean() * other.noise.variance * (1 + 1e-9)
    assert best_hierarchy(COUNT, Calendar(0, 3600, 3), AtMost(2), EPSILON).layers == 1


def test_impossible_releases_are_refused():
    """No budget, Gaussian noise without delta, too many layers, windows of no length, nothing that is counted."""
    for given, fault in (
        ({"epsilon": Fraction(0)}, "epsilon > 0"),
        ({"law": Law.GAUSSIAN}, "delta above 0"),
        ({"delta": Fraction(1)}, "delta < 1"),
        ({"shape": (2, 4)}, "fewer layers"),
        ({"shape": (1, 2)}, "branching >= 2"),
    ):
        with pytest.raises(ValueError, match=fault):
            hierarchy(COUNT, CALENDAR, AtMost(1), **{"epsilon": EPSILON, **given})
    with pytest.raises(ValueError, match="number >= 1"):
        Windows(0, 4, 0, 2)
    with pytest.raises(ValueError, match="counts nothing"):
        calibrated({}, EPSILON)


@pytest.mark.parametrize(("law", "delta"), [(Law.LAPLACE, 0), (Law.GAUSSIAN, DELTA)])
@pytest.mark.parametrize("name", ["hdcr", "dcr"])
def test_a_begun_release_keeps_its_noise_to_the_last_bit_and_no_noise_that_breaks_the_promise(name, law, delta):
    """Whatever would be calibrated today; of another law the release is another one."""
    calendar = Calendar(0, 3600, 12)
    asked = Asked(COUNT, calendar, AtMost(2), EPSILON, Fraction(delta), law)
    first = offered(name).made(asked)
    wider = NodeNoise(law, first.mechanism.noise.scale * (1 + 1e-15))
    begun = {**first.made_with(), "scale": wider.scale.hex()}
    again = offered(name).made(replace(asked, begun=begun))
    assert again.made_with() == begun
    assert again.covers(COUNT, calendar, AtMost(2))
    assert not again.covers(COUNT, calendar, AtMost(3))
    narrow = offered(name).made(replace(asked, begun={**begun, "scale": (wider.scale / 2).hex()}))
    assert not narrow.covers(COUNT, calendar, AtMost(2))
    other = replace(asked, delta=DELTA, law=Law.GAUSSIAN if law is Law.LAPLACE else Law.LAPLACE, begun=begun)
    assert offered(name).made(other).made_with() != begun


CASES = [
    ([("school", "work")], ["school"], 3),
    ([("school", "work"), ("work", "jobless"), ("jobless", "work"), ("work", "retired")], ["school"], 4),
    ([("a", "b"), ("b", "a")], ["a"], 2),
    ([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("x", "d"), ("d", "e")], ["a", "x"], 4),
    ([("a", "b"), ("b", "c"), ("a", "c")], ["b"], 3),
    ([], ["a"], 2),
]


@pytest.mark.parametrize(("moves", "starts", "k"), CASES)
def test_k_is_the_longest_walk_over_components(moves, starts, k):
    """With the insertion, and the deletion where there can be one. States that lead to one another are one component;
    without a beginning, or with NULL among the moves, a diagram is refused."""
    for deletable in (True, False):
        assert state_diagram(moves, starts, deletable).constraint.k == k - (not deletable)
    diagram = state_diagram([("work", "jobless"), ("jobless", "work"), ("work", "retired")], ["work"])
    assert diagram.components == (("jobless", "work"), ("retired",))
    assert diagram.component_of() == {"jobless": 0, "work": 0, "retired": 1}
    for moves_, starts_, said in (([("a", "b")], [], "at least one state"), ([("", "b")], ["b"], "NULL is no state")):
        with pytest.raises(ValueError, match=said):
            state_diagram(moves_, starts_)

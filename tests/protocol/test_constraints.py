"""Periods, nodes and covers; and constraints: what a device may do, and how many nodes that can reach."""

from itertools import combinations, pairwise, product

import pytest
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Hybrid,
    KaryResponse,
    Node,
    Odds,
    Question,
    StateSpace,
    TimeBounded,
    Track,
    cover,
    most_span,
)
from hypothesis import given
from hypothesis import strategies as st


def test_a_period_ends_with_its_last_instant_and_closes_just_after():
    """Period i is (start + (i-1)W, start + iW]."""
    calendar = Calendar(start=100, period=10, periods=3)
    assert [calendar.period_of(t) for t in (100, 100.001, 110, 110.001, 130, 130.5)] == [0, 1, 1, 2, 3, 4]
    assert [calendar.closed(t) for t in (0, 110, 110.001, 130, 131, 10**9)] == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize("c", [2, 3, 4, 5])
def test_a_cover_tiles_its_range_with_no_more_nodes_than_the_theorem_says(c):
    """For every (l, r] up to 130 there are at most max(1, 2(c-1)⌈log_c(r-l)⌉) aligned nodes, without gap or overlap."""
    widths = [c**i for i in range(8)]
    for r in range(1, 131):
        for l in range(r):
            nodes = cover(Node(l, r), widths)
            assert [nodes[0].start, *(n.end for n in nodes)] == [*(n.start for n in nodes), r]
            assert nodes[0].start == l
            assert all(n.width in widths and n.start % n.width == 0 for n in nodes)
            height = next(i for i in range(9) if c**i >= r - l)
            assert len(nodes) <= max(1, 2 * (c - 1) * height)


def test_a_cover_is_the_smallest_there_is():
    """No path of aligned nodes from l to r is shorter (breadth-first search over all of them)."""
    widths = [1, 2, 4, 8]
    for l in range(16):
        fewest = {l: 0}
        for at in range(l, 33):
            for w in widths:
                if at % w == 0 and at in fewest:
                    fewest[at + w] = min(fewest.get(at + w, 99), fewest[at] + 1)
        for r in range(l + 1, 33):
            assert len(cover(Node(l, r), widths)) == fewest[r]


def test_ranges_that_no_node_reaches_and_widths_that_do_not_nest_are_named():
    """A cover that is impossible says where it is stuck."""
    with pytest.raises(ValueError, match="stuck at 2"):
        cover(Node(0, 3), [2])
    with pytest.raises(ValueError, match="divide"):
        cover(Node(0, 6), [2, 3])


def test_a_cadence_leaves_out_a_last_node_that_does_not_fit():
    """Only whole nodes inside (first, last]."""
    assert Track(3, KaryResponse(StateSpace(2), Odds(2, 1)), 1, 9).nodes() == [Node(1, 4), Node(4, 7)]


def test_a_calendar_is_written_in_words():
    """A start in ISO 8601 and a duration; a time that has parts of a second, and months, are refused by name."""
    assert Calendar("2027-01-01", "1w", 52) == Calendar(1_798_761_600, 604_800, 52)
    assert Calendar("2027-01-01T02:00+02:00", 3600, 1) == Calendar(1_798_761_600, "1h", 1)
    for start, period, says in (("2027-01-01T00:00:00.5", "1d", "whole second"), ("2027-01-01", "1mo", "months")):
        with pytest.raises(ValueError, match=says):
            Calendar(start, period, 1)


def nodes_met(bounds, start, length):
    """Nodes (a, b] that the closed window [start, start + length] meets, in halves so that interiors count."""
    return sum(start <= b and a < start + length for a, b in pairwise(bounds))


@pytest.mark.parametrize("length", range(0, 14))
def test_most_span_is_the_worst_of_all_windows(length):
    """Over every release of three nodes in 0..12 and every half-integer window, those past the end included."""
    for bounds in combinations(range(13), 4):
        brute = max(nodes_met(bounds, start / 2, length) for start in range(2 * bounds[0] + 1, 2 * bounds[-1] + 1))
        assert most_span(bounds, length) == brute


def test_the_cases_the_papers_code_gets_wrong():
    """Windows that reach past the last end count the nodes that remain."""
    assert most_span([0, 2, 5, 8, 10, 11, 12], 5) == 4
    assert most_span([0, 2, 4], 100) == 2
    assert most_span([0, 10, 20, 30], 10) == 2
    with pytest.raises(ValueError, match="-1"):
        most_span([0, 1], -1)


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 600), st.integers(0, 50))
def test_of_nodes_of_one_width_the_first_window_meets_most(count, width, length, start):
    """A range of bounds gives what the same bounds in a list do."""
    bounds = range(start, start + count * width + 1, width)
    assert most_span(bounds, length) == most_span(list(bounds), length)


CONSTRAINTS = [
    AtMost(1),
    AtMost(3),
    TimeBounded(2),
    TimeBounded(5),
    AtMostWithin(2, 3),
    Hybrid((AtMost(2), TimeBounded(4))),
]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_whatever_is_attempted_no_more_nodes_are_reached_than_the_cost_counts_with(constraint):
    """Every pattern of attempted mutations at half-integer times, admitted as the device admits them."""
    bounds = [0, 3, 4, 6, 7]
    for attempts in product((False, True), repeat=14):
        times: list[float] = []
        for half, attempted in enumerate(attempts, 1):
            if attempted and constraint.admits(len(times), half / 2 - times[0] if times else 0):
                times.append(half / 2)
        met = sum(any(a < t <= b for t in times) for a, b in pairwise(bounds))
        assert met <= constraint.most_nodes(bounds)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_a_constraint_comes_back_from_its_fields(constraint):
    """And anything else is refused by name."""
    asked = Question("drink", "Tea?", ("yes", "no"), constraint)
    fields = asked.as_fields()
    assert Question.from_fields(fields) == asked
    for broken in ({}, {**fields["constraint"], "more": 1}, {"kind": "at-most", "k": "3"}):
        with pytest.raises(ValueError, match="not a constraint"):
            Question.from_fields({**fields, "constraint": broken})

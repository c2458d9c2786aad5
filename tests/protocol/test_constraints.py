"""Constraints: what a device may do, and how many nodes that can reach."""

from itertools import combinations, pairwise, product

import pytest
from changeling_protocol import AtMost, AtMostWithin, Hybrid, TimeBounded, most_span
from changeling_protocol.questions import constraint_from_fields


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
    fields = constraint.as_fields()
    assert constraint_from_fields(fields) == constraint
    for broken in ({}, {**fields, "more": 1}, {"kind": "at-most", "k": "3"}):
        with pytest.raises(ValueError, match="not a constraint"):
            constraint_from_fields(broken)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AtMost(0),
        lambda: TimeBounded(0),
        lambda: Hybrid((AtMost(1),)),
        lambda: AtMostWithin(0, 5),
        lambda: AtMostWithin(2, 0),
    ],
)
def test_impossible_constraints_are_refused(make):
    """k below one, no time, a single class: each is named."""
    with pytest.raises(ValueError, match="got"):
        make()

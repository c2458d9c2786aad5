"""Periods, nodes and covers."""

import pytest
from changeling_protocol import Calendar, Node, cadence, cover


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
    assert cadence(3, 1, 9) == [Node(1, 4), Node(4, 7)]


@pytest.mark.parametrize("bad", [(-1, 10, 3), (0, 0, 3), (0, 10, 0), (0, 10, 2**31)])
def test_impossible_calendars_are_refused(bad):
    """Each bad value is named."""
    with pytest.raises(ValueError, match="got"):
        Calendar(*bad)
    with pytest.raises(ValueError, match="got"):
        Node(3, 3)


def test_a_calendar_is_written_in_words():
    """A start in ISO 8601 and a duration; a time that has parts of a second, and months, are refused by name."""
    assert Calendar("2027-01-01", "1w", 52) == Calendar(1_798_761_600, 604_800, 52)
    assert Calendar("2027-01-01T02:00+02:00", 3600, 1) == Calendar(1_798_761_600, "1h", 1)
    for start, period, says in (("2027-01-01T00:00:00.5", "1d", "whole second"), ("2027-01-01", "1mo", "months")):
        with pytest.raises(ValueError, match=says):
            Calendar(start, period, 1)

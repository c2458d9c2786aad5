"""Snapshots: whatever arrives and whoever looks when, no difference of what was shown is about few reports."""

import itertools
from collections import Counter

from changeling_protocol import NodeNumber, TrackNumber
from changeling_statistics import batches_to_show
from changeling_statistics.estimate import MINIMUMS, enough
from hypothesis import given
from hypothesis import strategies as st

WHOLE, DRAWN = (TrackNumber(0), NodeNumber(3)), (TrackNumber(1), NodeNumber(1))
"""A node that all of a group report, and one that some do."""
MINIMUM = 3

Shown = dict[str, Counter[tuple[TrackNumber, NodeNumber]]]

arrivals = st.lists(
    st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 2 * MINIMUMS * MINIMUM)), max_size=12
)
"""Of which lot, whether they report on the drawn node, and how many come one after another."""


def life(bursts: list[tuple[str, bool, int]]) -> tuple[list[Shown], Shown]:
    """What is shown after each report, and when the closing is sealed; and what was counted."""
    counted: Shown = {}
    shown: Shown = {}
    moments: list[Shown] = [{}]

    def look(sealed: bool) -> None:
        for lot in batches_to_show(shown, counted, MINIMUM, sealed=sealed):
            shown[lot] = counted[lot].copy()
        moments.append({lot: cells.copy() for lot, cells in shown.items()})

    for lot, drawn, times in bursts:
        for _ in range(times):
            counted.setdefault(lot, Counter()).update([WHOLE, DRAWN] if drawn else [WHOLE])
            look(sealed=False)
    look(sealed=True)
    return moments, counted


@given(arrivals)
def test_differences_of_what_was_shown_are_about_enough_reports_or_none(bursts: list[tuple[str, bool, int]]) -> None:
    """Of any two moments each cell differs by 0 or at least the minimum, and so does every union of cells.

    Reports of a cell come in batches, one for each of its snapshots; what is about some of the batches is about as many
    reports. Where nothing was shown before the closing is sealed, there is no difference; unions see to the rest.
    """
    moments, _ = life(bursts)
    if not any(moments[:-1]):
        return
    for cell in (WHOLE, DRAWN):
        for lot in "abc":
            seen = sorted({moment.get(lot, Counter())[cell] for moment in moments})
            assert seen[0] == 0
            assert all(more - less >= MINIMUM for less, more in itertools.pairwise(seen))


@given(arrivals)
def test_what_is_shown_never_goes_back_and_little_is_left_out(bursts: list[tuple[str, bool, int]]) -> None:
    """A lot that was shown early ends with all its reports, or has a cell with fewer than the minimum more.

    With one cell these are at most a tenth. A closing that waited until it was sealed is shown whole.
    """
    moments, counted = life(bursts)
    for before, after in itertools.pairwise(moments):
        for lot, cells in before.items():
            assert all(after[lot][cell] >= count for cell, count in cells.items())
    early, final = moments[-2], moments[-1]
    if not early:
        assert final == counted
    for lot in early:
        if final[lot] != counted[lot]:
            left = {cell: count - final[lot][cell] for cell, count in counted[lot].items()}
            assert any(0 < count < MINIMUM for count in left.values())
            if len(counted[lot]) == 1:
                assert MINIMUMS * left[WHOLE] < counted[lot][WHOLE]
    for lot in counted.keys() - final.keys():
        assert early
        assert any(0 < count < MINIMUM for count in counted[lot].values())


def test_a_closing_is_shown_once_all_its_cells_are_large() -> None:
    """One small stratum makes it wait until it is sealed."""
    large, small = {WHOLE: enough(MINIMUM)}, {WHOLE: enough(MINIMUM) - 1}
    assert batches_to_show({}, {"a": large}, MINIMUM, sealed=False) == {"a"}
    assert batches_to_show({}, {"a": large, "b": {WHOLE: 0}}, MINIMUM, sealed=False) == {"a"}
    assert batches_to_show({}, {"a": large, "b": small}, MINIMUM, sealed=False) == set()
    assert batches_to_show({}, {"a": large, "b": small}, MINIMUM, sealed=True) == {"a", "b"}
    assert batches_to_show({"a": large}, {"a": large, "b": {WHOLE: 2}}, MINIMUM, sealed=True) == set()

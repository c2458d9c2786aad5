"""Unions of strata and snapshots: nothing shown, and no difference of it, is about fewer entries than the minimum."""

import itertools
from collections import Counter
from itertools import chain, combinations, product

import numpy as np
import pytest
from changeling_protocol import Breakdown, NodeNumber, StratumNumber, TrackNumber
from changeling_statistics import Attendance, NodeTally, StratifiedTallies, batches_to_show, select
from changeling_statistics.estimate import MINIMUMS, enough
from hypothesis import given
from hypothesis import strategies as st

MINIMUM = 3
SYSTEM, CHANNEL = Breakdown("system", ("linux", "mac", "windows")), Breakdown("channel", ("release", "beta"))


def test_no_combination_of_published_unions_is_about_fewer_entries_than_the_minimum() -> None:
    """Whatever is added and subtracted of published unions of one node, it is about 0 or at least the minimum.

    Cells that are in the same unions count equally in every combination. So it suffices that those of each kind have
    so many reports together. Every node of 3 cells of up to 6 reports, and of 4 cells of up to 5.
    """
    for strata, most in ((3, 6), (4, 5)):
        cases = list(product(range(most + 1), repeat=strata))
        tallies = one_track(cases)
        published = [
            (frozenset(union), tallies.union([StratumNumber(s) for s in union])) for union in unions_of(strata)
        ]
        for number, reports in enumerate(cases, 1):
            node = TrackNumber(0), NodeNumber(number)
            shown = [union for union, of_union in published if node in of_union]
            together: Counter[frozenset[int]] = Counter()
            for stratum, count in enumerate(reports):
                kind = frozenset(place for place, union in enumerate(shown) if stratum in union)
                together[kind] += count if kind else 0
            assert all(count == 0 or count >= MINIMUM for count in together.values()), (reports, shown)


def test_what_is_large_enough_is_published() -> None:
    """Cells of at least the minimum are shown, but the smallest, if the small ones together have too few; and all."""
    tallies = one_track([(5, 4, 2, 0), (5, 4, 2, 2), (1, 1, 1, 0), (1, 1, 0, 0)])
    shown = {
        union: {int(node) for _, node in tallies.union([StratumNumber(s) for s in union])} for union in unions_of(4)
    }
    assert shown[(0,)] == {1, 2}
    assert shown[(1,)] == {2}
    assert shown[(0, 1)] == {2}
    assert shown[(2,)] == shown[(2, 3)] == shown[(3,)] == set()
    assert shown[(0, 1, 2, 3)] == {1, 2, 3}
    assert shown[(0, 1, 2)] == {1, 3}
    assert shown[(0, 3)] == {1}, "a stratum without reports at the first node; one that is too small at the second"


@pytest.mark.parametrize("minimum", [1, 12])
def test_a_union_equals_what_would_have_been_counted_for_it(minimum: int) -> None:
    """Byte for byte: of the nodes that are published, and of attendance everywhere."""
    draws = np.random.default_rng(5)
    cells = list(product((TrackNumber(0), TrackNumber(1)), map(NodeNumber, range(9)), map(StratumNumber, range(7))))
    slots = {cell: draws.poisson(draws.choice([0, 0.5, 6]), 5).astype(np.int64) for cell in cells}
    heard = {(group, period, s): Attendance(*draws.integers(0, 40, 3).tolist()) for group, period, s in cells}
    nodes = {cell: NodeTally(int(each.sum()), each) for cell, each in slots.items() if each.any()}
    everything = StratifiedTallies(nodes, heard, minimum)
    for union in ([0], [1, 4], [0, 2, 3, 5, 6], list(range(7))):
        of_union = everything.union([StratumNumber(s) for s in union])
        direct = {(track, node): sum(slots[track, node, s] for s in union) for track, node, _ in cells}
        large = {node for node, each in direct.items() if each.sum() >= minimum}
        assert of_union.keys() <= large
        assert of_union.keys() == large or minimum > 1
        for node, tally in of_union.items():
            assert tally.reports == direct[node].sum()
            assert tally.slots.tobytes() == direct[node].tobytes()
        summed = {(g, t): sum((heard[g, t, s] for s in union), Attendance()) for g, t, _ in cells}
        assert of_union.attendance == summed


def test_an_empty_survey_has_empty_unions() -> None:
    """Where nothing was counted, a union has no node and no attendance."""
    tallies = StratifiedTallies({}, {}, 1).union([StratumNumber(0)])
    assert not tallies
    assert not tallies.attendance
    assert not one_track([(4, 0)]).union([])


def test_strata_are_selected_by_the_names_of_their_values() -> None:
    """A union may cross breakdowns; one that is not named may have any value; names are those declared."""
    both = [SYSTEM, CHANNEL]
    assert select(both, {"system": ["linux", "mac"]}) == [0, 1, 2, 3]
    assert select(both, {"system": {"windows", "linux"}, "channel": ["beta"]}) == [1, 5]
    assert select(both, {}) == list(range(6))
    assert select([], {}) == [0]
    for told, named in (
        ({"country": ["GR"]}, "country"),
        ({"system": ["linux", "haiku"]}, "haiku"),
        ({"system": []}, "system"),
    ):
        with pytest.raises(ValueError, match=named):
            select(both, told)


def one_track(nodes: list[tuple[int, ...]]) -> StratifiedTallies:
    """Tallies of one track, of whose nodes each stratum has so many reports."""
    cells = {
        (TrackNumber(0), NodeNumber(number), StratumNumber(stratum)): NodeTally(count, np.array([count]))
        for number, reports in enumerate(nodes, 1)
        for stratum, count in enumerate(reports)
        if count
    }
    return StratifiedTallies(cells, {}, MINIMUM)


def unions_of(strata: int) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(range(strata), size) for size in range(strata + 1)))


WHOLE, DRAWN = (TrackNumber(0), NodeNumber(3)), (TrackNumber(1), NodeNumber(1))
"""A node that all of a group report, and one that some do."""

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

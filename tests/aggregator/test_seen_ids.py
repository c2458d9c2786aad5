"""Which ids were counted before: found whatever is in memory, what is being written among them."""

from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from changeling_aggregator.fold.filters import MOST_BYTES_A_HALF, Filter
from changeling_aggregator.fold.halves import BYTES_AN_ID, SortedIds, found_in
from changeling_aggregator.fold.ids import are_in, first_of_each, ids_in, merged_ids
from changeling_aggregator.fold.runs import add_ids
from changeling_aggregator.fold.seen import SeenIds
from changeling_aggregator.store import ClosingKey, Store
from hypothesis import given, settings
from hypothesis import strategies as st

SURVEY = bytes(range(16))


@pytest.mark.parametrize("most_bytes", [0, 1000, 10**6])
def test_every_id_that_was_counted_is_found_and_no_other(store: Store, most_bytes: int) -> None:
    """However much of the runs is in memory, and though many ids have a high half in common."""
    random = Random(5)
    seen = SeenIds(most_bytes)
    known: dict[ClosingKey, set[bytes]] = {(SURVEY, period): set() for period in (1, 2, 3)}
    for batch in range(40):
        wanted = {key: _some(random, ids) for key, ids in known.items()}
        fresh = _looked_up(store, seen, {}, wanted)
        assert fresh == {key: ids - known[key] for key, ids in wanted.items()}, batch
        added = {key: b"".join(sorted(ids)) for key, ids in fresh.items() if ids}
        assert _looked_up(store, seen, added, wanted) == {key: set() for key in known}, "as it is being written"
        with store.transaction() as writing:
            runs = add_ids(writing, added)
        for key, run in runs.items():
            if random.random() < 0.7:
                seen.remember(key, run, SortedIds.of(added[key]))
        for key, ids in fresh.items():
            known[key] |= ids


def test_a_run_that_a_lost_transaction_numbered_is_not_taken_for_another(store: Store) -> None:
    """What was not committed is not remembered, and the number is given again."""
    key, seen = (SURVEY, 1), SeenIds()
    with suppress(RuntimeError), store.transaction() as writing:
        lost = add_ids(writing, {key: bytes(16)})
        raise RuntimeError
    seen.remember(key, lost[key], SortedIds.of(bytes(16)))  # which nobody does
    with store.transaction() as writing:
        assert add_ids(writing, {key: b"\1" * 16})[key].run.number == lost[key].run.number
    assert _looked_up(store, seen, {}, {key: {bytes(16), b"\1" * 16}}) == {key: {bytes(16)}}


def test_what_is_read_before_it_is_remembered_takes_memory_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a batch is on disk before the next one looks: what was met last stays in memory."""
    seen, ids = SeenIds(200), b"".join(number.to_bytes(16) for number in range(10))
    for period in range(20):
        key = (SURVEY, period)
        with store.transaction() as writing:
            runs = add_ids(writing, {key: ids})
        assert _looked_up(store, seen, {}, {key: {bytes(16)}}) == {key: set()}
        seen.remember(key, runs[key], SortedIds.of(ids))
    monkeypatch.setattr("changeling_aggregator.fold.seen.read_run", None)
    assert _looked_up(store, seen, {}, {key: {bytes(16)}}) == {key: set()}


def test_runs_that_were_merged_are_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was in them is in memory, and is found there in the run that took their place; they take no room."""
    key, seen, random = (SURVEY, 1), SeenIds(), Random(6)
    ids: set[bytes] = set()
    monkeypatch.setattr("changeling_aggregator.fold.seen.read_run", None)
    for _ in range(30):
        fresh = {random.randbytes(16) for _ in range(50)}
        packed = b"".join(sorted(fresh))
        with store.transaction() as writing:
            added = add_ids(writing, {key: packed})
        seen.remember(key, added[key], SortedIds.of(packed))
        ids |= fresh
        other = {random.randbytes(16)}
        assert _looked_up(store, seen, {}, {key: {*random.sample(sorted(ids), 20), *other}}) == {key: other}
    with store.view() as view:
        assert seen._kept[key][0].runs == len(view.runs([key])[key]) < 10


ALL = 2**64 - 1
EDGES = [0, 1, 2**63 - 1, 2**63, ALL]


@settings(max_examples=200)
@given(
    known=st.lists(st.integers(0, 2**64 - 1) | st.sampled_from(EDGES), max_size=40),
    shared=st.integers(0, 63),
    others=st.lists(st.integers(0, 2**64 - 1) | st.sampled_from(EDGES), max_size=40),
)
def test_high_halves_are_found_whatever_they_are(known: list[int], shared: int, others: list[int]) -> None:
    """Also where somebody chose them so that they share their first bits, or their last, or are the same."""
    known = sorted([*known, *(number >> shared for number in known), *(number << shared & ALL for number in known)])
    others = sorted([*others, *known[::2], *(number ^ 1 for number in known[::3])])
    halves, sought = np.array(known, np.uint64), np.array(others, np.uint64)
    there = [place for place, number in enumerate(others) if number in known]
    assert found_in(sought, halves).tolist() == there
    assert {*Filter.of([halves]).likely(sought).tolist()} >= {*there}


@pytest.mark.parametrize("many", [1, 1000, 4096, 4097, 50_000])
def test_a_filter_tells_nearly_all_that_are_not_among_its_halves(many: int) -> None:
    """All that are among them are told, added by and by or at once; of others one in 100 at most.

    One in 180 is due where it is full. The seeds are fixed, so there is no false alarm.
    """
    generator = np.random.default_rng(many)
    halves, others = (np.sort(generator.integers(0, 2**64, size, np.uint64)) for size in (many, 200_000))
    whole, parts = Filter.of([halves]), np.array_split(halves, 7)
    for filter_ in (whole, Filter.of(parts)):
        assert len(filter_.likely(halves)) == len(halves)
        assert len(filter_.likely(others)) < 2000
        assert filter_.nbytes <= max(32, MOST_BYTES_A_HALF * len(halves))
    grown = Filter.of(parts[:4])
    for part in parts[4:]:
        if grown.has_room(len(part)):
            grown.add(part)
            assert len(grown.likely(part)) == len(part)
    assert len(grown.likely(others)) < 2000


def test_halves_that_share_a_word_harm_those_of_that_word_alone() -> None:
    """A hundred thousand chosen in one part of the range: what is in the other parts is told as before."""
    generator = np.random.default_rng(4)
    chosen, honest, others = (generator.integers(0, 2**64, size, np.uint64) for size in (10**5, 10**4, 10**5))
    filter_ = Filter.of([np.sort(chosen >> np.uint64(40)), np.sort(honest)])
    assert len(filter_.likely(np.sort(honest))) == len(honest)
    assert len(filter_.likely(np.sort(others))) < 1000


@pytest.mark.parametrize("most_bytes", [10_000, 10**6])
def test_what_is_remembered_takes_no_more_memory_than_it_may(store: Store, most_bytes: int) -> None:
    """Of closings that grow by and by, the halves of those met last, and their filters, with what is being written."""
    random, seen = Random(7), SeenIds(most_bytes)
    for _ in range(30):
        fresh = {(SURVEY, period): {random.randbytes(16) for _ in range(40)} for period in range(5)}
        assert _looked_up(store, seen, {}, fresh) == fresh
        added = {key: b"".join(sorted(ids)) for key, ids in fresh.items()}
        with store.transaction() as writing:
            runs = add_ids(writing, added)
        for key, run in runs.items():
            seen.remember(key, run, SortedIds.of(added[key]))
        kept = [closing for closing, _ in seen._kept.values()]
        assert sum(each.nbytes for each in kept) == seen._bytes <= most_bytes + MOST_BYTES_A_HALF * 40
    assert sum(each.ids for each in kept) >= min(30 * 40 * 5, most_bytes // BYTES_AN_ID // 2)


def test_runs_that_another_folder_merged_are_forgotten(store: Store) -> None:
    """What took their place is read, and they take no room any more."""
    key, seen, random = (SURVEY, 1), SeenIds(), Random(8)
    known: set[bytes] = set()
    for _ in range(40):
        fresh = {random.randbytes(16) for _ in range(10)}
        with store.transaction() as writing:
            add_ids(writing, {key: b"".join(sorted(fresh))})
        known |= fresh
        other = {random.randbytes(16)}
        assert _looked_up(store, seen, {}, {key: {*random.sample(sorted(known), 10), *other}}) == {key: other}
        assert seen._kept[key][0].ids == len(known)


@settings(max_examples=200)
@given(
    high=st.lists(st.sampled_from([*EDGES, 4, 5, 6, 7, 2**63 + 1]), max_size=60),
    low=st.lists(st.integers(0, 2), min_size=60, max_size=60),
)
def test_ids_are_sorted_and_looked_up_whatever_bits_they_share(high: list[int], low: list[int]) -> None:
    """The first of each in the order of ids; and which of them are among others."""
    ids = [each.to_bytes(8) + low[at].to_bytes(8) for at, each in enumerate(high)]
    first = first_of_each(ids_in(b"".join(ids))).tolist()
    assert first == [ids.index(each) for each in sorted(set(ids))]
    some, others = sorted(set(ids[::2])), sorted(set(ids[1::3]))
    found = are_in(ids_in(b"".join(some)), ids_in(b"".join(others)))
    assert found.tolist() == [each in others for each in some]
    rest = sorted(set(ids) - set(some))
    assert merged_ids([b"".join(some), b"".join(rest)]) == b"".join(sorted(set(ids)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "server.db")


def _some(random: Random, known: set[bytes]) -> set[bytes]:
    """New ids, of which some share a high half with others, and some that are known."""
    drawn = {random.randrange(8).to_bytes(8) + random.randbytes(8) for _ in range(random.randrange(20))}
    return drawn | {random.randbytes(16) for _ in range(20)} | {*random.sample(sorted(known), min(len(known), 5))}


def _looked_up(
    store: Store, seen: SeenIds, written: dict[ClosingKey, bytes], wanted: dict[ClosingKey, set[bytes]]
) -> dict[ClosingKey, set[bytes]]:
    """Those of the ids that were not counted."""
    packed = {key: b"".join(sorted(ids)) for key, ids in wanted.items()}
    fresh = {key: set(ids) for key, ids in wanted.items()}
    with store.view() as view:
        sorted_ids = {key: SortedIds.of(ids) for key, ids in written.items()}
        for key, piece in seen.near(view, sorted_ids, packed):
            ids = ids_in(packed[key])
            fresh[key] -= {id_.tobytes() for id_ in ids[are_in(ids, ids_in(piece))]}
    return fresh
